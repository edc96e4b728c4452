"""View of status.json: how a trial ended, and what its engine measured of links and host.

Checks read the keys that they need from a dict. This module only checks the types of the values, so that a file of
another version is reported as damage and not as an error of a check.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict

OptionalNumber: TypeAlias = float | None
Probes: TypeAlias = dict[str, dict[str, OptionalNumber | list[float]]]  # link or peer -> declared, achieved, all tries


class StatusSection(BaseModel):
    """Frozen record of one section of status.json.

    Unknown keys are ignored. A number in quotation marks is an error, because checks compute with it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class LinkShapingView(StatusSection):
    """Shaping of one node's link: what was declared, what enforces it, and what was read back and probed."""

    rung: str = ""  # mechanism that enforces rates
    rungs: dict[str, str] = {}  # property of the link -> mechanism that enforces it
    uplink_bps: OptionalNumber = None
    downlink_bps: OptionalNumber = None
    read_back_uplink_bps: OptionalNumber = None
    read_back_downlink_bps: OptionalNumber = None
    achieved_uplink_bps: OptionalNumber = None
    achieved_downlink_bps: OptionalNumber = None
    achieved_pipes_bps: dict[str, OptionalNumber] = {}
    pipes_bps: Probes = {}
    message_s: Probes = {}
    round_trip_s: Probes = {}
    queues: dict[str, dict[str, OptionalNumber]] = {}
    changed_meanwhile: list[str] = []
    unproven: dict[str, str] = {}


class HostMetricsView(StatusSection):
    """Load of the host while the trial ran."""

    cpu_busy: OptionalNumber = None
    cpu_steal: OptionalNumber = None
    canary_late_ms: dict[str, OptionalNumber] | None = None
    pressure: dict[str, OptionalNumber] | None = None


class TrialStatusView(StatusSection):
    """Content of status.json, as far as the analysis reads it."""

    status: str = ""
    reason: str | None = None
    engine: str = ""
    exit_codes: dict[str, int | None] | None = None
    shaping: dict[str, LinkShapingView] | None = None
    host: HostMetricsView | None = None
    throttling: dict[str, dict[str, OptionalNumber]] | None = None
    timings_s: dict[str, OptionalNumber] | None = None


def validate_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of status.json unchanged if every known key has the right type.

    Raises:
        ValidationError: a known key has another type.
    """
    TrialStatusView.model_validate(dict(status))
    return dict(status)
