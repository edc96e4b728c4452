"""The kill matrix: its cells, what counts as an end by the policy, the phases of a kill, and its page."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.faults import bench, cell_trial
from benchmarks.faults.cell_result import SAMPLE_BUDGET, CellResult, find_defects
from benchmarks.faults.cell_trial import measure_cell
from benchmarks.faults.cells import CELLS, PHASES, ROLES, STRATEGIES, MatrixCell
from benchmarks.faults.phases import PhasePeriod, PhaseWatcher
from benchmarks.faults.results_page import (
    RESULTS_PAGE,
    format_defects,
    format_matrix,
    format_page,
    read_results,
)
from benchmarks.fidelity.provenance import MeasurementOrigin
from benchmarks.fidelity.training import SilentObserver
from compose.calibration.capacity import HostFingerprint
from compose.engines import create_engine
from compose.runs.clean import remove_leftovers
from compose.scenario_files.load import load_scenario
from services.cluster.addresses import DummyAddresses
from services.plan import TrainingPlan, make_plan
from services.plan.lost_nodes import tolerates_lost_node
from services.runtime.run_log import LOG_LINE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = HostFingerprint(cpu="a processor", cores=2, kernel="6.1", engine="27.0")
ORIGIN = MeasurementOrigin(commit="abc1234", date="2026-11-27T01:00+00:00", host=HOST)
GOES_ON, FAILS = CELLS["ring:restore:worker:compute"], CELLS["ring:abort:worker:compute"]


def result_of(cell: MatrixCell, **values: Any) -> CellResult:
    """Return a result that meets the policy of a cell, apart from the given values."""
    met = {"was_killed_in_phase": True, "kill_offset_s": 0.01, "detection_s": 0.0, "end_s": 3.25}
    if cell.must_go_on:
        met |= {"status": "success", "samples": SAMPLE_BUDGET}
    else:
        met |= {"status": "failed", "reason": f"{cell.node_name} ended with exit code 137: killed by SIGKILL"}
    return CellResult(**{"cell": cell.name, "origin": ORIGIN, **met, **values})


def plan_of(cell: MatrixCell) -> TrainingPlan:
    (trial,) = load_scenario(cell.make_document()).trials()
    plan = make_plan(trial, "test", "docker", DummyAddresses())
    assert isinstance(plan, TrainingPlan)
    return plan


def test_every_role_phase_and_strategy_has_cells() -> None:
    """A combination that is left out could be the one that hangs; only those that do not exist are missing."""
    assert {cell.strategy.name for cell in CELLS.values()} == {strategy.name for strategy in STRATEGIES}
    for strategy in STRATEGIES:
        phases = {cell.phase for cell in CELLS.values() if cell.strategy == strategy}
        missing = set(PHASES) - phases
        assert missing <= {"switch", "checkpoint"}
        for role in strategy.roles:
            assert {cell.phase for cell in CELLS.values() if (cell.strategy, cell.role) == (strategy, role)} == phases
        has_servers = any(
            node.name == "server-0" for node in plan_of(CELLS[f"{strategy.name}:abort:worker:gate"]).nodes
        )
        assert set(strategy.roles) == set(ROLES) - (set() if has_servers else {"server"})


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_the_strongest_allowed_policy_is_measured(strategy: Any) -> None:
    """Validation decides which policies a strategy allows: restore is stronger than continue."""
    cell = CELLS[f"{strategy.name}:{strategy.strongest_policy}:worker:compute"]
    document = cell.make_document()

    load_scenario(document)
    for stronger in {"abort": ["continue", "restore"], "continue": ["restore"]}.get(strategy.strongest_policy, []):
        checkpoint = {"checkpoint": {"steps": 2}} if stronger == "restore" else {}
        recovery = {**document["recovery"], "on_failure": stronger, **checkpoint}
        with pytest.raises(Exception, match=rf"can't use on_failure: {stronger}"):
            load_scenario(document | {"recovery": recovery})


def test_what_must_go_on_agrees_with_the_policy_of_the_product_during_training() -> None:
    """The table of expectations is written apart from the code that it checks; both must describe one policy."""
    plans: dict[tuple[str, str], TrainingPlan] = {}  # the phase of a kill does not matter here
    for cell in CELLS.values():
        if cell.phase != "gate":
            key = (cell.strategy.name, cell.policy)
            plans[key] = plans.get(key) or plan_of(cell)
            assert cell.must_go_on == tolerates_lost_node(plans[key], cell.node_name), cell.name


@pytest.mark.parametrize("cell", [GOES_ON, FAILS, CELLS["ps_asp:continue:server:exchange"]], ids=lambda cell: cell.name)
def test_a_cell_that_ends_by_its_policy_has_no_defect(cell: MatrixCell) -> None:
    assert [*find_defects(cell, result_of(cell))] == []


@pytest.mark.parametrize(
    ("cell", "values", "defect"),
    [
        (GOES_ON, {"status": "failed", "reason": "lost"}, "the trial failed: lost"),
        (GOES_ON, {"samples": SAMPLE_BUDGET + 1}, f"{SAMPLE_BUDGET + 1} samples were counted of a budget"),
        (GOES_ON, {"samples": None}, "None samples were counted"),
        (GOES_ON, {"end_s": 10.01}, "10.0 s from the detection on, more than 10 s"),
        (GOES_ON, {"end_s": None}, "no end of the recovery was found"),
        (GOES_ON, {"was_killed_in_phase": False}, "worker-1 was not killed in this phase"),
        (FAILS, {"status": "success"}, "the trial ended with success, although worker-1 was lost"),
        (FAILS, {"reason": "worker-0 ended with exit code 4"}, "the reason does not name worker-1: worker-0 ended"),
        (FAILS, {"disturbance": "no echo"}, "the trial counts as disturbed by the host: no echo"),
        (FAILS, {"end_s": 12.0}, "12.0 s from the detection on"),
        (FAILS, {"is_hanging": True}, "the trial did not end"),
    ],
)
def test_each_deviation_from_the_policy_is_a_defect(cell: MatrixCell, values: dict[str, Any], defect: str) -> None:
    """A matrix in which no cell can fail shows nothing."""
    (found,) = find_defects(cell, result_of(cell, **values))

    assert found.startswith(defect)


def test_asynchronous_training_may_use_up_to_one_batch_more() -> None:
    """Workers do not wait for each other, so the last steps of several of them may overlap."""
    cell = CELLS["ps_asp:continue:worker:compute"]

    assert [*find_defects(cell, result_of(cell, samples=SAMPLE_BUDGET + 48))] == []
    assert any(find_defects(cell, result_of(cell, samples=SAMPLE_BUDGET + 49)))


def write_log(folder: Path, *events: tuple[float, str, Any]) -> None:
    """Write a log of the coordinator: time in seconds, key and value of each event."""
    (folder / "logs").mkdir()
    lines = (
        f"{LOG_LINE_PREFIX}{json.dumps({'time_ms': time_s * 1e3, 'key': key, 'value': value, 'metadata': {}})}\n"
        for time_s, key, value in events
    )
    (folder / "logs" / "coordinator.log").write_text("".join(lines))


TRIAL_EVENTS = (
    (10.0, "init_start", None),
    (12.0, "membership", {"node": "worker-1", "event": "joined"}),
    (13.0, "run_start", None),
    (14.0, "event_due", {"number": 0, "step": 3}),
    (15.0, "eval_start", None),
    (15.5, "eval_stop", None),
    (16.0, "switch_prepared", None),
    (16.2, "switch_committed", None),
    (17.0, "membership", {"node": "worker-1", "event": "left"}),
)


@pytest.mark.parametrize(
    ("phase", "begin_s", "end_s"),
    [
        ("gate", 12.0, 13.0),
        ("compute", 14.0, 14.08),
        ("exchange", 14.08, 14.1545),
        ("evaluation", 15.0, 15.5),
        ("switch", 16.0, 16.2),
        ("teardown", 17.0, None),
    ],
)
def test_phases_are_found_in_the_log_of_the_coordinator(
    tmp_path: Path, phase: str, begin_s: float, end_s: float | None
) -> None:
    cell = CELLS[f"switch:abort:worker:{phase}"]
    write_log(tmp_path, *TRIAL_EVENTS)
    watcher = PhaseWatcher(cell, plan_of(cell), tmp_path)

    assert watcher.wait_for_phase(lambda: False)
    period = watcher.find_period()
    assert period is not None
    assert period.begin_s == pytest.approx(begin_s)
    assert period.end_s == (end_s if end_s is None else pytest.approx(end_s, abs=1e-3))


def test_the_begin_of_a_checkpoint_is_seen_in_the_trial_folder(tmp_path: Path) -> None:
    cell = CELLS["ring:abort:worker:checkpoint"]
    write_log(tmp_path, *TRIAL_EVENTS)
    watcher = PhaseWatcher(cell, plan_of(cell), tmp_path)
    looks: Iterator[bool] = iter([False, False, True])

    assert not watcher.wait_for_phase(lambda: next(looks))
    (tmp_path / "checkpoints" / "step-00000002").mkdir(parents=True)
    before_s = watcher.now_s()
    assert watcher.wait_for_phase(lambda: False)
    period = watcher.find_period()
    assert period is not None
    assert before_s <= period.begin_s <= watcher.now_s()


def test_a_kill_counts_only_if_the_node_has_ended_in_the_phase() -> None:
    """A node ends some milliseconds after the request; then the phase may be over."""
    period = PhasePeriod(begin_s=5.0, end_s=6.0)

    assert period.contains_death(5.0)
    assert period.contains_death(5.97)
    assert not period.contains_death(5.99)
    assert not period.contains_death(4.99)
    assert PhasePeriod(5.0, None).contains_death(99.0)


def test_the_page_shows_cells_that_were_not_run_and_not_met() -> None:
    """A page without them would look complete, or better than it is."""
    results = {
        each.cell: each
        for each in (
            result_of(GOES_ON),
            result_of(FAILS, end_s=12.0, reason="a | b"),
            result_of(CELLS["switch:abort:server:switch"]),
        )
    }

    page = format_page(results, "my machine", ORIGIN)

    assert "| ring | restore | worker | not run | goes on, 3.2 s | not run | not run | – | not run | not run |" in page
    assert "| ring | abort | worker | not run | fails, 12.0 s (not met) |" in page
    assert "- 2 of 3 cells that were run ended by their policy within 10 virtual seconds." in page
    assert f"- {len(CELLS) - 3} of {len(CELLS)} cells were not run." in page
    assert "- `ring:abort:worker:compute`: the reason does not name worker-1: a | b; 12.0 s from the detection" in page
    assert "| 1 | 0.0 | a / b |" in page
    assert "my machine (a processor, 2 cores, Linux 6.1, Docker 27.0)" in page


def test_a_trial_that_hangs_is_shown_as_such() -> None:
    results = {FAILS.name: CellResult(cell=FAILS.name, origin=ORIGIN, status="hangs", is_hanging=True)}

    assert "hangs (not met)" in "".join(format_matrix(results))
    assert "- `ring:abort:worker:compute`: the trial did not end" in [*format_defects(results)]


def test_an_interrupted_measurement_goes_on_with_the_missing_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole matrix takes an hour. Results of another commit or host do not count."""
    measured: list[str] = []

    def measure(cell: MatrixCell, *_: object) -> CellResult:
        if len(measured) == 2:
            measured.clear()
            raise KeyboardInterrupt
        measured.append(cell.name)
        return result_of(cell)

    class InstantEngine:
        name = "docker"
        missing_software = staticmethod(lambda: None)
        prepare = staticmethod(lambda _: None)

    monkeypatch.setattr(bench, "measure_cell", measure)
    monkeypatch.setattr(bench, "create_engine", lambda _: InstantEngine())
    monkeypatch.setattr(bench, "current_origin", lambda _: ORIGIN)
    monkeypatch.setattr(bench, "RESULTS_PAGE", page := tmp_path / "faults.md")
    state = tmp_path / "faults.json"
    arguments = ["--cells", "ring:restore:worker:*", "--state", str(state), "--write", "test machine"]

    assert bench.main(arguments) == bench.EXIT_INTERRUPTED
    assert len(read_results(state, ORIGIN)) == 2
    assert not page.exists()  # a changed page is an uncommitted change, with which nothing can be measured
    assert bench.main([*arguments[:1], "ring:restore:worker:[gc]*", *arguments[2:]]) == 0
    assert "test machine" in page.read_text()
    assert measured == ["ring:restore:worker:checkpoint"]
    assert "[3/3] ring:restore:worker:checkpoint: goes on, 3.2 s" in capsys.readouterr().err
    assert read_results(state, ORIGIN.model_copy(update={"commit": "1234abc"})) == {}


