"""Damaged logs and records: every damaged file is reported by name, and no other trial is affected."""

import json
import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from analysis.reading.damage import FileProblem, find_run_file_damage, read_trial_or_damage
from analysis.reading.run_folder import RunFolder, TrialFolder
from analysis.reading.run_table import TrialLogTables
from analysis.report import report
from analysis.report.wording import format_number
from analysis.results.analyse_run import analyse_run
from ensayo.cli import app

MakeRun = Callable[..., RunFolder]
DamageTrial = Callable[[TrialFolder], None]
DAMAGED_INDEX = 1  # index of the trial


def replace_in_log(trial: TrialFolder, node: str, old: str, new: str, line: int) -> None:
    path = trial.log_path(node)
    lines = path.read_text().splitlines(keepends=True)
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    path.write_text("".join(lines))


def empty_log(trial: TrialFolder) -> None:
    trial.log_path("worker-1").write_text("")


def cut_log_within_a_line(trial: TrialFolder) -> None:
    text = trial.log_path("worker-1").read_text().splitlines(keepends=True)
    trial.log_path("worker-1").write_text("".join(text[:2]) + text[2][: len(text[2]) // 2])


def without_run_stop(trial: TrialFolder) -> None:
    """A coordinator that was stopped between two lines."""
    lines = trial.log_path("coordinator").read_text().splitlines(keepends=True)
    trial.log_path("coordinator").write_text("".join(line for line in lines if '"run_stop"' not in line))


def rename_a_column(trial: TrialFolder) -> None:
    replace_in_log(trial, "worker-1", '"compute_s"', '"forward_and_backward_s"', line=2)


def shorten_a_row(trial: TrialFolder) -> None:
    replace_in_log(trial, "worker-1", '"rows": [[0, ', '"rows": [[', line=2)


def write_text_for_a_number(trial: TrialFolder) -> None:
    replace_in_log(trial, "worker-1", '"rows": [[0, ', '"rows": [["first", ', line=2)


def write_nan_loss(trial: TrialFolder) -> None:
    event = json.loads(trial.log_path("worker-1").read_text().splitlines()[1].removeprefix(":::MLLOG "))
    index = event["value"]["columns"].index("loss")
    replace_in_log(trial, "worker-1", repr(event["value"]["rows"][3][index]), "NaN", line=2)


def write_nan_time(trial: TrialFolder) -> None:
    event = json.loads(trial.log_path("worker-1").read_text().splitlines()[1].removeprefix(":::MLLOG "))
    index = event["value"]["columns"].index("exchange_s")
    replace_in_log(trial, "worker-1", repr(event["value"]["rows"][3][index]), "NaN", line=2)


def plan_of_another_version(trial: TrialFolder) -> None:
    plan = json.loads(trial.plan_path.read_text())
    plan["worker_count"] = plan.pop("workers")
    trial.plan_path.write_text(json.dumps(plan))


def schedule_of_another_version(trial: TrialFolder) -> None:
    """Transfers that lack their kind."""
    plan = json.loads(trial.plan_path.read_text())
    trial.plan_path.write_text(json.dumps(plan | {"schedule": {"rounds": [[[0, 1, 0, 1]]]}}))


def target_of_another_version(trial: TrialFolder) -> None:
    """A metric that this version does not know."""
    plan = json.loads(trial.plan_path.read_text())
    trial.plan_path.write_text(json.dumps(plan | {"target": {"metric": "bleu", "at_most": 20}}))


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


def drop_lines(trial: TrialFolder, node: str, key: str, count: int | None = None) -> None:
    """Remove the first lines of a key from a log; the remaining lines can be read."""
    lines = trial.log_path(node).read_text().splitlines(keepends=True)
    removed = [line for line in lines if f'"key": "{key}"' in line][:count]
    assert removed
    trial.log_path(node).write_text("".join(line for line in lines if line not in removed))


def without_first_batch(trial: TrialFolder) -> None:
    drop_lines(trial, "worker-1", "node_steps", 1)


def without_steps(trial: TrialFolder) -> None:
    drop_lines(trial, "worker-1", "node_steps")


def without_steps_and_step_count(trial: TrialFolder) -> None:
    """As workers logged before they counted their steps."""
    drop_lines(trial, "worker-1", "node_steps")
    path = trial.log_path("worker-1")
    path.write_text(re.sub(r'"steps": \d+, ', "", path.read_text()))


def without_node_stop(trial: TrialFolder) -> None:
    drop_lines(trial, "worker-1", "node_stop")


def exchange_logs(trial: TrialFolder, node: str, other: str) -> None:
    path, other_path = trial.log_path(node), trial.log_path(other)
    content, other_content = path.read_bytes(), other_path.read_bytes()
    path.write_bytes(other_content)
    other_path.write_bytes(content)


def exchange_logs_of_workers(trial: TrialFolder) -> None:
    """As when files are copied by hand; both logs are complete."""
    exchange_logs(trial, "worker-0", "worker-1")


def exchange_logs_of_worker_and_coordinator(trial: TrialFolder) -> None:
    exchange_logs(trial, "worker-1", "coordinator")


def insert_line_of_another_node(trial: TrialFolder) -> None:
    """As when two nodes write to one file."""
    lines = trial.log_path("worker-1").read_text().splitlines(keepends=True)
    lines.insert(2, trial.log_path("worker-0").read_text().splitlines(keepends=True)[0])
    trial.log_path("worker-1").write_text("".join(lines))


CASES: dict[str, tuple[DamageTrial, str]] = {
    "empty": (empty_log, "logs/worker-1.log: empty"),
    "cut": (cut_log_within_a_line, "logs/worker-1.log:3: cut off in the middle"),
    "other columns": (rename_a_column, "logs/worker-1.log:2: node_steps has no compute_s: logged by another version"),
    "short rows": (shorten_a_row, "logs/worker-1.log:2: node_steps has a row that does not have 15 values"),
    "words": (write_text_for_a_number, "logs/worker-1.log:2: node_steps has a value that is not a number"),
    "nan loss": (write_nan_loss, "logs/worker-1.log:2: loss of step 3 is nan: training diverged"),
    "nan time": (write_nan_time, "logs/worker-1.log:2: exchange_s of step 3 is nan"),
    "other plan": (plan_of_another_version, "plan.json: workers: Field required"),
    "other schedule": (schedule_of_another_version, "plan.json: schedule.rounds.0.0."),
    "other target": (target_of_another_version, "plan.json: target.metric: Input should be"),
    "other prediction": (prediction_of_another_version, "plan.json: predicted.wait_s: Extra inputs are not permitted"),
    "cut plan": (plan_cut_off, "plan.json: the file: Invalid JSON"),
    "no log": (without_a_log, "logs/worker-1.log: missing"),
    "no logs": (without_logs, "logs/coordinator.log: missing"),
    "no status": (without_status, "status.json: missing: how the trial ended is not known"),
    "no plan": (without_plan, "plan.json: missing"),
    "a batch less": (without_first_batch, " steps, but node_stop counts "),
    "no steps": (without_steps, "logs/worker-1.log: node_steps has 0 steps, but node_stop counts "),
    "no steps, uncounted": (without_steps_and_step_count, "logs/worker-1.log: no node_steps event"),
    "no stop": (without_node_stop, "logs/worker-1.log: no node_stop event: the last lines are lost"),
    "cut status": (status_cut_off, "status.json: empty or cut off: how the trial ended is not known"),
    "exchanged": (
        exchange_logs_of_workers,
        "logs/worker-1.log:1: logged by worker-0, but the file is the log of worker-1",
    ),
    "exchanged with the coordinator": (
        exchange_logs_of_worker_and_coordinator,
        "logs/coordinator.log:1: logged by worker-1, but the file is the log of coordinator",
    ),
    "a line of another node": (
        insert_line_of_another_node,
        "logs/worker-1.log:3: logged by worker-0, but the file is the log of worker-1",
    ),
}


@pytest.fixture
def run(make_run: MakeRun) -> RunFolder:
    """Ring on two workers, three times."""
    return make_run(strategies=("ring",), workers=(2,), repeats=3, baseline=False)


def analyse(run: RunFolder) -> tuple[dict[str, Any], str]:
    """Return the content of summary.json and the page, without figures."""
    _, numbers = analyse_run(run, write=True)
    return numbers.as_dict(), report.render_report_page(run, numbers, [])


@pytest.mark.parametrize("case", CASES)
def test_damage_is_reported_by_file_and_line_and_affects_no_other_trial(run: RunFolder, case: str) -> None:
    damage_trial, message = CASES[case]
    before = {trial["id"]: trial for trial in analyse(run)[0]["trials"]}
    damaged_trial = run.trial_folders[DAMAGED_INDEX]
    damage_trial(damaged_trial)

    numbers, page = analyse(run)

    after = {trial["id"]: trial for trial in numbers["trials"]}
    name = damaged_trial.path.name
    assert any(problem.startswith(f"trials/{name}/") and message in problem for problem in numbers["damage"])
    assert message in page
    assert after.pop(name, {"status": "failed"})["status"] in ("failed", "aborted", "missed_target")
    assert after == {key: trial for key, trial in before.items() if key != name}


def test_a_log_of_another_version_is_reported_in_one_line(run: RunFolder) -> None:
    """Fourteen lines that differ only in a number would hide other problems."""
    path = run.trial_folders[DAMAGED_INDEX].log_path("worker-1")
    path.write_text(path.read_text().replace('"compute_s"', '"forward_and_backward_s"'))
    batches = path.read_text().count('"node_steps"')
    assert batches > 2

    (problem,) = analyse(run)[0]["damage"]

    assert problem.endswith(f"logged by another version (and {batches - 1} more lines)")
    assert "worker-1.log:2: " in problem


def test_a_complete_run_has_no_damage(run: RunFolder) -> None:
    numbers, page = analyse(run)

    assert numbers["damage"] == []
    assert "Damaged records" not in page


def test_each_exchanged_log_is_reported_in_one_line(run: RunFolder) -> None:
    """Every line of both files names another node."""
    exchange_logs_of_workers(run.trial_folders[DAMAGED_INDEX])

    first, second = analyse(run)[0]["damage"]

    assert "logs/worker-0.log:1: logged by worker-1, " in first
    assert "logs/worker-1.log:1: logged by worker-0, " in second
    assert first.endswith(" more lines)")


@pytest.mark.parametrize("removed", ["trials/*", "trials"])
def test_a_run_whose_trial_folders_were_removed_is_invalid(run: RunFolder, removed: str) -> None:
    """Without a trial there is nothing that could be valid."""
    for path in list(run.path.glob(removed)):
        shutil.rmtree(path)

    numbers, page = analyse(run)

    assert numbers["verdict"] == "invalid"
    assert numbers["damage"] == ["trials: the run has no trials: none was started, or their folders were removed"]
    assert "the run has no trials" in page


def test_a_run_with_a_trial_without_plan_is_invalid(run: RunFolder) -> None:
    """A trial that cannot be read was not checked."""
    without_plan(run.trial_folders[DAMAGED_INDEX])

    assert analyse(run)[0]["verdict"] == "invalid"


def test_a_lost_batch_is_reported_once(run: RunFolder) -> None:
    without_first_batch(run.trial_folders[DAMAGED_INDEX])

    (problem,) = analyse(run)[0]["damage"]

    assert "logs/worker-1.log: " in problem


@pytest.mark.parametrize("damage_trial", [cut_log_within_a_line, without_a_log, without_steps, without_first_batch])
def test_a_damaged_trial_is_excluded_from_comparisons(run: RunFolder, damage_trial: DamageTrial) -> None:
    damage_trial(run.trial_folders[DAMAGED_INDEX])

    (curve,) = analyse(run)[0]["curves"]

    assert [point["runs"] for point in curve["points"]] == [2]


def test_a_failed_trial_may_lack_logs(run: RunFolder) -> None:
    """A node that never started printed nothing: the engine's reason explains it, and no file is damaged."""
    failed_trial = run.trial_folders[DAMAGED_INDEX]
    failed_trial.status_path.write_text(json.dumps({"status": "failed", "reason": "worker-1 did not start"}))
    without_a_log(failed_trial)

    numbers, _ = analyse(run)

    assert numbers["damage"] == []
    assert numbers["trials"][DAMAGED_INDEX]["status_reason"] == "worker-1 did not start"


@pytest.mark.parametrize(("content", "problem"), [(None, "missing"), ("{no", ""), ("nonsense", "")])
@pytest.mark.parametrize("name", ["manifest.json", "scenario.yaml", "resolved.yaml"])
def test_damaged_files_of_the_run_are_reported_and_no_trial_is_lost(
    run: RunFolder, name: str, content: str | None, problem: str
) -> None:
    file = run.path / name
    file.unlink()
    if content is not None:
        file.write_text(content)

    numbers, page = analyse(run)

    (damage,) = numbers["damage"]
    assert damage.startswith(f"{name}: {problem}")
    assert damage in page
    assert [trial["status"] for trial in numbers["trials"]] == ["success"] * 3


def test_a_scenario_cut_off_within_published_results_is_reported(run: RunFolder, thesis: str) -> None:
    """Most cuts leave valid YAML. Either complete points are left, or the file is damaged."""
    for cut in range(thesis.index("published:") + len("published:"), len(thesis)):
        (run.path / "scenario.yaml").write_text(thesis[:cut])

        damages = [damage for damage in find_run_file_damage(run) if damage.file == "scenario.yaml"]

        assert len(damages) == (not run.published_speedups)


@pytest.mark.parametrize("end", ["published:", "strat", "source: report", "points:", "measured: 0.95"])
def test_a_scenario_that_was_cut_off_does_not_end_the_report(run: RunFolder, thesis: str, end: str) -> None:
    (run.path / "scenario.yaml").write_text(thesis[: thesis.index(end, thesis.index("published:")) + len(end)])

    numbers, page = analyse(run)

    (damage,) = numbers["damage"]
    assert damage.startswith("scenario.yaml: ")
    assert damage in page
    assert [trial["status"] for trial in numbers["trials"]] == ["success"] * 3


@pytest.fixture
def thesis(pytestconfig: pytest.Config) -> str:
    """A scenario that ends with published results."""
    return (pytestconfig.rootpath / "scenarios" / "thesis.yaml").read_text()


def test_a_model_that_diverged_reached_no_target(run: RunFolder) -> None:
    """Parameters that reached the target before were not kept, so no figure may show the model as trained."""
    write_nan_loss(run.trial_folders[DAMAGED_INDEX])

    trial = analyse(run)[0]["trials"][DAMAGED_INDEX]

    assert trial["status"] == "missed_target"
    assert trial["time_to_target_s"] is None
    assert trial["samples_to_target"] is None


def test_a_diverged_trial_without_target_failed_and_is_counted_as_diverged(run: RunFolder) -> None:
    """Its files are intact, so it is not unreadable."""
    trial = run.trial_folders[DAMAGED_INDEX]
    plan = json.loads(trial.plan_path.read_text())
    trial.plan_path.write_text(json.dumps(plan | {"target": None}))
    write_nan_loss(trial)

    numbers, page = analyse(run)

    result = numbers["trials"][DAMAGED_INDEX]
    assert (result["status"], result["diverged"]) == ("failed", True)
    assert result["status_reason"].endswith("loss of step 3 is nan: training diverged")
    assert "1 of 3 trials diverged: a loss was NaN or infinite" in page
    assert "1 of 3 trials is excluded from comparisons: 1 diverged" in page


def test_a_trial_whose_coordinator_logged_the_divergence_has_diverged(run: RunFolder) -> None:
    """The mean over workers may overflow although each logged loss is finite."""
    trial = run.trial_folders[DAMAGED_INDEX]
    last_line = len(trial.log_path("coordinator").read_text().splitlines())
    replace_in_log(trial, "coordinator", '"reason": ""', '"reason": "training diverged", "diverged": true', last_line)

    numbers, _ = analyse(run)

    result = numbers["trials"][DAMAGED_INDEX]
    assert (result["status"], result["status_reason"]) == ("missed_target", "training diverged")
    assert [each["diverged"] for each in numbers["trials"]] == [False, True, False]


def test_trials_that_have_not_run_are_listed(run: RunFolder) -> None:
    """The manifest lists the planned trials; a folder without a plan has run and is damaged."""
    manifest = run.path / "manifest.json"
    names = [trial.path.name for trial in run.trial_folders]
    planned = [*names, "003-ring-w2-r3", "004-ring-w2-r4"]
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"trials": planned}))
    without_plan(run.trial_folders[DAMAGED_INDEX])

    numbers, page = analyse(run)

    assert numbers["not_run"] == planned[3:]
    assert "2 of 5 trials have not run" in page
    assert "<span>2 of 5 trials</span>" in page
    assert "<li>003-ring-w2-r3</li>" in page
    assert "1 of 5 trials is excluded from comparisons: 1 unreadable" in page


