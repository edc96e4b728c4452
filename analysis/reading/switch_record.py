"""What became of a switch between strategies? The coordinator's record of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from analysis.reading.mllog import Event, Log

NEVER = "never switched"
COUNTED = {"step": int, "samples": int, "seconds": float}  # what is computed with of a switch that was committed
STAMP_S = 2e-6  # two stamps of one moment may differ by their rounding


@dataclass(frozen=True)
class Switched:
    """One switch that was planned: what its rule found, and how it ended; times are virtual seconds since the start."""

    points: tuple[dict[str, Any], ...]  # what the rule found at every evaluation point
    committed: dict[str, Any] | None = None  # step, version, samples, digests, seconds of the hand-over
    committed_s: float = inf
    aborted: str = ""  # why, if it was
    given: dict[str, int] = field(default_factory=dict)  # worker -> payload bytes that it had sent when it was aborted

    @property
    def begins_s(self) -> float:
        """When the first step of the strategy after may begin; infinite where it never took over."""
        return self.committed_s - STAMP_S

    @property
    def outcome(self) -> str:
        """In two words."""
        if self.committed:
            return "switched"
        return f"aborted: {self.aborted}" if self.aborted else NEVER


def read_switch(logs: Mapping[str, Log], zero_s: float) -> Switched | None:
    """The record in the coordinator's log, of `logs` by node; `zero_s` is its stamp of the start.

    None where the log tells of no switch and does not come to the end of the run: there may have been one later.
    """
    coordinator = logs.get("coordinator", Log(()))
    committed, aborted = coordinator.last("switch_committed"), coordinator.last("switch_aborted")
    if not (committed or aborted or coordinator.last("run_stop")):
        return None
    points = tuple(_point(event) for event in coordinator.of("switch_rule"))
    if committed is None:
        return Switched(points, aborted=str(aborted.value["reason"]) if aborted else "", given=_given(logs))
    return Switched(points, _committed(committed), committed.time_ms / 1000 - zero_s)


def _committed(event: Event) -> dict[str, Any]:
    """Its record, once all is there that is computed with; a LookupError, TypeError or ValueError says what is not."""
    counts = {name: number(event.value[name]) for name, number in COUNTED.items()}
    return {**event.value, **counts, "loaded": bool(event.value["loaded"])}


def _given(logs: Mapping[str, Log]) -> dict[str, int]:
    told = {node: log.last("node_switch") for node, log in logs.items()}
    return {node: int(event.value["bytes_sent"]) for node, event in told.items() if event}


def _point(event: Event) -> dict[str, Any]:
    """What a rule found; errors as in `_committed`."""
    known = [event.value[name] for name in ("value", "threshold") if event.value.get(name) is not None]
    if not all(isinstance(each, int | float) for each in known):
        raise TypeError(f"switch_rule should tell numbers, not {known}")
    return {
        **event.value,
        "fires": bool(event.value["fires"]),
        "epoch": event.metadata.get("epoch_num"),
        "step": event.metadata.get("step"),
    }
