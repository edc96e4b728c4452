"""Bandwidths for 95 % compute utilisation: which published values are reproduced, and from what."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.diloco_bandwidth import bench, published
from benchmarks.diloco_bandwidth.published import (
    AIMED_UTILISATION,
    CELLS,
    GRID_SIZE,
    HIGHEST_GBPS,
    PUBLISHED_GBPS,
    StudyCell,
    grid_gbps,
    nearest_grid_number,
)
from benchmarks.diloco_bandwidth.real_time import SIZE_DIVISOR, RealTimeCell, compare_with_virtual_time
from benchmarks.diloco_bandwidth.results_page import (
    RESULTS_PAGE,
    format_table,
    needed_gbps_beside_one_step,
    perfectly_overlapped_share,
    render_page,
    render_real_time_page,
)
from benchmarks.diloco_bandwidth.search import FoundBandwidth, find_bandwidths
from benchmarks.diloco_bandwidth.trials import MeasuredUtilisation, UtilisationTrials
from compose.engines.simulated import SimulatedEngine

SMALLEST_CELLS = [cell for cell in CELLS if cell.model.name == "1B"]
MAX_ROUNDING = 0.05  # of a published value with two digits


@pytest.fixture(scope="module")
def trials() -> Iterator[UtilisationTrials]:
    """Trials in virtual time; each runs once."""
    engine = SimulatedEngine()
    yield UtilisationTrials(engine)
    engine.close()


def make_row(cell: StudyCell, error_steps: int) -> FoundBandwidth:
    """A row whose bandwidth is some steps of the grid above the published one."""
    measured = MeasuredUtilisation(0.96, 0.1, 1.0, "")
    gbps = grid_gbps(nearest_grid_number(cell.published_gbps) + error_steps)
    return FoundBandwidth(cell, gbps, error_steps, measured, measured)


def test_published_values_lie_on_the_grid() -> None:
    """Errors are counted in steps of this grid, so it has to be that of the paper."""
    assert grid_gbps(GRID_SIZE - 1) == pytest.approx(HIGHEST_GBPS)
    for cell in CELLS:
        nearest = grid_gbps(nearest_grid_number(cell.published_gbps))
        assert nearest == pytest.approx(cell.published_gbps, rel=MAX_ROUNDING), cell.name


@pytest.mark.parametrize("cell", SMALLEST_CELLS, ids=lambda cell: cell.name)
def test_bandwidth_is_at_most_one_step_of_the_grid_away_from_the_published_one(
    trials: UtilisationTrials, cell: StudyCell
) -> None:
    """The aim holds for every method; the page has all models."""
    (row,) = find_bandwidths(trials, [cell])

    assert row.meets_aim
    assert row.utilisation.verdict_reasons == row.utilisation_at_published.verdict_reasons == ""


@pytest.mark.slow
def test_every_cell_meets_the_aim_and_the_page_is_that_of_the_current_code(trials: UtilisationTrials) -> None:
    """Virtual time is the same on every host; `make bench-diloco-bandwidth ARGS=--write` writes the page."""
    rows = find_bandwidths(trials, CELLS)

    assert [row.cell.name for row in rows if not row.meets_aim] == []
    assert RESULTS_PAGE.read_text(encoding="utf-8") == render_page(rows)


def test_published_bandwidths_do_not_enter_the_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """With other published values, the trials are the same: nothing can be fitted to them."""
    trials = UtilisationTrials(SimulatedEngine())
    settings = [trials.make_settings(cell, 10.0) for cell in CELLS]
    other_values = {method: dict.fromkeys(values, 77.0) for method, values in PUBLISHED_GBPS.items()}
    monkeypatch.setattr(published, "PUBLISHED_GBPS", other_values)

    assert [trials.make_settings(cell, 10.0) for cell in CELLS] == settings
    assert CELLS[0].published_gbps == 77.0


def test_smaller_models_have_links_that_are_as_much_slower() -> None:
    """Exchanges then take as long as those of the whole model."""
    engine = SimulatedEngine()

    whole, small = (UtilisationTrials(engine, divisor).make_settings(CELLS[0], 100.0) for divisor in (1, 1000))

    assert (whole["workload.payload"], small["workload.payload"]) == ("1000000000 x fp32", "1000000 x fp32")
    rates = [float(settings["cluster.worker.uplink"].removesuffix("bit")) for settings in (whole, small)]
    assert rates[0] == pytest.approx(1000 * rates[1])
    assert whole["cluster.worker.throughput"] == small["cluster.worker.throughput"]


def test_smaller_models_have_the_utilisation_of_the_whole_model(trials: UtilisationTrials) -> None:
    """Only then does a run in containers, which send all bytes, show something about the whole model."""
    cells = [cell for cell in SMALLEST_CELLS if cell.method in ("data_parallel", "streaming_overlap_4bit")]
    engine = SimulatedEngine()

    rows = compare_with_virtual_time(engine, cells)
    engine.close()

    for row in rows:
        assert row.step_error == 0
        assert row.virtual.share == pytest.approx(trials.measure(row.cell, row.gbps).share, abs=0.01)


def test_a_missed_cell_is_on_the_page() -> None:
    """A page that only counts the cells that met the aim would hide where the simulators differ."""
    page = render_page([make_row(CELLS[0], 1), make_row(CELLS[5], 2)])

    assert "1 of 2 cells are at most one step" in page
    assert "- **Missed**: DiLoCo, 100B: 72.0 instead of 49 Gbit/s." in page
    assert "Missed" not in render_page([make_row(CELLS[0], -1)])


def test_explanations_of_the_page_follow_from_the_published_values() -> None:
    """The page says that perfect overlap is not enough at the published rates, and that one step of overlap is less."""
    for cell in CELLS[:3]:
        assert perfectly_overlapped_share(cell.model) < AIMED_UTILISATION
    for cell in CELLS[9:]:
        assert needed_gbps_beside_one_step(cell.model) > 1.5 * cell.published_gbps


def test_invalid_trials_are_on_the_page() -> None:
    """Utilisations of a disturbed trial are no result."""
    row = make_row(CELLS[0], 0)
    disturbed = replace(row, utilisation=row.utilisation._replace(verdict_reasons="bytes differ"))

    assert "all verdicts are valid" in render_page([row])
    assert "- **Trials**: bytes differ." in render_page([disturbed])


def test_the_page_of_engines_in_real_time_has_machine_errors_and_verdicts() -> None:
    """Its times depend on the machine and the dilation."""
    virtual = MeasuredUtilisation(0.95, 0.100, 1.0, "")
    rows = [
        RealTimeCell(CELLS[0], 222.3, virtual, MeasuredUtilisation(0.93, 0.104, 3.0, "")),
        RealTimeCell(CELLS[3], 23.3, virtual, MeasuredUtilisation(0.90, 0.106, 2.0, "late deadlines")),
    ]

    page = render_real_time_page(rows, "docker", "two cores")

    assert "Measured on two cores." in page
    assert f"divided by {SIZE_DIVISOR:,}" in page
    assert "1 of 2 cells are within 5%" in page
    assert "| +4.0% | 95.0% | 93.0% | 3 | valid |" in page
    assert "| +6.0% | 95.0% | 90.0% | 2 | late deadlines |" in page


def test_the_table_has_a_row_for_every_cell() -> None:
    """A cell that is left out would look like a cell that agrees."""
    assert len(list(format_table([make_row(cell, 0) for cell in CELLS]))) == 2 + len(CELLS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cells", "diloco:7B"], "unknown cell diloco:7B; cells are data_parallel:1B, "),
        (["--cells", "diloco:1B", "--write"], "remove --cells"),
        (["--engine", "local", "--write"], "needs the name of this machine"),
    ],
)
def test_wrong_arguments_are_rejected_before_anything_runs(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped name must not start a search of all cells."""
    assert bench.main(arguments) == bench.EXIT_USAGE
    assert message in capsys.readouterr().err
