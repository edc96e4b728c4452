"""Scalars for TensorBoard: a run per trial and node, against steps and against virtual time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import pandas as pd

from analysis.exports.activities import by_step
from analysis.exports.base import Exporter
from analysis.reading.run_table import STEP_PHASES, RunTable, TrialTable

VERSION = "brain.Event:2"  # what every event file begins with


class TensorBoard(Exporter):
    """Losses and phases of every worker by step, evaluations beside them; of the first shard, staleness by version.

    The wall time of an event is the virtual seconds since training began: TensorBoard's relative time is right, its
    dates are of 1970. Values are kept in single precision, as TensorBoard keeps scalars.
    """

    kind: Literal["tensorboard"] = "tensorboard"
    reader: ClassVar[str] = "TensorBoard"
    suffix: ClassVar[str] = ".ensayo"
    package: ClassVar[str] = "export"

    def write(self, run: RunTable, out: Path) -> Iterator[str]:
        for trial in run.trials:
            for node, scalars in _nodes(trial):
                folder = out / trial.plan.trial / node
                folder.mkdir(parents=True)
                _save(scalars, folder / f"events.out.tfevents.0{self.suffix}")
        yield from ()  # nothing is left out


def _nodes(trial: TrialTable) -> Iterator[tuple[str, pd.DataFrame]]:
    """Of every node with numbers its scalars: step, time_s, tag, value, in order of time."""
    for node, steps in by_step(trial.steps).groupby("node", sort=False):
        yield str(node), _of_worker(steps)
    if not trial.evals.empty:
        evals = trial.evals.assign(tag="eval/" + trial.evals["metric"].astype(str))
        yield "coordinator", evals[["step", "time_s", "tag", "value"]]
    if not trial.updates.empty:
        updates = trial.updates.sort_values("time_s", kind="stable").assign(tag="staleness")
        yield "shard-0", updates[["version", "time_s", "tag", "staleness"]]


def _of_worker(steps: pd.DataFrame) -> pd.DataFrame:
    """A step's numbers are known at its end; what no step logged is no tag."""
    seconds = {f"seconds/{phase}": steps[f"{phase}_s"] for phase in STEP_PHASES}
    tags = {"loss": steps["loss"], "seconds/step": steps["step_s"], **seconds, "staleness": steps["staleness"]}
    ends_s = steps["start_s"] + steps["step_s"]
    columns = [
        pd.DataFrame({"step": steps["step"], "time_s": ends_s, "tag": tag, "value": values})
        for tag, values in tags.items()
        if tag == "loss" or values.notna().any()
    ]
    return pd.concat(columns).sort_values("time_s", kind="stable")


def _save(scalars: pd.DataFrame, path: Path) -> None:
    """One event file: length-framed, checksummed events."""
    from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415 - an extra
    from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: PLC0415 - an extra

    with path.open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=0.0, file_version=VERSION).SerializeToString())
        for step, time_s, tag, value in scalars.itertuples(index=False):
            writer.write(_event(Event, step, time_s, tag, value).SerializeToString())


def _event(kind: Any, step: Any, time_s: float, tag: str, value: Any) -> Any:
    """One number; evaluations that are not ours may have no step."""
    event = kind(wall_time=float(time_s), step=0 if pd.isna(step) else int(step))
    event.summary.value.add(tag=tag, simple_value=float(value))
    return event
