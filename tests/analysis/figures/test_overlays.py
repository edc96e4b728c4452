"""Comparison of runs: charts and page contain exactly the runs that were named, in the same terms."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.comparison import run_changes as compare
from analysis.comparison.compared_curves import ComparedRunsAndCurves
from analysis.comparison.curves import (
    ComparedRun,
    collect_speedup_curves,
    mlperf_scaling_series,
    read_runs,
    run_letter_of_index,
)
from analysis.comparison.differing_settings import differing_settings
from analysis.comparison.overlay_titles import format_final_loss_title
from analysis.comparison.overlays import (
    draw_efficiency_overlay,
    draw_loss_overlay,
    draw_speedup_overlay,
    draw_time_to_target_overlay,
)
from analysis.comparison.page import write_comparison_page
from analysis.reading.run_folder import RunFolder
from analysis.results.analyse_run import analyse_run
from ensayo import cli
from services.schema.errors import UserError

RunWriter = Callable[..., RunFolder]


@pytest.fixture(scope="module")
def runs(run_writer: RunWriter, tmp_path_factory: pytest.TempPathFactory) -> list[ComparedRun]:
    """Run A with a ring and a parameter server, run B with a ring and two repeats."""
    folder = tmp_path_factory.mktemp("runs")
    first = run_writer(folder / "a", strategies=("ring", "ps_bsp"), workers=(1, 2))
    second = run_writer(folder / "b", strategies=("ring",), workers=(1, 2), repeats=2)
    return read_runs([first.path, second.path])


@pytest.fixture(scope="module")
def run_to_eight_workers(run_writer: RunWriter, tmp_path_factory: pytest.TempPathFactory) -> ComparedRun:
    """Run C: a ring on up to eight workers."""
    return analysed_run("C", run_writer(tmp_path_factory.mktemp("wide"), strategies=("ring",), workers=(1, 2, 8)))


@pytest.fixture(scope="module")
def run_of_one_size(run_writer: RunWriter, tmp_path_factory: pytest.TempPathFactory) -> ComparedRun:
    """Run D: a ring on two workers only."""
    return analysed_run("D", run_writer(tmp_path_factory.mktemp("single"), strategies=("ring",), workers=(2,)))


@pytest.fixture(scope="module")
def run_with_other_links(run_writer: RunWriter, tmp_path_factory: pytest.TempPathFactory) -> ComparedRun:
    """Run C: a ring with other link rates and an easier target."""
    folder = run_writer(tmp_path_factory.mktemp("other"), strategies=("ring",), workers=(1, 2))
    for trial in folder.trial_folders:
        plan = trial.plan_path.read_text().replace('"at_least": 0.95', '"at_least": 0.9')
        trial.plan_path.write_text(plan.replace('"uplink_bps": 100000000.0', '"uplink_bps": 50000000.0'))
    return analysed_run("C", folder)


def analysed_run(letter: str, folder: RunFolder) -> ComparedRun:
    return ComparedRun(letter, *analyse_run(folder))


def test_every_curve_of_every_run_is_a_line(runs: list[ComparedRun]) -> None:
    lines = collect_speedup_curves(runs, mlperf_scaling_series(["bert"]))

    assert [line.name for line in lines] == ["A ring", "A ps_bsp", "B ring", "public: BERT"]
    curve = runs[1].summary.curves[0]
    assert [size.factors.speedup for size in lines[2].points] == [point.speedup for point in curve.points]
    assert all(line.points[0].relative_workers == 1 for line in lines)


def test_efficiency_is_the_product_of_its_factors_for_runs_and_public_series(runs: list[ComparedRun]) -> None:
    drawing = draw_efficiency_overlay(
        ComparedRunsAndCurves(runs, collect_speedup_curves(runs, mlperf_scaling_series(["bert"])))
    )

    assert drawing is not None
    rows = drawing.data.dropna(subset=["statistical_efficiency"])
    assert {"A ring", "public: BERT"} <= set(rows["line"])
    product = rows["hardware_efficiency"] * rows["statistical_efficiency"]
    assert product.to_numpy() == pytest.approx(rows["efficiency"].to_numpy())


def test_hardware_efficiency_agrees_with_the_measured_gain_in_rate(runs: list[ComparedRun]) -> None:
    """Hardware efficiency is derived from E', so the product proves nothing; rates are measured independently."""
    curves = [curve for run in runs for curve in run.summary.curves if curve.of == "time_to_target"]
    points = [(curve.base, point) for curve in curves for point in curve.points if point.workers > curve.base.workers]

    assert len(points) == 3
    for base, point in points:
        assert point.hardware_efficiency == pytest.approx(point.throughput_efficiency(base), rel=0.03)
        assert abs(point.throughput_efficiency(base) - 1) > 0.03  # and not of something trivial


