"""Runs of the benchmark's trials in turns, and the values of each row."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import ensayo
from benchmarks.commands.cases import Row, Trial, TrialRow
from ensayo.exit_codes import ExitCode
from services.schema.errors import EnsayoError


@dataclass
class RowResult:
    """Values of one row, one per round, and the verdicts of its trials."""

    row: Row
    values: list[float] = field(default_factory=list)
    defects: list[str] = field(default_factory=list)  # reasons of trials that failed or are not valid

    @property
    def meets_limit(self) -> bool:
        """Whether the median meets the limit of the row; false if a round has no value."""
        if not self.values:
            return False
        middle = median(self.values)
        is_low_enough = self.row.at_most is None or middle <= self.row.at_most
        return is_low_enough and (self.row.at_least is None or middle >= self.row.at_least)


def measure_trial_rows(rows: Sequence[TrialRow], rounds: int) -> list[RowResult]:
    """Run all trials of the rows, one round after the other, and return the values of each row.

    Every round counts: no trial is repeated.
    """
    results = [RowResult(row) for row in rows]
    for _ in range(rounds):
        for row, result in zip(rows, results, strict=True):
            _measure_round(row, result)
    return results


def _measure_round(row: TrialRow, result: RowResult) -> None:
    trials = []
    for scenario in row.scenarios:
        try:
            trials.append(_run(scenario, row.engine))
        except EnsayoError as error:
            result.defects.append(str(error))
            return
    result.defects.extend(reason for trial in trials for reason in trial["reasons"])
    if all(trial["status"] == "success" for trial in trials):
        result.values.append(row.value(trials))
    else:
        result.defects.extend(trial["status_reason"] for trial in trials if trial["status"] != "success")


def _run(scenario: dict[str, Any], engine: str) -> Trial:
    with tempfile.TemporaryDirectory(prefix="ensayo-benchmark-") as folder:
        run = ensayo.rehearse(scenario, engine=engine, runs_folder=folder)
        if run.exit_code == ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
        (trial,) = json.loads((Path(run.folder) / "summary.json").read_text(encoding="utf-8"))["trials"]
        (plan_path,) = Path(run.folder).glob("trials/*/plan.json")
        return {**trial, "plan": plan_path.read_text(encoding="utf-8")}
