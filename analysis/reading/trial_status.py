"""How did a trial end, as its engine tells it? What stands in status.json, and what must be a number there.

Checks read the keys that they need; here it is only held against their types, so that what another version wrote is
told as such and not as a mistake of a check.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict

Number: TypeAlias = float | None
Tried: TypeAlias = dict[str, dict[str, Number | list[float]]]  # name -> declared, achieved, and every try


class Strict(BaseModel):
    """Keys that nobody checks are passed over; a number in quotation marks is none, since it is computed with."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Shaped(Strict):
    """What was done to the links of one node, and what was found of them."""

    rung: str = ""
    rungs: dict[str, str] = {}
    uplink_bps: Number = None
    downlink_bps: Number = None
    read_back_uplink_bps: Number = None
    read_back_downlink_bps: Number = None
    achieved_uplink_bps: Number = None
    achieved_downlink_bps: Number = None
    achieved_pipes_bps: dict[str, Number] = {}
    pipes_bps: Tried = {}
    message_s: Tried = {}
    round_trip_s: Tried = {}
    queues: dict[str, dict[str, Number]] = {}
    changed_meanwhile: list[str] = []
    unproven: dict[str, str] = {}


class Host(Strict):
    """The machine while the trial ran."""

    cpu_busy: Number = None
    cpu_steal: Number = None
    canary_late_ms: dict[str, Number] | None = None
    pressure: dict[str, Number] | None = None


class Ended(Strict):
    """status.json."""

    status: str = ""
    reason: str | None = None
    engine: str = ""
    exit_codes: dict[str, int | None] | None = None
    shaping: dict[str, Shaped] | None = None
    host: Host | None = None
    throttling: dict[str, dict[str, Number]] | None = None
    timings_s: dict[str, Number] | None = None


def held(status: Mapping[str, Any]) -> dict[str, Any]:
    """The same, once every key that is known has the type that it should.

    Raises:
        ValidationError: one has not.
    """
    Ended.model_validate(dict(status))
    return dict(status)
