"""Tidy tables for pandas, R, a spreadsheet: one row per event, units in the column names."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

import pandas as pd

from analysis.exports.base import Exporter
from analysis.exports.believed import Believed
from analysis.metrics.happened import event_outcomes
from analysis.reading.run_table import RunTable, TrialTable

FRAMES = ("steps", "evals", "updates")


class Csv(Exporter):
    """A file per kind of event over all trials, and `trials.csv`, which says what each trial was."""

    kind: Literal["csv"] = "csv"
    reader: ClassVar[str] = "whatever reads CSV"
    suffix: ClassVar[str] = ".csv"

    def write(self, run: RunTable, out: Path) -> Iterator[str]:
        _save(pd.DataFrame([_trial(trial) for trial in run.trials]), out / "trials.csv")
        for name in FRAMES:
            frame = _stacked(run, name)
            if frame.empty:
                yield f"{name}.csv: nothing of the kind was logged"
                continue
            _save(frame, out / f"{name}.csv")
        events = pd.DataFrame([_event(trial, event) for trial in run.trials for event in event_outcomes(trial)])
        if not events.empty:
            _save(events, out / "events.csv")


def _trial(trial: TrialTable) -> dict[str, object]:
    """One row; swept keys are columns of their own."""
    planned, verdict = trial.plan, Believed.of(trial)
    facts = {
        "trial": planned.trial, "strategy": planned.label, "workers": planned.workers, "servers": planned.servers,
        "repeat": planned.repeat, "seed": planned.seed, "batch": planned.batch, "engine": planned.engine,
        "dilation": planned.dilation, "status": trial.status.get("status"), "seconds": trial.seconds,
        "reason": trial.run_stop.get("reason"), "params_sha256": trial.params_sha256, "verdict": verdict.level,
        "verdict_reasons": "; ".join(verdict.reasons),
    }  # fmt: skip
    return facts | {key: value for key, value in planned.labels.items() if key not in facts}


def _event(trial: TrialTable, event: object) -> dict[str, object]:
    return {"trial": trial.plan.trial, **vars(event), "nodes": " ".join(vars(event)["nodes"])}


def _stacked(run: RunTable, name: str) -> pd.DataFrame:
    """The frames of all trials, the trial in the first column."""
    frame: pd.DataFrame = getattr(run, name)
    return frame if frame.empty else frame[["trial", *(column for column in frame.columns if column != "trial")]]


def _save(frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path, index=False, float_format="%.9g", lineterminator="\n", na_rep="nan")
