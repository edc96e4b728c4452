"""Checks of a scenario that need predictions for its trials.

They find random events that are too frequent, events that would never occur, and links that are too slow for a message.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil, inf, prod

from services.cluster.addresses import DummyAddresses
from services.cluster.cluster import Cluster, cluster_node_names
from services.cluster.events import (
    AnyDeclaredEvent,
    LinkChange,
    WorkerSlowdown,
    find_too_frequent_events,
    restrict_events_to_nodes,
)
from services.plan import Plan, PostSwitchPhasePlan, make_plan, random_event_horizon_s
from services.scenario.scenario import Scenario, TrialSpec
from services.scenario.workload import learning_task_of
from services.schema.conflicts import KeyConflict, KeyPath
from services.strategies.cost_model import Flow, LinkId

# Training ends at the latest after this multiple of the predicted time, plus time for evaluations. The multiple is
# large because the predictions of some strategies are only estimates.
LATEST_END_FACTOR, EVALUATION_MARGIN_S = 10.0, 60.0
MAX_PARAMETER_BITS = 64  # of the widest type of parameters


def find_too_frequent_random_events(scenario: Scenario) -> Iterator[KeyConflict]:
    """Yield a conflict for each random event that would occur too often.

    Each event is checked in the longest trial that has the event.
    """
    longest: dict[KeyPath, tuple[float, KeyConflict]] = {}  # key -> duration of the longest trial, its conflict
    for trial, events in _trials_with_declared_events(scenario):
        if any(event.at.random for event in events):
            duration_s = random_event_horizon_s(trial)
            for conflict in find_too_frequent_events(events, duration_s, _data_node_names(trial)):
                known = longest.get(conflict.key_path, (0.0, conflict))
                longest[conflict.key_path] = max(known, (duration_s, conflict))
    for _, (path, message) in longest.values():
        yield KeyConflict(("events", *path), message)


def find_late_events(scenario: Scenario) -> Iterator[KeyConflict]:
    """Yield a conflict for each event whose `time` is after the latest end of all trials that have the event."""
    latest_end_s: dict[int, float] = {}  # number of an event -> latest end of a trial in which the event is late
    timely: set[int] = set()
    for trial, events in _trials_with_declared_events(scenario):
        end_s = _latest_training_end_s(trial, events) if any(event.at.time is not None for event in events) else inf
        for number, event in enumerate(events):
            if event.at.time is None or not restrict_events_to_nodes([event], _data_node_names(trial)):
                continue
            if event.at.time <= end_s:
                timely.add(number)
            latest_end_s[number] = max(end_s, latest_end_s.get(number, 0.0))
    for number in sorted(latest_end_s.keys() - timely):
        yield KeyConflict(
            ("events", number, "at", "time"),
            f"the event would never occur: training ends within {latest_end_s[number]:,.0f} s, even if it takes ten "
            "times the predicted time; write an earlier time, or use step or share instead of time",
        )


def find_link_slower_than_timeout(trial: TrialSpec) -> Iterator[KeyConflict]:
    """Yield a conflict if a link transfers one message for longer than nodes wait for it (`timeouts.step`)."""
    cluster, timeouts = trial.scenario.cluster, trial.scenario.timeouts
    if MAX_PARAMETER_BITS * _parameter_count(trial) <= timeouts.step * cluster.slowest_link_bps:
        return
    plan = _plan_without_events(trial)
    limit_s = plan.message_timeout_s + plan.predicted.compute_s * plan.exchange_period
    phases = (plan, plan.second_phase) if plan.second_phase else (plan,)
    transfers = [transfer for phase in phases for transfer in _message_transfer_times_s(plan, phase)]
    transfer_s, message_bytes, link = max(transfers, key=lambda transfer: transfer[0], default=(0.0, 0.0, ("", "")))
    if transfer_s > limit_s:
        key_path, description = _describe_link(cluster, link)
        yield KeyConflict(
            key_path,
            f"{description} needs {transfer_s:,.0f} s for one message of {message_bytes:,.0f} bytes, longer than nodes "
            f"wait for a message (timeouts.step: {timeouts.step}); declare a faster link, or increase timeouts.step",
        )


def _trials_with_declared_events(scenario: Scenario) -> Iterator[tuple[TrialSpec, Sequence[AnyDeclaredEvent]]]:
    """Yield one trial for each strategy and combination of swept values, with all events that the scenario declares.

    Events of the trial itself are only those of its nodes. Nothing is yielded if the scenario has no events.
    """
    swept_paths = [path for name, axis in scenario.sweep.items() for path in axis.swept_key_paths(name)]
    if not scenario.events and not any(path.startswith("events") for path in swept_paths):
        return
    for identity in scenario.all_trial_identities():
        if identity.repeat == 0:
            events = Scenario.decode(scenario.document_with_swept_values(identity)).events
            yield scenario.trial(identity), events


def _data_node_names(trial: TrialSpec) -> tuple[str, ...]:
    return cluster_node_names(trial.scenario.cluster.workers, trial.strategy.training_phases().server_count)


def _latest_training_end_s(trial: TrialSpec, events: Sequence[AnyDeclaredEvent]) -> float:
    """Return a virtual time after which the trial trains no more, or inf if the time cannot be predicted."""
    link_changes = [event for event in events if isinstance(event, LinkChange)]
    has_open_end = any(event.at.random for event in events) or any(
        event.delay is not None or event.loss is not None for event in link_changes
    )
    if has_open_end or trial.scenario.workers_without_throughput:
        return inf
    slowdowns = [max(1.0, event.factor) for event in events if isinstance(event, WorkerSlowdown)]
    slowdowns += [_link_slowdown(event, trial.scenario.cluster) for event in link_changes]
    pauses_s = 2 * sum(event.lasts or 0.0 for event in events)  # TCP may wait as long again after a partition
    predicted_s = _plan_without_events(trial).predicted_s
    return LATEST_END_FACTOR * prod(slowdowns) * predicted_s + EVALUATION_MARGIN_S + pauses_s


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


def _plan_without_events(trial: TrialSpec) -> Plan:
    scenario = trial.scenario.model_copy(update={"events": ()})
    return make_plan(trial.model_copy(update={"scenario": scenario}), "", "local", DummyAddresses())


def _parameter_count(trial: TrialSpec) -> int:
    workload = trial.scenario.workload
    return workload.model.parameter_layout(learning_task_of(workload.dataset).task).parameter_count


def _message_transfer_times_s(plan: Plan, phase: Plan | PostSwitchPhasePlan) -> Iterator[tuple[float, float, LinkId]]:
    """Yield for each sender, receiver and link between them: seconds and bytes of the sender's mean message, and link.

    Vectors are cut into the smallest messages of any engine, so no engine sends shorter messages on average.
    """
    flows = list(_list_flows(plan, phase))
    flow_counts = Counter(source for source, _ in flows)
    max_message_bytes = phase.schedule.max_message_bytes(plan.vector_bytes, *plan.message_size_limits)
    for source, target in dict.fromkeys(flows):
        vector_bytes = phase.bytes_per_step[source] * plan.exchange_period / flow_counts[source]
        message_bytes = vector_bytes / max(1, ceil(vector_bytes / max_message_bytes))
        for link, busy_s in plan.step_cost_model.busy_s_by_link([((source, target), message_bytes)]).items():
            yield busy_s, message_bytes, link


def _list_flows(plan: Plan, phase: Plan | PostSwitchPhasePlan) -> Iterator[Flow]:
    """Yield (sender, receiver) of each vector or chunk that nodes send in one exchange of a training phase."""
    workers = plan.step_cost_model.workers
    for transfer in phase.schedule.transfers_of_all_rounds:
        if transfer.kind != "token":
            yield workers[transfer.source], workers[transfer.target]
    if not phase.schedule.rounds:
        for worker, owner in plan.worker_server_push_pairs:
            yield from ((worker, owner), (owner, worker))


def _describe_link(cluster: Cluster, link: LinkId) -> tuple[KeyPath, str]:
    """Return the key that declares a link, and a description of the link."""
    direction, node = link
    if isinstance(node, int):
        return ("cluster",), "a link that nodes share, or of a pair of nodes,"
    role, _, rank = node.rpartition("-")
    key = {"up": "uplink", "down": "downlink"}[direction]
    group = next((k for k, group in enumerate(cluster.groups) if role == "worker" and int(rank) in group.ranks), None)
    overrides = group is not None and (getattr(cluster.groups[group], key) or cluster.groups[group].link)
    section: KeyPath = ("cluster", "groups", group or 0) if overrides else ("cluster", role)
    return (*section, key), f"{node}'s {key}"
