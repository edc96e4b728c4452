"""Exporter of CSV tables for pandas, R or a spreadsheet.

A table has one row per event, and units in the column names.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

import pandas as pd

from analysis.exports.base import Exporter
from analysis.exports.trial_verdict import TrialValidityVerdict
from analysis.metrics.event_outcomes import find_event_times
from analysis.reading.run_table import RunLogTables, TrialLogTables

EVENT_TABLE_NAMES = ("steps", "evals", "updates")


class CsvExporter(Exporter):
    """Exporter of `trials.csv` with a row per trial, and of one CSV file per kind of event."""

    kind: Literal["csv"] = "csv"
    tool_name: ClassVar[str] = "any program that reads CSV"
    file_suffix: ClassVar[str] = ".csv"

    def write(self, run_tables: RunLogTables, out_folder: Path) -> Iterator[str]:
        _save_csv(pd.DataFrame([_trial_row(trial) for trial in run_tables.trials]), out_folder / "trials.csv")
        for table_name in EVENT_TABLE_NAMES:
            table = _table_of_all_trials(run_tables, table_name)
            if table.empty:
                yield f"{table_name}.csv is left out: no {table_name} were logged"
                continue
            _save_csv(table, out_folder / f"{table_name}.csv")
        if len(buckets := _table_of_all_trials(run_tables, "buckets")):
            _save_csv(buckets, out_folder / "buckets.csv")
        if rows := [_event_row(trial, event) for trial in run_tables.trials for event in find_event_times(trial)]:
            _save_csv(pd.DataFrame(rows), out_folder / "events.csv")


def _trial_row(trial: TrialLogTables) -> dict[str, object]:
    """Return the row of a trial in `trials.csv`, with one column per swept key."""
    plan, verdict = trial.plan, TrialValidityVerdict.from_checking_trial(trial)
    columns = {
        "trial": plan.trial, "strategy": plan.label, "workers": plan.workers, "servers": plan.servers,
        "repeat": plan.repeat, "seed": plan.seed, "batch": plan.batch, "engine": plan.engine,
        "dilation": plan.dilation, "status": trial.status.get("status"), "seconds": trial.seconds,
        "reason": trial.run_stop.get("reason"), "params_sha256": trial.params_sha256, "verdict": verdict.level,
        "verdict_reasons": "; ".join(verdict.reasons),
    }  # fmt: skip
    return columns | {key: value for key, value in plan.labels.items() if key not in columns}


def _event_row(trial: TrialLogTables, planned_event: object) -> dict[str, object]:
    return {"trial": trial.plan.trial, **vars(planned_event), "nodes": " ".join(vars(planned_event)["nodes"])}


def _table_of_all_trials(run_tables: RunLogTables, table_name: str) -> pd.DataFrame:
    """Return one table of all trials of a run: for example `steps`.

    The first column contains the name of the trial.
    """
    table: pd.DataFrame = getattr(run_tables, table_name)
    return table if table.empty else table[["trial", *(column for column in table.columns if column != "trial")]]


def _save_csv(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, float_format="%.9g", lineterminator="\n", na_rep="nan")
