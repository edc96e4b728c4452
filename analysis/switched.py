"""What became of a switch between strategies? The coordinator's record of it."""

from dataclasses import dataclass
from math import inf
from typing import Any

from analysis.mllog import Event, Log

STAMP_S = 2e-6  # two stamps of one moment may differ by their rounding


@dataclass(frozen=True)
class Switched:
    """One switch that was planned: what its rule found, and how it ended; times are virtual seconds since the start."""

    points: tuple[dict[str, Any], ...]  # what the rule found at every evaluation point
    committed: dict[str, Any] | None = None  # step, version, samples, digests, seconds of the hand-over
    committed_s: float = inf
    aborted: str = ""  # why, if it was

    @property
    def begins_s(self) -> float:
        """When the first step of the strategy after may begin; infinite where it never took over."""
        return self.committed_s - STAMP_S

    @property
    def outcome(self) -> str:
        """In two words."""
        if self.committed:
            return "switched"
        return f"aborted: {self.aborted}" if self.aborted else "never switched"


def read_switch(coordinator: Log, zero_s: float) -> Switched:
    """The record in the coordinator's log; `zero_s` is its stamp of the start."""
    committed, aborted = coordinator.last("switch_committed"), coordinator.last("switch_aborted")
    points = tuple(_point(event) for event in coordinator.of("switch_rule"))
    if committed is None:
        return Switched(points, aborted=str(aborted.value["reason"]) if aborted else "")
    return Switched(points, dict(committed.value), committed.time_ms / 1000 - zero_s)


def _point(event: Event) -> dict[str, Any]:
    return {**event.value, "epoch": event.metadata.get("epoch_num"), "step": event.metadata.get("step")}