def test_titles_rank_runs_and_not_public_series(runs: list[ComparedRun]) -> None:
    """A system with three thousand accelerators has a higher speedup than any emulated run."""
    drawing = draw_speedup_overlay(
        ComparedRunsAndCurves(runs, collect_speedup_curves(runs, mlperf_scaling_series(["bert"])))
    )

    assert drawing is not None
    assert "public" not in drawing.title
    assert "4 accelerators" in drawing.caption


def test_a_title_names_a_public_series_with_a_higher_speedup_than_the_runs(runs: list[ComparedRun]) -> None:
    """The words "the largest speedup" would contradict a chart with a line that is ten times higher."""
    drawing = draw_speedup_overlay(
        ComparedRunsAndCurves(runs, collect_speedup_curves(runs, mlperf_scaling_series(["bert"])))
    )

    assert drawing is not None
    assert re.fullmatch(
        r"Of the runs, .* reaches the largest mean speedup: .*; BERT reaches a speedup of [\d.]+ on 3,472",
        drawing.title,
    )


def test_efficiency_is_ranked_at_a_size_that_all_runs_have(
    runs: list[ComparedRun], run_to_eight_workers: ComparedRun
) -> None:
    """A run on eight workers keeps less there than others on two, and may still be the best on two."""
    drawing = draw_efficiency_overlay(
        ComparedRunsAndCurves([*runs, run_to_eight_workers], collect_speedup_curves([*runs, run_to_eight_workers]))
    )

    assert drawing is not None
    two = drawing.data[drawing.data["workers"] == 2]
    best = two["line"][two["efficiency"] > two["efficiency"].max() - 1e-9]
    assert set(best) == {"A ring", "C ring"}  # equal there, although run C goes on to eight
    assert drawing.title.startswith(
        "At 2 times the workers of the base, A ring and C ring keep the highest mean efficiency"
    )


def test_equal_losses_share_the_lowest_place(runs: list[ComparedRun]) -> None:
    """Synchronous replicas end with the same loss, whichever node sums the gradients."""
    names = ("A ring on 2", "A ps_bsp on 2", "B ps_asp on 2")
    overlay = ComparedRunsAndCurves(runs, collect_speedup_curves(runs))

    assert format_final_loss_title(overlay, dict(zip(names, (0.25, 0.25, 0.5), strict=True))) == (
        "Lowest loss at the end: 0.250, shared by A ring on 2 and A ps_bsp on 2"
    )
    assert format_final_loss_title(overlay, dict(zip(names, (0.25, 0.2, 0.5), strict=True))) == (
        "A ps_bsp on 2 ends with the lowest loss, 0.200"
    )


def test_a_run_compared_with_itself_shares_the_first_place(runs: list[ComparedRun]) -> None:
    """Otherwise the first of two equal runs would be called the better one."""
    same_run_twice = [runs[0], replace(runs[0], letter="B")]
    overlay = ComparedRunsAndCurves(same_run_twice, collect_speedup_curves(same_run_twice))

    for drawing, verb in (
        (draw_speedup_overlay(overlay), "reach the largest mean speedup"),
        (draw_efficiency_overlay(overlay), "keep the highest mean efficiency"),
    ):
        assert drawing is not None
        assert re.search(rf"A (\w+) and B \1 {verb}", drawing.title)


def test_trials_of_only_one_run_are_listed_with_that_run_and_the_reason(runs: list[ComparedRun]) -> None:
    """The trials of ring may be among those of the other run that cannot be read."""
    summary = runs[0].summary
    ring_trials = [trial for trial in summary.trials if trial.strategy == "ring"]
    other_trials = [trial for trial in summary.trials if trial.strategy != "ring"]
    damaged = replace(
        summary, trials=other_trials, damage=[f"trials/{trial.id}/plan.json: missing" for trial in ring_trials]
    )
    listed = ", ".join(f"ring on {workers}" for workers in ("1 worker", "2 workers"))

    assert compare.format_run_changes(summary, replace(summary, trials=other_trials)).endswith(
        f'\nonly in "before": {listed}'
    )
    assert compare.format_run_changes(damaged, summary).endswith(
        f'\nonly in "after": {listed}; {len(ring_trials)} trials of the other run can\'t be read'
    )


def test_times_and_losses_of_different_tasks_or_clusters_are_not_ranked(
    runs: list[ComparedRun], run_with_other_links: ComparedRun
) -> None:
    compared_runs = [runs[0], run_with_other_links]
    overlay = ComparedRunsAndCurves(compared_runs, collect_speedup_curves(compared_runs))

    titles = [
        drawing.title for drawing in (draw_time_to_target_overlay(overlay), draw_loss_overlay(overlay)) if drawing
    ]
    assert len(titles) == 2
    assert all(title.startswith("Runs differ in target and links, so they are not ranked") for title in titles)
    assert all("A " in title and "C " in title for title in titles)
    assert not differing_settings(runs)


