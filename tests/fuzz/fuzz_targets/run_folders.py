"""Fuzz targets that read the files of a run folder."""

from analysis.checks.fidelity import read_failed_check_remedies
from analysis.reading.damage import FileProblem, find_run_file_damage, read_trial_or_damage
from analysis.reading.logs import mllog
from analysis.reading.logs.batches import read_logged_rows, rows_to_data_frame
from analysis.reading.plan_view import TrialPlan
from analysis.reading.plan_view import read_plan as read_plan_json
from analysis.reading.run_folder import RunFolder, TrialFolder, read_json
from analysis.reading.run_table import RunLogTables, read_trial_tables
from analysis.reading.trial_record import merge_log_lines, write_log_and_step_table
from analysis.reading.trial_status import validate_trial_status
from compose.runs.interrupted_run import read_interrupted_run
from compose.runs.run_folder import read_outcome
from compose.runs.trials.log_tail import LogTail
from fuzz_targets.target import empty_folder, write_files
from services.runtime.run_log import BUCKET_COLUMNS, STEP_COLUMNS, UPDATE_COLUMNS

TRIAL = "trials/000-ring-w2-r0"
TRIAL_FILES = ("plan.json", "status.json", "events.jsonl", "logs/coordinator.log", "logs/worker-0.log")
RUN_FILES = ("manifest.json", "scenario.yaml", "resolved.yaml", f"{TRIAL}/status.json", f"{TRIAL}/fidelity.json")
LOGGED_TABLES = {"node_steps": STEP_COLUMNS, "shard_updates": UPDATE_COLUMNS, "node_buckets": BUCKET_COLUMNS}


def read_log(content: bytes) -> None:
    """Read the log of a node, its tables, and the log again that is written from its events."""
    path = empty_folder("log") / "worker-0.log"
    path.write_bytes(content)
    log = mllog.read_log(path)
    for key, columns in LOGGED_TABLES.items():
        rows_to_data_frame(read_logged_rows(log, key, columns)[0], columns)
    merged = mllog.parse_log_lines(merge_log_lines({"worker-0": log}))
    assert len(merged.events) == len(log.events)


def read_log_tail(content: bytes) -> None:
    """Read the log of a node that is still running, in two parts."""
    path = empty_folder("log") / "coordinator.log"
    tail = LogTail(path)
    for part in (content[: len(content) // 2], content):
        path.write_bytes(part)
        for event in tail.read_new_events():
            assert isinstance(event["key"], str)


def read_plan(content: bytes) -> None:
    """Read plan.json, and the values that the analysis derives from it."""
    folder = _trial_folder(b"=== plan.json\n" + content)
    plan = read_trial_or_damage(folder, lambda each: read_plan_json(each.plan_path))
    if isinstance(plan, FileProblem):
        assert str(plan)
        return
    for name in vars(TrialPlan):
        if isinstance(getattr(TrialPlan, name), property):
            getattr(plan, name)


def read_status(content: bytes) -> None:
    """Read status.json as the analysis does, and as a resumed run does."""
    folder = _trial_folder(b"=== status.json\n" + content)
    read_trial_or_damage(folder, lambda each: validate_trial_status(read_json(each.status_path)))
    read_outcome(folder.status_path)


def read_trial_folder(content: bytes) -> None:
    """Read the folder of a trial, and write the files that the analysis adds to an intact trial."""
    folder = _trial_folder(content)
    tables = read_trial_or_damage(folder, read_trial_tables)
    if isinstance(tables, FileProblem):
        assert str(tables)
        return
    damage = RunLogTables(folder.parent_run_folder, (tables,)).file_damage
    assert all(map(str, damage))
    if not tables.is_unreadable:
        write_log_and_step_table(folder, tables)


def read_run_files(content: bytes) -> None:
    """Read the files of a run that belong to no trial."""
    folder = empty_folder("run")
    (folder / TRIAL).mkdir(parents=True)
    (folder / TRIAL / "plan.json").write_text("{}")
    write_files(folder, content, RUN_FILES)
    run = RunFolder(folder)
    assert all(map(str, find_run_file_damage(run)))
    assert isinstance(run.scenario_name + run.study_of_claims + run.first_scenario_comment, str)
    assert all(isinstance(name, str) for name in run.trials_not_run)
    assert isinstance(run.skipped_trials + run.published_speedups, tuple)
    assert all(isinstance(remedy, str) for remedy in read_failed_check_remedies(run))


def read_interrupted_run_folder(content: bytes) -> None:
    """Read the folder of a run that shall be continued."""
    folder = empty_folder("run")
    write_files(folder, content, RUN_FILES)
    read_interrupted_run(folder)


def _trial_folder(content: bytes) -> TrialFolder:
    folder = empty_folder("run") / TRIAL
    folder.mkdir(parents=True)
    (folder / "plan.json").touch()  # a folder without this file is no trial for the analysis
    write_files(folder, content, TRIAL_FILES)
    return TrialFolder(folder)
