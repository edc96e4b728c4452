"""Rate of failures that a scenario declares by random events."""

from typing import Any

from analysis.reading.plan_view import NODE_LOSS_EVENTS, TrialPlan
from services.cluster.events import PlannedEvent


def declared_failure_interval_s(plan: TrialPlan) -> float | None:
    """Return the mean time between failures of all nodes together, in virtual seconds.

    Rates of several declared events add up. An event that ends several nodes at once is one failure. Return None if no
    random event that ends nodes occurs in the trial, or if a law has no mean, such as a trace.
    """
    declared = {repr(event.change): event for event in plan.events if event.change.kind in NODE_LOSS_EVENTS}
    rates = [_failures_per_second(event) for event in declared.values()]
    known = [rate for rate in rates if rate is not None]
    return 1 / sum(known) if known and len(known) == len(rates) else None


def _failures_per_second(event: PlannedEvent) -> float | None:
    trigger: dict[str, Any] = event.change.at.model_dump()
    if trigger.get("random"):
        return 1 / (float(trigger["random"]) + float(event.change.lasts or 0.0))  # gaps begin at the end of an event
    mean_s = (trigger.get("law") or {}).get("mean")
    process_count = len(event.change.node_names) if trigger.get("per") == "node" else 1
    return process_count / float(mean_s) if mean_s else None
