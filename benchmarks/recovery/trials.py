"""Runs of the benchmark's scenarios, and what their run folders contain."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ensayo
from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import TrialLogTables, read_trial_tables
from analysis.results.analyse_run import analyse_run
from analysis.results.trial_result import TrialResult
from benchmarks.recovery.kill_outcomes import KillOutcome, list_kill_outcomes
from ensayo.exit_codes import ExitCode


@dataclass(frozen=True)
class MeasuredTrial:
    """Result of one trial, and the outcomes of its kills."""

    result: TrialResult
    outcomes: tuple[KillOutcome, ...]
    budget: int  # samples of the whole training

    @property
    def reaches_target(self) -> bool:
        """Whether the trial ended with success, which means that the model has reached the target."""
        return self.result.status == "success"

    @property
    def uses_budget_exactly(self) -> bool:
        """Whether the samples that count are those of the budget."""
        return self.result.samples == self.budget


def run_trials(scenario: Mapping[str, Any], engine: str, runs_folder: Path) -> list[MeasuredTrial]:
    """Run all trials of a scenario once, and return them in the order of their seeds."""
    run = ensayo.rehearse(dict(scenario), engine=engine, runs_folder=runs_folder)
    if run.exit_code == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    folder = RunFolder(run.folder)
    _, summary = analyse_run(folder)
    results = {result.id: result for result in summary.trials}
    tables = [read_trial_tables(trial_folder) for trial_folder in folder.trial_folders]
    return [_measure(trial, results[trial.plan.trial]) for trial in tables]


def _measure(trial: TrialLogTables, result: TrialResult) -> MeasuredTrial:
    return MeasuredTrial(result, tuple(list_kill_outcomes(trial)), trial.plan.epochs * trial.plan.train_samples)
