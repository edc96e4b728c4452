"""Checks of the events of a scenario that need predictions for its trials.

They find random events that are too frequent, and events after the end of training.
"""

from collections.abc import Callable, Iterator, Sequence
from math import inf, prod

from compose.scenario_files.swept_trial import SweptTrial, list_flows, list_training_phases
from services.cluster.cluster import Cluster
from services.cluster.events import (
    AnyDeclaredEvent,
    LinkChange,
    WorkerSlowdown,
    find_too_frequent_events,
    restrict_events_to_nodes,
)
from services.plan import Plan, random_event_horizon_s
from services.scenario.run_settings import EngineName
from services.schema.conflicts import KeyConflict, KeyPath
from services.schema.units import Duration

# Training ends at the latest after this multiple of the predicted time, plus a reserve for evaluations. The multiple is
# large because the predictions of some strategies are only estimates.
LATEST_END_FACTOR, RESERVE_S = 10.0, 60.0
HOST_S_PER_STEP = 0.01  # that predictions leave out: messages and logs take host time on engines with a real clock


def find_too_frequent_random_events(trials: Sequence[SweptTrial]) -> Iterator[KeyConflict]:
    """Yield a conflict for each random event that would occur too often.

    Each event is checked in the longest trial that has the event.
    """
    longest: dict[KeyPath, tuple[float, KeyConflict]] = {}  # key -> duration of the longest trial, its conflict
    for swept_trial in trials:
        events = swept_trial.declared.events
        if any(event.at.mean_gap_s for event in events):
            duration_s = random_event_horizon_s(swept_trial.trial)
            for conflict in find_too_frequent_events(events, duration_s, swept_trial.worker_and_server_names):
                known = longest.get(conflict.key_path, (0.0, conflict))
                longest[conflict.key_path] = max(known, (duration_s, conflict))
    for _, (path, message) in longest.values():
        yield KeyConflict(("events", *path), message)


def find_events_after_training(
    trials: Sequence[SweptTrial], resolve_engine_name: Callable[[], EngineName]
) -> Iterator[KeyConflict]:
    """Yield a conflict for each event whose `time` is after the latest end of all trials that have the event.

    Args:
        trials: all trials to check.
        resolve_engine_name: returns the engine that will run the trials; it is called only if an event may be too late.
    """
    late_trials = [
        trial for trial in trials if any((event.at.time or 0.0) > RESERVE_S for event in trial.declared.events)
    ]
    if not late_trials:
        return
    engine_name = resolve_engine_name()
    latest_end_s: dict[tuple[int, AnyDeclaredEvent], float] = {}  # the same event may be swept to several times
    for swept_trial in late_trials:
        for number, event, end_s in _events_with_latest_end(swept_trial, engine_name):
            latest_end_s[number, event] = max(end_s, latest_end_s.get((number, event), 0.0))
    for (number, event), end_s in latest_end_s.items():
        if event.at.time is not None and event.at.time > end_s:
            yield KeyConflict(("events", number, "at", "time"), _describe_late_event(event.at.time, end_s))


def _describe_late_event(time: Duration, end_s: float) -> str:
    latest = Duration(f"{int(end_s)}s")
    return (
        f"time {time} is after the end of training, which is expected before {latest} of virtual time (ten times the "
        f"predicted time, plus reserves); write a time of at most {latest}, or use step or share instead of time"
    )


def _events_with_latest_end(
    swept_trial: SweptTrial, engine_name: EngineName
) -> Iterator[tuple[int, AnyDeclaredEvent, float]]:
    """Yield the number of each event of a trial with a `time`, the event, and the latest end of training before it.

    Only events that begin earlier can delay the end, so an event is not a reason why it may begin itself.
    """
    predicted_s, declared = _predict_training_s(swept_trial, engine_name), swept_trial.declared
    names = swept_trial.worker_and_server_names
    events = [(k, event) for k, event in enumerate(declared.events) if restrict_events_to_nodes([event], names)]
    earlier_events = [event for _, event in events if event.at.time is None]  # these may begin at any time
    timed_events = [(event.at.time, k, event) for k, event in events if event.at.time is not None]
    for time, number, event in sorted(timed_events, key=lambda item: item[0]):
        end_s = _latest_training_end_s(predicted_s, earlier_events, declared.cluster)
        yield number, event, end_s
        if time <= end_s:
            earlier_events.append(event)


def _predict_training_s(swept_trial: SweptTrial, engine_name: EngineName) -> float:
    """Return the predicted training time of a trial without its events, in virtual seconds.

    Return inf if the time is unpredictable.
    """
    if swept_trial.trial.scenario.workers_without_throughput:
        return inf
    plan = swept_trial.plan_without_events(engine_name)
    if _is_plan_unpredictable(plan):
        return inf
    return plan.predicted_s + (0.0 if engine_name == "simulated" else HOST_S_PER_STEP * plan.steps)


def _is_plan_unpredictable(plan: Plan) -> bool:
    """Return whether predictions leave out lost or late packets, or the host's time to send over unlimited links."""
    if any(path.losses or path.jitters for path in plan.network.paths):
        return True
    flows = {flow for phase in list_training_phases(plan) for flow in list_flows(plan, phase)}
    transfer_s = plan.step_cost_model.transfer_s
    return plan.engine != "simulated" and any(transfer_s([(flow, 1.0)]) == 0.0 for flow in flows)


def _latest_training_end_s(predicted_s: float, events: Sequence[AnyDeclaredEvent], cluster: Cluster) -> float:
    """Return a virtual time after which no trial trains, or inf if the time cannot be predicted.

    Args:
        predicted_s: predicted training time without events.
        events: events that may delay the end.
        cluster: the cluster whose links and workers the events change.
    """
    if any(_is_event_unpredictable(event) for event in events):
        return inf
    slowdowns = [max(1.0, event.factor) for event in events if isinstance(event, WorkerSlowdown)]
    slowdowns += [_link_slowdown(event, cluster) for event in events if isinstance(event, LinkChange)]
    event_durations_s = 2 * sum(event.lasts or 0.0 for event in events)  # TCP may wait as long again after a partition
    return LATEST_END_FACTOR * prod(slowdowns) * predicted_s + RESERVE_S + event_durations_s


def _is_event_unpredictable(event: AnyDeclaredEvent) -> bool:
    """Return whether no bound is known for the time by which an event delays the end of training."""
    changes_packets = isinstance(event, LinkChange) and (event.delay is not None or event.loss is not None)
    return changes_packets or event.at.recurrence is not None


def _link_slowdown(link_change: LinkChange, cluster: Cluster) -> float:
    """Return the largest factor by which an event slows down a link."""
    changes = (("uplink", link_change.uplink), ("downlink", link_change.downlink))
    factors = (
        (getattr(cluster.access_link(name), key) or new_bps) / new_bps
        for name in link_change.of
        for key, new_bps in changes
        if new_bps
    )
    return max(1.0, *factors)
