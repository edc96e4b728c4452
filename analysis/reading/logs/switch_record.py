"""Record of a switch from one training strategy to another, read from the coordinator's log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from analysis.reading.logs.mllog import MllogEvent, NodeLog

NEVER_SWITCHED = "never switched"
COMMIT_NUMBERS = {"step": int, "samples": int, "seconds": float}  # numbers of a committed switch that are computed with
TIMESTAMP_ERROR_S = 2e-6  # two timestamps of the same moment may differ by their rounding


@dataclass(frozen=True)
class StrategySwitchRecord:
    """Strategy switch of a trial: evaluations of the rule that triggers the switch, and the outcome.

    Times are in virtual seconds.
    """

    rule_points: tuple[dict[str, Any], ...]  # value and threshold of the rule at every evaluation
    committed: dict[str, Any] | None = None  # step, version, samples, digests, and seconds that the switch took
    committed_s: float = inf
    abort_reason: str = ""  # empty if the switch was not aborted
    transfer_bytes_sent: dict[str, int] = field(default_factory=dict)  # worker -> payload bytes sent before an abort

    @property
    def second_strategy_start_s(self) -> float:
        """Virtual time at which the first step of the second strategy starts, in seconds.

        The result is infinite if training never switched.
        """
        return self.committed_s - TIMESTAMP_ERROR_S

    @property
    def outcome(self) -> str:
        """Outcome of the strategy switch as a phrase: switched, never switched, or aborted with the reason."""
        if self.committed:
            return "switched"
        return f"aborted: {self.abort_reason}" if self.abort_reason else NEVER_SWITCHED


def read_strategy_switch(node_logs: Mapping[str, NodeLog], run_start_s: float) -> StrategySwitchRecord | None:
    """Read the strategy switch of a trial from the logs of its nodes.

    `run_start_s` is a Unix timestamp. Return None if the coordinator's log was cut off, so that it shows neither a
    switch nor the end of the run.
    """
    coordinator = node_logs.get("coordinator", NodeLog(()))
    committed, aborted = coordinator.last_event("switch_committed"), coordinator.last_event("switch_aborted")
    if not (committed or aborted or coordinator.last_event("run_stop")):
        return None
    points = tuple(_parse_strategy_switch_rule(event) for event in coordinator.events_with_key("switch_rule"))
    if committed is None:
        reason = str(aborted.value["reason"]) if aborted else ""
        return StrategySwitchRecord(points, abort_reason=reason, transfer_bytes_sent=_state_transfer_bytes(node_logs))
    return StrategySwitchRecord(points, _parse_strategy_switch(committed), committed.time_ms / 1000 - run_start_s)


def _parse_strategy_switch(commit_event: MllogEvent) -> dict[str, Any]:
    """Return the value of a log event that records a strategy switch.

    Raise LookupError, TypeError or ValueError if a number is missing or invalid.
    """
    numbers = {name: convert(commit_event.value[name]) for name, convert in COMMIT_NUMBERS.items()}
    return {**commit_event.value, **numbers, "loaded": bool(commit_event.value["loaded"])}


def _state_transfer_bytes(node_logs: Mapping[str, NodeLog]) -> dict[str, int]:
    """Return the bytes that each node sent to transfer training state in a strategy switch.

    Payload bytes are counted. The keys are node names.
    """
    events = {node_name: log.last_event("node_switch") for node_name, log in node_logs.items()}
    return {node_name: int(event.value["bytes_sent"]) for node_name, event in events.items() if event}


def _parse_strategy_switch_rule(rule_event: MllogEvent) -> dict[str, Any]:
    """Return one evaluation of the rule that triggers a strategy switch.

    Raise LookupError or TypeError if a value is missing or not a number.
    """
    known = [rule_event.value[name] for name in ("value", "threshold") if rule_event.value.get(name) is not None]
    if not all(isinstance(number, int | float) for number in known):
        raise TypeError(f"switch_rule: value and threshold should be numbers, not {known}")
    epoch, step = rule_event.metadata.get("epoch_num"), rule_event.metadata.get("step")
    return {**rule_event.value, "fires": bool(rule_event.value["fires"]), "epoch": epoch, "step": step}
