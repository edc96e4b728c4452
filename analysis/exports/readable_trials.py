"""Reader of runs with damaged trials.

An unreadable trial is reported, and all other trials are read.
"""

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from analysis.reading.damage import FileProblem, read_trial_or_damage
from analysis.reading.run_folder import RunFolder, TrialFolder
from analysis.reading.run_table import RunLogTables, TrialLogTables, read_node_logs, read_trial_tables

STEP_TIME_COLUMNS = ("start_s", "step_s")


def read_readable_trials(run_folder: RunFolder) -> RunLogTables:
    """Read all readable trials of a run, each with a list of its damaged files.

    Drop steps without a time.
    """
    results = [read_trial_or_damage(folder, _read_trial_noting_damage) for folder in run_folder.trial_folders]
    trials = tuple(result for result in results if isinstance(result, TrialLogTables))
    return RunLogTables(run_folder, trials, tuple(result for result in results if isinstance(result, FileProblem)))


def _read_trial_noting_damage(trial_folder: TrialFolder) -> TrialLogTables:
    logs = read_node_logs(trial_folder)
    trial = read_trial_tables(trial_folder, logs)
    times = trial.steps[list(STEP_TIME_COLUMNS)].apply(pd.to_numeric, errors="coerce")
    has_times = times.notna().all(axis=1) & (times["step_s"] >= 0)
    missing_log_files = [f"logs/{node.name}.log" for node in trial.plan.nodes if node.name not in logs]
    reported_files = {damage.file for damage in trial.damage}
    unreported_log_files = [file for file in missing_log_files if file not in reported_files]
    has_run_start = "coordinator" in logs and logs["coordinator"].last_event("run_start") is not None
    missing_records = [
        FileProblem(trial_folder.path.name, file, None, description)
        for file, description in _describe_log_gaps(trial, unreported_log_files, has_times, has_run_start=has_run_start)
    ]
    return replace(trial, steps=trial.steps[has_times], damage=(*trial.damage, *missing_records))


def _describe_log_gaps(
    trial: TrialLogTables, missing_log_files: list[str], step_has_time_flags: "pd.Series[bool]", *, has_run_start: bool
) -> Iterator[tuple[str, str]]:
    """Yield each missing part of a trial's logs as a file name and a description.

    A missing part is, for example, steps without a time.

    `missing_log_files` are missing logs that are not yet in the trial's list of damage, as in a failed trial.
    """
    yield from ((file, "missing") for file in missing_log_files)
    if not has_run_start:
        yield "logs/coordinator.log", "no run_start: times are those of the nodes' own clocks"
    if not step_has_time_flags.any():
        yield "logs", "no steps were logged"
    elif not step_has_time_flags.all():
        nodes = ", ".join(sorted({str(node) for node in trial.steps.loc[~step_has_time_flags, "node"]}))
        yield "logs", f"{(~step_has_time_flags).sum()} steps of {nodes} have no time; they are left out"