def test_a_run_of_one_size_is_named_in_the_caption(runs: list[ComparedRun], run_of_one_size: ComparedRun) -> None:
    drawing = draw_speedup_overlay(
        ComparedRunsAndCurves([*runs, run_of_one_size], collect_speedup_curves([*runs, run_of_one_size]))
    )

    assert drawing is not None
    assert "a single size: D ring" in drawing.caption


def test_the_legend_shows_the_line_style_of_each_run(runs: list[ComparedRun]) -> None:
    for drawing in (
        draw_speedup_overlay(ComparedRunsAndCurves(runs, collect_speedup_curves(runs))),
        draw_loss_overlay(ComparedRunsAndCurves(runs, collect_speedup_curves(runs))),
    ):
        assert drawing is not None
        legend_entries = zip(drawing.figure.legends[0].get_texts(), drawing.figure.legends[0].get_lines(), strict=True)
        assert {(text.get_text()[0], str(line.get_linestyle())) for text, line in legend_entries} == {
            ("A", "-"),
            ("B", "--"),
        }


def test_rows_compare_the_seeds_that_both_runs_have(runs: list[ComparedRun]) -> None:
    """Comparing one run of a seed with two runs of different seeds would take luck for a change."""
    summary = runs[1].summary
    first_repeat = replace(summary, trials=[trial for trial in summary.trials if trial.repeat == 0])

    cells = [
        dict(zip(("ratio", "repeats"), (row[4], row[8]), strict=True))
        for row in compare.trial_group_change_rows(summary, first_repeat)
    ]
    assert cells
    assert all(cell == {"ratio": "1.00", "repeats": "1 shared of 2, 1"} for cell in cells)


def test_runs_with_nothing_in_common_give_a_message_instead_of_an_empty_table(runs: list[ComparedRun]) -> None:
    summary = runs[0].summary
    ring, server = (
        replace(summary, trials=[trial for trial in summary.trials if trial.strategy == name])
        for name in ("ring", "ps_bsp")
    )

    printed = compare.format_run_changes(ring, server)
    assert "nothing in common" in printed
    assert "step ms" not in printed


def test_every_later_run_is_compared_with_the_first(
    runs: list[ComparedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [str(run.table.folder.path) for run in (runs[0], runs[1], runs[0])]
    monkeypatch.setattr("sys.argv", ["ensayo", "compare", *folders, "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as exited:
        cli.main()

    assert exited.value.code == 0
    assert capsys.readouterr().out.count("before: ") == 2
    assert "From A to B" in (page := (tmp_path / "report.html").read_text())
    assert "From A to C" in page


def test_times_of_public_series_are_not_drawn(runs: list[ComparedRun]) -> None:
    drawing = draw_time_to_target_overlay(
        ComparedRunsAndCurves(runs, collect_speedup_curves(runs, mlperf_scaling_series(["bert"])))
    )

    assert drawing is not None
    assert set(drawing.data["line"]) == {"A ring", "A ps_bsp", "B ring"}


def test_losses_are_those_of_the_largest_number_of_workers(runs: list[ComparedRun]) -> None:
    drawing = draw_loss_overlay(ComparedRunsAndCurves(runs, collect_speedup_curves(runs)))

    assert drawing is not None
    assert {"A ring on 2", "A ps_bsp on 2", "B ring on 2"} <= set(drawing.data["name"])
    assert not any(name.endswith("ring on 1") for name in drawing.data["name"])


def test_an_unknown_public_series_is_rejected_with_the_allowed_names() -> None:
    with pytest.raises(UserError, match=r"--mlperf resnet: no such series; allowed are .*bert"):
        mlperf_scaling_series(["resnet"])


def test_the_page_loads_nothing_external_and_its_links_lead_to_files(runs: list[ComparedRun], tmp_path: Path) -> None:
    page = write_comparison_page(runs, mlperf_scaling_series(["bert"]), tmp_path)

    text = page.read_text()
    links = [link for link in re.findall(r'<a href="([^"]+)"', text) if not link.startswith("#")]
    assert "<script" not in text
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', text)
    assert text.count("<svg") == 4
    assert all((tmp_path / link).exists() for link in links)
    assert json.loads((tmp_path / "figures" / "speedup.json").read_text())["rows"]
    assert runs[0].summary.run in text


def test_the_same_runs_give_the_same_page(runs: list[ComparedRun], tmp_path: Path) -> None:
    first, second = (write_comparison_page(runs, [], tmp_path / name).read_bytes() for name in ("a", "b"))

    assert first == second


def test_every_run_has_a_letter_for_any_number_of_runs() -> None:
    assert [run_letter_of_index(index) for index in (0, 25, 26, 51, 52, 701, 702)] == [
        "A",
        "Z",
        "AA",
        "AZ",
        "BA",
        "ZZ",
        "AAA",
    ]