def test_a_cell_that_is_not_met_fails_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "measure_cell", lambda cell, *_: result_of(cell, end_s=11.0))

    assert bench.main(["--engine", "local", "--cells", GOES_ON.name]) == bench.EXIT_NOT_MET


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--strategies", "rings"], "unknown strategy rings; strategies are ring, ps_bsp, "),
        (["--cells", "ring:*:server:*"], "no cell matches ring:*:server:*; a cell is for example ring:abort:"),
        (["--engine", "local", "--write", "mine"], "--write needs the name of this machine, and the engine docker"),
        (["--write", ""], "--write needs the name of this machine"),
    ],
)
def test_wrong_arguments_are_rejected_before_anything_runs(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(arguments) == bench.EXIT_USAGE
    assert message in capsys.readouterr().err


def test_the_results_page_has_a_row_for_each_strategy_policy_and_role() -> None:
    """A row that is left out could be one that hangs."""
    if not RESULTS_PAGE.exists():
        pytest.skip("the matrix has not been measured yet")
    page = RESULTS_PAGE.read_text(encoding="utf-8")

    for cell in CELLS.values():
        row = re.search(rf"^\| {cell.strategy.name} \| {cell.policy} \| {cell.role} \|(.*)\|$", page, re.MULTILINE)
        assert row is not None, cell.name
        text = row.group(1).split("|")[PHASES.index(cell.phase)].strip()
        assert re.fullmatch(r"not run|hangs \(not met\)|(goes on|fails)(, [\d.]+ s)?( \(not met\))?", text), cell.name


@pytest.mark.serial
def test_a_trial_that_reaches_the_wall_limit_is_ended_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one cell that hangs would end the whole measurement."""
    run_names: list[str] = []

    def remove_and_record(run_name: str) -> list[str]:
        run_names.append(run_name)
        return remove_leftovers(run_name)

    monkeypatch.setattr(cell_trial, "WALL_LIMIT_S", 3.0)  # before the nodes have started
    monkeypatch.setattr(cell_trial, "remove_leftovers", remove_and_record)

    result = measure_cell(GOES_ON, create_engine("local"), ORIGIN)

    assert result.is_hanging
    assert [*find_defects(GOES_ON, result)] == ["the trial did not end"]
    assert result.wall_s < 60
    (run_name,) = run_names
    assert remove_leftovers(run_name) == []


@pytest.mark.serial
@pytest.mark.parametrize("name", ["ps_asp:continue:worker:exchange", "ring:abort:coordinator:evaluation"])
def test_a_process_that_is_killed_in_its_phase_ends_by_the_policy(name: str) -> None:
    result = measure_cell(CELLS[name], create_engine("local"), ORIGIN)

    assert [defect for defect in find_defects(CELLS[name], result) if " s from the detection" not in defect] == []


@pytest.mark.docker
@pytest.mark.usefixtures("docker_engine")
@pytest.mark.parametrize("name", ["ring:restore:worker:gate", "ps_bsp:restore:server:checkpoint"])
def test_a_container_that_is_killed_in_its_phase_ends_by_the_policy(name: str) -> None:
    """A worker before training, whose end breaks a probe of its link; a server with files of a checkpoint unwritten."""
    engine = create_engine("docker")
    engine.prepare(SilentObserver())

    result = measure_cell(CELLS[name], engine, ORIGIN)

    assert [defect for defect in find_defects(CELLS[name], result) if " s from the detection" not in defect] == []
