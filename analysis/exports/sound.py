"""Which trials of a run can be exported, and what is wrong with it? A damaged trial costs itself, never the run."""

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from analysis.reading.damage import FileDamage, read_or_report_damage
from analysis.reading.run_folder import RunFolder, TrialFolder
from analysis.reading.run_table import RunTable, TrialTable, read_logs, read_trial

TIMES = ("start_s", "step_s")


def read_sound(folder: RunFolder) -> RunTable:
    """Every trial that can be understood, with what is damaged in it; steps without a time are no steps."""
    found = [read_or_report_damage(trial, _sound) for trial in folder.trial_folders]
    trials = tuple(each for each in found if isinstance(each, TrialTable))
    return RunTable(folder, trials, tuple(each for each in found if isinstance(each, FileDamage)))


def _sound(folder: TrialFolder) -> TrialTable:
    logs = read_logs(folder)
    trial = read_trial(folder, logs)
    numbers = trial.steps[list(TIMES)].apply(pd.to_numeric, errors="coerce")
    timed = numbers.notna().all(axis=1) & (numbers["step_s"] >= 0)
    files = [f"logs/{node.name}.log" for node in trial.plan.nodes if node.name not in logs]
    named = {each.file for each in trial.damage}
    absent = [file for file in files if file not in named]
    begun = "coordinator" in logs and logs["coordinator"].last_event("run_start") is not None
    lacking = [
        FileDamage(folder.path.name, file, None, what) for file, what in _lacking(trial, absent, timed, begun=begun)
    ]
    return replace(trial, steps=trial.steps[timed], damage=(*trial.damage, *lacking))


def _lacking(
    trial: TrialTable, absent: list[str], timed: "pd.Series[bool]", *, begun: bool
) -> Iterator[tuple[str, str]]:
    """What is not there, by file; `absent`: logs that nobody has named yet, as of a trial that failed."""
    yield from ((file, "missing") for file in absent)
    if not begun:
        yield "logs/coordinator.log", "no run_start: times are as the nodes' clocks had them"
    if not timed.any():
        yield "logs", "no steps were logged"
    elif not timed.all():
        nodes = ", ".join(sorted({str(node) for node in trial.steps.loc[~timed, "node"]}))
        yield "logs", f"{(~timed).sum()} steps of {nodes} have no time; they are left out"
