"""Settings of the metering, which a JSON file states, and the processes that are metered."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .protocol import DRY_RUN, GLOO, MEASURE
from .step_schedule import StepSchedule

SETTINGS_VARIABLE = "ENSAYO_METER"  # path of the file
PROCESS_VARIABLE = "ENSAYO_METER_PID"  # the metered process; set by that process for its children


@dataclass(frozen=True)
class MeterSettings:
    """How this process is metered."""

    mode: str
    socket: str = ""
    output: str = ""
    dry_run_steps: int = 0
    step_schedule: StepSchedule | None = None  # None: the collectives of a step are not known
    dilation: float = 1.0  # wall seconds per virtual second
    process_group: str = GLOO
    process_group_settings: Mapping[str, Any] = field(default_factory=dict)
    ensayo_path: Sequence[str] = ()  # folders that have Ensayo's process group and its packages


def read_settings(path: Path) -> MeterSettings:
    """Return the settings of a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file has no known mode.
    """
    values = json.loads(path.read_text(encoding="utf-8"))
    known = {name: values[name] for name in (field.name for field in fields(MeterSettings)) if name in values}
    if schedule := known.get("step_schedule"):
        known["step_schedule"] = StepSchedule.from_json(schedule)
    settings = MeterSettings(**known)
    if settings.mode not in (MEASURE, DRY_RUN):
        raise ValueError(f'{path}: mode is "{settings.mode}"; allowed are {MEASURE} and {DRY_RUN}')
    return settings


def may_be_metered() -> bool:
    """Return whether this process is a rank (RANK is set), and not the child of a metered process."""
    return "RANK" in os.environ and os.environ.get(PROCESS_VARIABLE) in (None, str(os.getpid()))
