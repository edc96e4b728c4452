"""Logs that are empty, cut off, of another version or full of NaN: each is named, and harms nothing else."""

import json
import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from analysis.reading.damage import FileDamage, find_run_file_damage, read_or_report_damage
from analysis.reading.run_folder import RunFolder, TrialFolder
from analysis.reading.run_table import TrialTable
from analysis.report import report
from analysis.report.wording import format_number
from analysis.results.analyse_run import analyse_run
from ensayo.cli import app

MakeRun = Callable[..., RunFolder]
Harm = Callable[[TrialFolder], None]
HARMED = 1  # place of the trial


def edited(trial: TrialFolder, node: str, old: str, new: str, line: int) -> None:
    path = trial.log_path(node)
    lines = path.read_text().splitlines(keepends=True)
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    path.write_text("".join(lines))


def empty(trial: TrialFolder) -> None:
    trial.log_path("worker-1").write_text("")


def cut_in_a_line(trial: TrialFolder) -> None:
    text = trial.log_path("worker-1").read_text().splitlines(keepends=True)
    trial.log_path("worker-1").write_text("".join(text[:2]) + text[2][: len(text[2]) // 2])


def without_its_end(trial: TrialFolder) -> None:
    """A coordinator that was stopped between two lines."""
    lines = trial.log_path("coordinator").read_text().splitlines(keepends=True)
    trial.log_path("coordinator").write_text("".join(line for line in lines if '"run_stop"' not in line))


def other_columns(trial: TrialFolder) -> None:
    edited(trial, "worker-1", '"compute_s"', '"forward_and_backward_s"', line=2)


def rows_too_short(trial: TrialFolder) -> None:
    edited(trial, "worker-1", '"rows": [[0, ', '"rows": [[', line=2)


def words_for_numbers(trial: TrialFolder) -> None:
    edited(trial, "worker-1", '"rows": [[0, ', '"rows": [["first", ', line=2)


def nan_loss(trial: TrialFolder) -> None:
    event = json.loads(trial.log_path("worker-1").read_text().splitlines()[1].removeprefix(":::MLLOG "))
    place = event["value"]["columns"].index("loss")
    edited(trial, "worker-1", repr(event["value"]["rows"][3][place]), "NaN", line=2)


def nan_time(trial: TrialFolder) -> None:
    event = json.loads(trial.log_path("worker-1").read_text().splitlines()[1].removeprefix(":::MLLOG "))
    place = event["value"]["columns"].index("exchange_s")
    edited(trial, "worker-1", repr(event["value"]["rows"][3][place]), "NaN", line=2)


def plan_of_another_version(trial: TrialFolder) -> None:
    plan = json.loads(trial.plan_path.read_text())
    plan["worker_count"] = plan.pop("workers")
    trial.plan_path.write_text(json.dumps(plan))


def schedule_of_another_version(trial: TrialFolder) -> None:
    """Transfers that say nothing of what they do."""
    plan = json.loads(trial.plan_path.read_text())
    trial.plan_path.write_text(json.dumps(plan | {"schedule": {"rounds": [[[0, 1, 0, 1]]]}}))


def target_of_another_version(trial: TrialFolder) -> None:
    """A metric that this version does not know."""
    plan = json.loads(trial.plan_path.read_text())
    trial.plan_path.write_text(json.dumps(plan | {"target": {"metric": "perplexity", "at_most": 20}}))


def prediction_of_another_version(trial: TrialFolder) -> None:
    plan = json.loads(trial.plan_path.read_text())
    plan["predicted"]["wait_s"] = 0.1
    trial.plan_path.write_text(json.dumps(plan))


def plan_cut_off(trial: TrialFolder) -> None:
    trial.plan_path.write_text(trial.plan_path.read_text()[:100])


def status_cut_off(trial: TrialFolder) -> None:
    trial.status_path.write_text(trial.status_path.read_text()[:30])


def without_a_log(trial: TrialFolder) -> None:
    trial.log_path("worker-1").unlink()


def without_logs(trial: TrialFolder) -> None:
    shutil.rmtree(trial.path / "logs")


def without_status(trial: TrialFolder) -> None:
    trial.status_path.unlink()


def without_plan(trial: TrialFolder) -> None:
    trial.plan_path.unlink()


def less(trial: TrialFolder, node: str, key: str, most: int | None = None) -> None:
    """The log without its first lines of a key; every line that is left can be read."""
    lines = trial.log_path(node).read_text().splitlines(keepends=True)
    gone = [line for line in lines if f'"key": "{key}"' in line][:most]
    assert gone
    trial.log_path(node).write_text("".join(line for line in lines if line not in gone))


def a_batch_less(trial: TrialFolder) -> None:
    less(trial, "worker-1", "node_steps", 1)


def without_steps(trial: TrialFolder) -> None:
    less(trial, "worker-1", "node_steps")


def without_steps_or_their_number(trial: TrialFolder) -> None:
    """As workers logged before they counted their steps."""
    less(trial, "worker-1", "node_steps")
    path = trial.log_path("worker-1")
    path.write_text(re.sub(r'"steps": \d+, ', "", path.read_text()))


def without_a_stop(trial: TrialFolder) -> None:
    less(trial, "worker-1", "node_stop")


CASES: dict[str, tuple[Harm, str]] = {
    "empty": (empty, "logs/worker-1.log: empty"),
    "cut": (cut_in_a_line, "logs/worker-1.log:3: cut off in the middle"),
    "other columns": (other_columns, "logs/worker-1.log:2: node_steps has no compute_s: logged by another version"),
    "short rows": (rows_too_short, "logs/worker-1.log:2: node_steps has a row that does not have 15 values"),
    "words": (words_for_numbers, "logs/worker-1.log:2: node_steps has a value that is not a number"),
    "nan loss": (nan_loss, "logs/worker-1.log:2: loss of step 3 is nan: training diverged"),
    "nan time": (nan_time, "logs/worker-1.log:2: exchange_s of step 3 is nan"),
    "other plan": (plan_of_another_version, "plan.json: workers: Field required"),
    "other schedule": (schedule_of_another_version, "plan.json: schedule.rounds.0.0."),
    "other target": (target_of_another_version, "plan.json: target.metric: Input should be"),
    "other prediction": (prediction_of_another_version, "plan.json: predicted.wait_s: Extra inputs are not permitted"),
    "cut plan": (plan_cut_off, "plan.json: the file: Invalid JSON"),
    "no log": (without_a_log, "logs/worker-1.log: missing"),
    "no logs": (without_logs, "logs/coordinator.log: missing"),
    "no status": (without_status, "status.json: missing: how the trial ended is not known"),
    "no plan": (without_plan, "plan.json: missing"),
    "a batch less": (a_batch_less, " steps, but node_stop counts "),
    "no steps": (without_steps, "logs/worker-1.log: node_steps has 0 steps, but node_stop counts "),
    "no steps, uncounted": (without_steps_or_their_number, "logs/worker-1.log: no node_steps event"),
    "no stop": (without_a_stop, "logs/worker-1.log: no node_stop event: the last lines are lost"),
    "cut status": (status_cut_off, "status.json: empty or cut off: how the trial ended is not known"),
}


@pytest.fixture
def run(make_run: MakeRun) -> RunFolder:
    """Ring on two workers, three times."""
    return make_run(strategies=("ring",), workers=(2,), repeats=3, baseline=False)


def read(run: RunFolder) -> tuple[dict[str, Any], str]:
    """What summary.json and the page say, without figures."""
    _, numbers = analyse_run(run, write=True)
    return numbers.as_dict(), report.render_report_page(run, numbers, [])


@pytest.mark.parametrize("case", CASES)
def test_damage_is_told_by_file_and_line_and_harms_no_other_trial(run: RunFolder, case: str) -> None:
    harm, message = CASES[case]
    before = {trial["id"]: trial for trial in read(run)[0]["trials"]}
    harmed = run.trial_folders[HARMED]
    harm(harmed)

    told, page = read(run)

    after = {trial["id"]: trial for trial in told["trials"]}
    name = harmed.path.name
    assert any(each.startswith(f"trials/{name}/") and message in each for each in told["damage"])
    assert message in page
    assert after.pop(name, {"status": "failed"})["status"] in ("failed", "aborted", "missed_target")
    assert after == {key: trial for key, trial in before.items() if key != name}


def test_a_log_of_another_version_is_told_in_one_line(run: RunFolder) -> None:
    """Fourteen lines that differ in a number hide what else is wrong."""
    path = run.trial_folders[HARMED].log_path("worker-1")
    path.write_text(path.read_text().replace('"compute_s"', '"forward_and_backward_s"'))
    batches = path.read_text().count('"node_steps"')
    assert batches > 2

    (told,) = read(run)[0]["damage"]

    assert told.endswith(f"logged by another version (and {batches - 1} more lines)")
    assert "worker-1.log:2: " in told


def test_a_whole_run_has_no_damage(run: RunFolder) -> None:
    told, page = read(run)

    assert told["damage"] == []
    assert "Damaged records" not in page


def test_one_lost_thing_is_told_once(run: RunFolder) -> None:
    a_batch_less(run.trial_folders[HARMED])

    (told,) = read(run)[0]["damage"]

    assert "logs/worker-1.log: " in told


@pytest.mark.parametrize("harm", [cut_in_a_line, without_a_log, without_steps, a_batch_less])
def test_a_damaged_trial_is_in_no_comparison(run: RunFolder, harm: Harm) -> None:
    harm(run.trial_folders[HARMED])

    (curve,) = read(run)[0]["curves"]

    assert [point["runs"] for point in curve["points"]] == [2]


def test_logs_of_a_trial_that_failed_may_be_missing(run: RunFolder) -> None:
    """A node that never started printed nothing: the engine's reason says why, and no file is to blame."""
    harmed = run.trial_folders[HARMED]
    harmed.status_path.write_text(json.dumps({"status": "failed", "reason": "worker-1 did not start"}))
    without_a_log(harmed)

    told, _ = read(run)

    assert told["damage"] == []
    assert told["trials"][HARMED]["status_reason"] == "worker-1 did not start"


@pytest.mark.parametrize(("content", "what"), [(None, "missing"), ("{no", ""), ("nonsense", "")])
@pytest.mark.parametrize("name", ["manifest.json", "scenario.yaml", "resolved.yaml"])
def test_files_of_the_run_are_named_and_cost_no_trial(
    run: RunFolder, name: str, content: str | None, what: str
) -> None:
    file = run.path / name
    file.unlink()
    if content is not None:
        file.write_text(content)

    told, page = read(run)

    (damage,) = told["damage"]
    assert damage.startswith(f"{name}: {what}")
    assert damage in page
    assert [trial["status"] for trial in told["trials"]] == ["success"] * 3


def test_a_scenario_that_was_cut_off_in_what_is_published_is_named(run: RunFolder, thesis: str) -> None:
    """Most cuts leave YAML. Either points are left, whole ones, or the file is damaged."""
    for cut in range(thesis.index("published:") + len("published:"), len(thesis)):
        (run.path / "scenario.yaml").write_text(thesis[:cut])

        named = [each for each in find_run_file_damage(run) if each.file == "scenario.yaml"]

        assert len(named) == (not run.published_results)


@pytest.mark.parametrize("end", ["published:", "strat", "source: report", "points:", "measured: 0.95"])
def test_a_scenario_that_was_cut_off_ends_no_report(run: RunFolder, thesis: str, end: str) -> None:
    (run.path / "scenario.yaml").write_text(thesis[: thesis.index(end, thesis.index("published:")) + len(end)])

    told, page = read(run)

    (damage,) = told["damage"]
    assert damage.startswith("scenario.yaml: ")
    assert damage in page
    assert [trial["status"] for trial in told["trials"]] == ["success"] * 3


@pytest.fixture
def thesis(pytestconfig: pytest.Config) -> str:
    """A scenario that ends with what others published."""
    return (pytestconfig.rootpath / "scenarios" / "thesis.yaml").read_text()


def test_a_model_that_diverged_reached_no_target(run: RunFolder) -> None:
    """What it reached before was not kept: no figure may draw it as trained."""
    nan_loss(run.trial_folders[HARMED])

    trial = read(run)[0]["trials"][HARMED]

    assert trial["status"] == "missed_target"
    assert trial["time_to_target_s"] is None
    assert trial["samples_to_target"] is None


def test_trials_that_have_not_run_are_named(run: RunFolder) -> None:
    """The manifest says which were to run; a folder without a plan ran, and is damaged."""
    manifest = run.path / "manifest.json"
    names = [trial.path.name for trial in run.trial_folders]
    planned = [*names, "003-ring-w2-r3", "004-ring-w2-r4"]
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"trials": planned}))
    without_plan(run.trial_folders[HARMED])

    told, page = read(run)

    assert told["not_run"] == planned[3:]
    assert "2 of 5 trials have not run" in page
    assert "<span>2 of 5 trials</span>" in page
    assert "<li>003-ring-w2-r3</li>" in page
    assert "1 of 5 trials is excluded from comparisons: 1 unreadable" in page


