"""Reduction of a fault schedule that violates an invariant to a smaller one that still violates it."""

from collections.abc import Iterator

from pydantic import ValidationError

from ensayo.fault_search.event_kinds import EVENT_KINDS, EventDocument
from ensayo.fault_search.fault_schedule import FaultSchedule
from ensayo.fault_search.invariants import Violation, find_violation

NODE_KEYS = ("of", "apart")  # of events: lists of node names
MAX_ATTEMPTS = 200


def shrink_schedule(schedule: FaultSchedule, violation: Violation) -> FaultSchedule:
    """Return a schedule from which nothing can be removed without losing the violation.

    Candidates are tried greedily: without disturbances of messages and calls, without one event, with fewer workers,
    with fewer steps. At most `MAX_ATTEMPTS` candidates are simulated.
    """
    attempts = 0
    candidates = _smaller_schedules(schedule)
    while (candidate := next(candidates, None)) is not None and attempts < MAX_ATTEMPTS:
        attempts += 1
        if _violates(candidate, violation.invariant):
            schedule = candidate
            candidates = _smaller_schedules(schedule)
    return schedule


def _violates(schedule: FaultSchedule, invariant: str) -> bool:
    try:
        violation = find_violation(schedule)
    except (ValueError, ValidationError):
        return False  # the strategy does not allow this number of workers or steps
    return violation is not None and violation.invariant == invariant


def _smaller_schedules(schedule: FaultSchedule) -> Iterator[FaultSchedule]:
    """Yield schedules with one part less than `schedule`, the largest parts first."""
    yield from _with_fewer_message_faults(schedule)
    for k in range(len(schedule.events)):
        yield schedule.model_copy(update={"events": schedule.events[:k] + schedule.events[k + 1 :]})
    if schedule.recovery and not any(EVENT_KINDS[event["kind"]].needs_recovery for event in schedule.events):
        yield schedule.model_copy(update={"recovery": {}})
    if schedule.uneven:
        yield schedule.model_copy(update={"uneven": False})
    for workers in range(1, schedule.workers):
        yield _with_workers(schedule, workers)
    for steps in range(2, schedule.steps, 2):
        yield schedule.model_copy(update={"steps": steps})


def _with_fewer_message_faults(schedule: FaultSchedule) -> Iterator[FaultSchedule]:
    messages = schedule.messages
    if messages is None:
        return
    yield schedule.model_copy(update={"messages": None})
    for key, harmless_value in (("duplicated", 0.0), ("delayed", 0.0), ("delayed_calls", 0.0), ("keeps_order", True)):
        if getattr(messages, key) != harmless_value:
            smaller = messages.model_copy(update={key: harmless_value})
            yield schedule.model_copy(update={"messages": smaller})


def _with_workers(schedule: FaultSchedule, workers: int) -> FaultSchedule:
    """Return the schedule with fewer workers, and without their names in events."""
    removed = {f"worker-{rank}" for rank in range(workers, schedule.workers)}
    events = [_without_nodes(event, removed) for event in schedule.events]
    return schedule.model_copy(
        update={"workers": workers, "events": tuple(event for event in events if event is not None)}
    )


def _without_nodes(event: EventDocument, removed_names: set[str]) -> EventDocument | None:
    """Return an event without some nodes; None if it has no other nodes."""
    for key in NODE_KEYS:
        if key in event:
            names = [name for name in event[key] if name not in removed_names]
            return {**event, key: names} if names else None
    return event
