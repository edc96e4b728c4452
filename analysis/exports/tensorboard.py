"""Exporter of scalars for TensorBoard, by step and by virtual time.

There is one TensorBoard run per node and trial.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import pandas as pd

from analysis.exports.activities import sort_steps_by_rank
from analysis.exports.base import Exporter
from analysis.reading.run_table import STEP_PHASES, RunLogTables, TrialLogTables

EVENT_FILE_VERSION = "brain.Event:2"  # version that every event file begins with


class TensorBoardExporter(Exporter):
    """Exporter of TensorBoard event files with losses, step phases, evaluations, and the staleness of gradients.

    Losses, step phases and evaluations are written by step, staleness (on the first shard) by version of the shard. The
    wall time of an event is the number of virtual seconds since training began. TensorBoard's relative time is
    therefore correct, but its dates are in 1970. Values have single precision, because TensorBoard stores scalars in
    single precision.
    """

    kind: Literal["tensorboard"] = "tensorboard"
    tool_name: ClassVar[str] = "TensorBoard"
    file_suffix: ClassVar[str] = ".ensayo"
    pip_requirement: ClassVar[str] = "tensorboard>=2.20"

    def write(self, run_tables: RunLogTables, out_folder: Path) -> Iterator[str]:
        for trial in run_tables.trials:
            for node, scalars in _scalars_by_node(trial):
                folder = out_folder / trial.plan.trial / node
                folder.mkdir(parents=True)
                _save_event_file(scalars, folder / f"events.out.tfevents.0{self.file_suffix}")
        yield from ()  # nothing is left out


def _scalars_by_node(trial: TrialLogTables) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the name and the scalars of each node that logged scalars.

    The scalars are a table sorted by time.

    The four columns contain step (or version), virtual time in seconds, tag and value.
    """
    for node, steps in sort_steps_by_rank(trial.steps).groupby("node", sort=False):
        yield str(node), _worker_scalars(steps)
    if not trial.evals.empty:
        evals = trial.evals.assign(tag="eval/" + trial.evals["metric"].astype(str))
        yield "coordinator", evals[["step", "time_s", "tag", "value"]]
    if not trial.updates.empty:
        updates = trial.updates.sort_values("time_s", kind="stable").assign(tag="staleness")
        yield "shard-0", updates[["version", "time_s", "tag", "staleness"]]


def _worker_scalars(steps: pd.DataFrame) -> pd.DataFrame:
    """Return losses and phase times of a worker as scalars for TensorBoard.

    Each scalar has the time at which its step ended.

    Unlogged quantities are left out.
    """
    seconds = {f"seconds/{phase}": steps[f"{phase}_s"] for phase in STEP_PHASES}
    tags = {"loss": steps["loss"], "seconds/step": steps["step_s"], **seconds, "staleness": steps["staleness"]}
    ends_s = steps["start_s"] + steps["step_s"]
    columns = [
        pd.DataFrame({"step": steps["step"], "time_s": ends_s, "tag": tag, "value": values})
        for tag, values in tags.items()
        if tag == "loss" or values.notna().any()
    ]
    return pd.concat(columns).sort_values("time_s", kind="stable")


def _save_event_file(scalars: pd.DataFrame, path: Path) -> None:
    """Write scalars to a TensorBoard event file.

    The file is a sequence of events, each with length and checksum.
    """
    from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415 - an extra
    from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: PLC0415 - an extra

    with path.open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=0.0, file_version=EVENT_FILE_VERSION).SerializeToString())
        for step, time_s, tag, value in scalars.itertuples(index=False):
            writer.write(_scalar_event(Event, step, time_s, tag, value).SerializeToString())


def _scalar_event(event_class: Any, step: Any, time_s: float, tag: str, value: Any) -> Any:
    """Return one value as a TensorBoard event.

    Values without a step, as in logs of other programs, get step 0.
    """
    event = event_class(wall_time=float(time_s), step=0 if pd.isna(step) else int(step))
    event.summary.value.add(tag=tag, simple_value=float(value))
    return event