def test_tables_made_from_logs_are_made_again(run: RunFolder) -> None:
    """steps.csv and result.txt are what logs say, whatever happened to them meanwhile."""
    read(run)
    trial = run.trial_folders[HARMED]
    whole = trial.step_csv_path.read_bytes()
    trial.step_csv_path.write_bytes(whole[: len(whole) // 2])

    told, _ = read(run)

    assert trial.step_csv_path.read_bytes() == whole
    assert told["damage"] == []


def test_a_coordinator_without_an_end_aborts_its_trial_alone(run: RunFolder) -> None:
    without_its_end(run.trial_folders[HARMED])

    told = [(trial["status"], trial["status_reason"]) for trial in read(run)[0]["trials"]]

    assert told == [("success", ""), ("aborted", "the coordinator logged no run_stop"), ("success", "")]


def test_every_trial_may_be_damaged(run: RunFolder) -> None:
    """The whole report, by its command: the terminal names what the page names, and no figure is left to draw."""
    for trial in run.trial_folders:
        plan_cut_off(trial)

    done = CliRunner().invoke(app, ["report", str(run.path)])

    page = run.report_path.read_text()
    assert done.exit_code == 0
    assert done.stderr.count("Invalid JSON") == page.count("Invalid JSON") == 3
    assert "No trial finished" in page


def test_what_a_reader_does_not_understand_is_told_with_its_place(run: RunFolder) -> None:
    """Nobody finds out what was odd by "another version?" alone."""
    found = read_or_report_damage(run.trial_folders[0], lambda _: format_number("no number"))  # type: ignore[arg-type]

    assert isinstance(found, FileDamage)
    assert re.search(r"TypeError at analysis/report/wording\.py:\d+: ", found.problem)


def test_a_mistake_of_ours_is_no_damage(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the report, with the trial's name; as damage it would cost a trial and never be found."""

    def mistaken(trial: TrialTable) -> None:
        raise ValueError(trial.plan.label)

    monkeypatch.setattr("analysis.checks.fidelity.run_trial_checks", mistaken)

    with pytest.raises(ValueError, match="ring") as raised:
        read(run)

    assert raised.value.__notes__ == [f"while analysing {run.trial_folders[0].path}"]


def in_a_line(node: str, key: str, place: str, odd: Any) -> Harm:
    """The last line of a key with another value at a place of dotted names."""

    def harm(trial: TrialFolder) -> None:
        lines = trial.log_path(node).read_text().splitlines()
        row = max(row for row, line in enumerate(lines) if f'"key": "{key}"' in line)
        event = json.loads(lines[row].removeprefix(":::MLLOG "))
        put(event, place, odd)
        lines[row] = ":::MLLOG " + json.dumps(event)
        trial.log_path(node).write_text("\n".join(lines) + "\n")

    return harm


def in_status(place: str, odd: Any) -> Harm:
    """status.json with another value at a place of dotted names."""

    def harm(trial: TrialFolder) -> None:
        status = json.loads(trial.status_path.read_text())
        put(status, place, odd)
        trial.status_path.write_text(json.dumps(status))

    return harm


def put(within: dict[str, Any], place: str, odd: Any) -> None:
    *above, last = place.split(".")
    for name in above:
        within = within[name]
    assert last in within
    within[last] = odd


ODD: dict[str, tuple[Harm, str]] = {
    "bytes in words": (
        in_a_line("worker-1", "node_stop", "value.payload_bytes_sent", "many"),
        "logs: cannot be interpreted",
    ),
    "deadlines in a list": (in_a_line("worker-1", "node_stop", "value.deadlines", []), "logs: cannot be interpreted"),
    "accuracy in words": (
        in_a_line("coordinator", "eval_metrics", "value.accuracy", "good"),
        "logs: cannot be interpreted",
    ),
    "samples in an object": (
        in_a_line("coordinator", "eval_metrics", "metadata.samples_count", {}),
        "logs: cannot be interpreted",
    ),
    "a hash in an object": (in_a_line("worker-1", "node_hash", "value", {"sha": "ab"}), "logs: cannot be interpreted"),
    "a step in words": (in_a_line("worker-1", "node_hash", "metadata.step", "last"), "logs: cannot be interpreted"),
    "a rate in words": (
        in_status("shaping.worker-1.read_back_uplink_bps", "fast"),
        "status.json: shaping.worker-1.read_back_uplink_bps: Input should be a valid number",
    ),
    "a rate in quotation marks": (
        in_status("shaping.worker-1.uplink_bps", "1000"),
        "status.json: shaping.worker-1.uplink_bps: Input should be a valid number",
    ),
    "a rung in a list": (in_status("shaping.worker-1.rung", []), "status.json: shaping.worker-1.rung: Input should be"),
    "shaping in a list": (in_status("shaping", []), "status.json: shaping: Input should be"),
    "exit codes in words": (in_status("exit_codes", "none"), "status.json: exit_codes: Input should be"),
    "a busy host in words": (in_status("host.cpu_busy", "very"), "status.json: host.cpu_busy: Input should be"),
}


@pytest.mark.parametrize("case", ODD)
def test_a_value_of_another_kind_is_damage_before_anybody_computes_with_it(run: RunFolder, case: str) -> None:
    """What is not found when a record is read would end the report as a mistake of ours."""
    harm, message = ODD[case]
    harm(run.trial_folders[HARMED])

    told, page = read(run)

    (damage,) = told["damage"]
    assert damage.startswith(f"trials/{run.trial_folders[HARMED].path.name}/{message}")
    assert "Damaged records" in page
    assert len(told["trials"]) == 2


def test_a_status_of_another_version_is_read(run: RunFolder) -> None:
    """Keys may be missing or unknown, and a number that could not be measured is null."""
    node = {"rates_enforced_by": "fluid", "uplink_bps": None, "achieved_pipes_bps": {"rack-0 up": None}}
    status = {"status": "success", "engine": "cluster", "shaping": {"worker-1": node}, "exit_codes": None, "moon": 1}
    run.trial_folders[HARMED].status_path.write_text(json.dumps(status))

    told, _ = read(run)

    assert told["damage"] == []
    assert [trial["status"] for trial in told["trials"]] == ["success"] * 3


def test_samples_that_nobody_counted_are_unknown(run: RunFolder) -> None:
    """Logs that are not ours need not say at which sample they were evaluated."""
    in_a_line("coordinator", "eval_metrics", "metadata.samples_count", None)(run.trial_folders[HARMED])

    trial = read(run)[0]["trials"][HARMED]

    assert trial["time_to_target_s"] is not None
    assert trial["samples_to_target"] is None
