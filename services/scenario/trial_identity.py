"""Identity of a trial within its scenario, and the labels and names made of its swept values."""

import json
import re
from typing import Any

from services.scenario.sweep import SweepPoint
from services.schema.component import FrozenRecord


class TrialIdentity(FrozenRecord):
    """Strategy label, swept values and repeat, which identify one trial of a scenario."""

    index: int  # position in the list of trials
    label: str | None  # of the strategy; None is the baseline
    sweep_point: SweepPoint  # name of an axis -> value or name of a case
    repeat: int


def swept_value_label(swept_value: Any) -> str | int | float:
    """Return a swept value as a label of a trial.

    A text or a number is unchanged; other values are returned as JSON.
    """
    return swept_value if isinstance(swept_value, str | int | float) else json.dumps(swept_value)


def folder_name_part(swept_value: str | float) -> str:
    """Return a swept value in a form that can be part of a folder name.

    The result has at most 24 characters of a-z, 0-9, dot and hyphen.
    """
    return re.sub(r"[^a-z0-9.]+", "-", str(swept_value).lower()).strip("-")[:24]