def test_tables_derived_from_logs_are_written_again(run: RunFolder) -> None:
    """steps.csv and result.txt follow from the logs, even if they were damaged in the meantime."""
    analyse(run)
    trial = run.trial_folders[DAMAGED_INDEX]
    content = trial.step_csv_path.read_bytes()
    trial.step_csv_path.write_bytes(content[: len(content) // 2])

    numbers, _ = analyse(run)

    assert trial.step_csv_path.read_bytes() == content
    assert numbers["damage"] == []


def test_a_coordinator_log_without_run_stop_aborts_only_its_trial(run: RunFolder) -> None:
    without_run_stop(run.trial_folders[DAMAGED_INDEX])

    statuses = [(trial["status"], trial["status_reason"]) for trial in analyse(run)[0]["trials"]]

    assert statuses == [("success", ""), ("aborted", "the coordinator logged no run_stop"), ("success", "")]


def test_a_report_is_written_even_if_every_trial_is_damaged(run: RunFolder) -> None:
    """Runs the command: terminal and page list the same damage, and no figure can be drawn."""
    for trial in run.trial_folders:
        plan_cut_off(trial)

    result = CliRunner().invoke(app, ["report", str(run.path)])

    page = run.report_path.read_text()
    assert result.exit_code == 0
    assert result.stderr.count("Invalid JSON") == page.count("Invalid JSON") == 3
    assert "No trial finished" in page


def test_an_error_in_a_reader_is_reported_with_its_source_line(run: RunFolder) -> None:
    """The message "another version?" alone would not help to find the cause."""
    damage = read_trial_or_damage(run.trial_folders[0], lambda _: format_number("no number"))  # type: ignore[arg-type]

    assert isinstance(damage, FileProblem)
    assert re.search(r"TypeError at analysis/report/wording\.py:\d+: ", damage.problem)


def test_an_error_in_our_own_code_is_not_reported_as_damage(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the report with the trial's name; reported as damage it would hide a trial and never be fixed."""

    def failing_checks(trial: TrialLogTables) -> None:
        raise ValueError(trial.plan.label)

    monkeypatch.setattr("analysis.checks.fidelity.run_trial_checks", failing_checks)

    with pytest.raises(ValueError, match="ring") as raised:
        analyse(run)

    assert raised.value.__notes__ == [f"while analysing {run.trial_folders[0].path}"]


def wrong_value_in_log(node: str, key: str, dotted_key: str, value: Any) -> DamageTrial:
    """Return a change that sets a dotted key in the last log line of an event."""

    def damage_trial(trial: TrialFolder) -> None:
        lines = trial.log_path(node).read_text().splitlines()
        row = max(row for row, line in enumerate(lines) if f'"key": "{key}"' in line)
        event = json.loads(lines[row].removeprefix(":::MLLOG "))
        set_dotted_key(event, dotted_key, value)
        lines[row] = ":::MLLOG " + json.dumps(event)
        trial.log_path(node).write_text("\n".join(lines) + "\n")

    return damage_trial


def wrong_value_in_status(dotted_key: str, value: Any) -> DamageTrial:
    """Return a change that sets a dotted key of status.json."""

    def damage_trial(trial: TrialFolder) -> None:
        status = json.loads(trial.status_path.read_text())
        set_dotted_key(status, dotted_key, value)
        trial.status_path.write_text(json.dumps(status))

    return damage_trial


def set_dotted_key(record: dict[str, Any], dotted_key: str, value: Any) -> None:
    *above, last = dotted_key.split(".")
    for name in above:
        record = record[name]
    assert last in record
    record[last] = value


WRONG_TYPES: dict[str, tuple[DamageTrial, str]] = {
    "bytes in words": (
        wrong_value_in_log("worker-1", "node_stop", "value.payload_bytes_sent", "many"),
        "logs: cannot be interpreted",
    ),
    "deadlines in a list": (
        wrong_value_in_log("worker-1", "node_stop", "value.deadlines", []),
        "logs: cannot be interpreted",
    ),
    "accuracy in words": (
        wrong_value_in_log("coordinator", "eval_metrics", "value.accuracy", "good"),
        "logs: cannot be interpreted",
    ),
    "samples in an object": (
        wrong_value_in_log("coordinator", "eval_metrics", "metadata.samples_count", {}),
        "logs: cannot be interpreted",
    ),
    "a hash in an object": (
        wrong_value_in_log("worker-1", "node_hash", "value", {"sha": "ab"}),
        "logs: cannot be interpreted",
    ),
    "a step in words": (
        wrong_value_in_log("worker-1", "node_hash", "metadata.step", "last"),
        "logs: cannot be interpreted",
    ),
    "a rate in words": (
        wrong_value_in_status("shaping.worker-1.read_back_uplink_bps", "fast"),
        "status.json: shaping.worker-1.read_back_uplink_bps: Input should be a valid number",
    ),
    "a rate in quotation marks": (
        wrong_value_in_status("shaping.worker-1.uplink_bps", "1000"),
        "status.json: shaping.worker-1.uplink_bps: Input should be a valid number",
    ),
    "a mechanism in a list": (
        wrong_value_in_status("shaping.worker-1.rung", []),
        "status.json: shaping.worker-1.rung: Input should be",
    ),
    "shaping in a list": (wrong_value_in_status("shaping", []), "status.json: shaping: Input should be"),
    "exit codes in words": (wrong_value_in_status("exit_codes", "none"), "status.json: exit_codes: Input should be"),
    "a busy host in words": (
        wrong_value_in_status("host.cpu_busy", "very"),
        "status.json: host.cpu_busy: Input should be",
    ),
}


@pytest.mark.parametrize("case", WRONG_TYPES)
def test_a_value_of_the_wrong_type_is_damage_before_it_is_used(run: RunFolder, case: str) -> None:
    """If it were not found when the record is read, the report would end with an error."""
    damage_trial, message = WRONG_TYPES[case]
    damage_trial(run.trial_folders[DAMAGED_INDEX])

    numbers, page = analyse(run)

    (damage,) = numbers["damage"]
    assert damage.startswith(f"trials/{run.trial_folders[DAMAGED_INDEX].path.name}/{message}")
    assert "Damaged records" in page
    assert len(numbers["trials"]) == 2


def test_a_status_of_another_version_is_read(run: RunFolder) -> None:
    """Keys may be missing or unknown, and a number that could not be measured is null."""
    node = {"rates_enforced_by": "fluid", "uplink_bps": None, "achieved_pipes_bps": {"rack-0 up": None}}
    status = {"status": "success", "engine": "cluster", "shaping": {"worker-1": node}, "exit_codes": None, "moon": 1}
    run.trial_folders[DAMAGED_INDEX].status_path.write_text(json.dumps(status))

    numbers, _ = analyse(run)

    assert numbers["damage"] == []
    assert [trial["status"] for trial in numbers["trials"]] == ["success"] * 3


def test_an_evaluation_without_a_sample_count_leaves_samples_to_target_unknown(run: RunFolder) -> None:
    """Logs of other programs may lack the sample count of an evaluation."""
    wrong_value_in_log("coordinator", "eval_metrics", "metadata.samples_count", None)(run.trial_folders[DAMAGED_INDEX])

    trial = analyse(run)[0]["trials"][DAMAGED_INDEX]

    assert trial["time_to_target_s"] is not None
    assert trial["samples_to_target"] is None
