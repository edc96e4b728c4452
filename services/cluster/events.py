"""Events that change links, workers or nodes while a trial runs.

The module defines events as a scenario declares them, and events as planned for a trial.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, ClassVar, Literal, TypeAlias, get_args

from pydantic import Field, PositiveFloat

from services.cluster.connection_drop import ConnectionDrop
from services.cluster.declared_event import NODE_GROUPS, STOPPED_COMPUTE, EventApplier, LastingEvent
from services.cluster.disk_full import DiskFull
from services.cluster.failure_laws import FailureTrace, RecurringEvent
from services.cluster.links.impairments import AnyPacketLoss
from services.cluster.links.message_corruption import MessageCorruption
from services.cluster.node_faults import COORDINATOR, AnyNodeFault, NodeFault
from services.schema.component import FrozenRecord
from services.schema.conflicts import KeyConflict
from services.schema.message_paths import path_for_messages
from services.schema.units import Duration, Rate

# Per declared event. More occurrences would take longer to draw and to apply than the training that they disturb.
MAX_RANDOM_OCCURRENCES = 10_000


class LinkChange(LastingEvent):
    """Change of the access links of some nodes during a trial.

    A link property that is left out keeps its value.
    """

    kind: Literal["link"] = "link"
    applied_by: ClassVar[EventApplier] = "links"
    of: tuple[str, ...] = Field(
        min_length=1, description="names of the nodes, such as worker-0, or workers or servers for all of them"
    )
    uplink: Rate | None = Field(None, description="new rate at which the nodes send")
    downlink: Rate | None = Field(None, description="new rate at which the nodes receive")
    delay: Duration | None = Field(None, description="time added to the one-way delay of the links")
    loss: AnyPacketLoss | None = Field(None, description="packet loss in addition to the declared one")


class NetworkPartition(LastingEvent):
    """Partition of the network into two sides, across which messages do not arrive in one or both directions."""

    node_key: ClassVar[str] = "apart"
    kind: Literal["partition"] = "partition"
    applied_by: ClassVar[EventApplier] = "links"
    apart: tuple[str, ...] = Field(min_length=1, description="nodes on one side; all other nodes are on the other side")
    lasts: Duration = Field(description="duration of the partition; nodes wait for each other meanwhile")
    direction: Literal["both", "from_apart", "to_apart"] = Field(
        "both",
        description="messages that do not arrive: between the two sides, only from the nodes in apart, or only to them",
    )

    def blocks(self, source: str, target: str) -> bool:
        """Return whether messages from one node to another do not arrive."""
        if (source in self.apart) == (target in self.apart):
            return False
        return self.direction == "both" or (self.direction == "from_apart") == (source in self.apart)


class WorkerSlowdown(LastingEvent):
    """Slower computation on some workers during a trial.

    The scenario must declare the compute speed of these workers.
    """

    kind: Literal["slowdown"] = "slowdown"
    applied_by: ClassVar[EventApplier] = "worker"
    of: tuple[str, ...] = Field(
        min_length=1, description="names of the workers, such as worker-0, or workers for all of them"
    )
    factor: PositiveFloat = Field(description="factor by which the compute time of a step is multiplied")

    @property
    def compute_time_factor(self) -> float:
        return self.factor


class WorkerPause(LastingEvent):
    """Pause of some workers, as during the migration of a virtual machine."""

    kind: Literal["pause"] = "pause"
    applied_by: ClassVar[EventApplier] = "worker"
    of: tuple[str, ...] = Field(
        min_length=1, description="names of the workers, such as worker-0, or workers for all of them"
    )
    lasts: Duration = Field(description="duration of the pause")

    @property
    def compute_time_factor(self) -> float:
        return STOPPED_COMPUTE


AnyDeclaredEvent: TypeAlias = Annotated[
    LinkChange
    | NetworkPartition
    | WorkerSlowdown
    | WorkerPause
    | ConnectionDrop
    | MessageCorruption
    | DiskFull
    | AnyNodeFault,
    Field(discriminator="kind"),
]


DECLARED_EVENT_KINDS = frozenset(kind.model_fields["kind"].default for kind in get_args(get_args(AnyDeclaredEvent)[0]))


class PlannedEvent(FrozenRecord):
    """One planned occurrence of an event, which begins at a virtual time or with a training step."""

    number: int  # position in the plan's list of events
    time_s: float | None  # virtual, since the start of training
    step: int | None
    change: AnyDeclaredEvent
    declared_index: int = 0  # position in the scenario's list of events

    @property
    def is_link_event(self) -> bool:
        """Whether the event changes links, so that the link shaper applies it."""
        return self.change.applied_by == "links"

    @property
    def is_node_fault(self) -> bool:
        """Whether the event is a fault of nodes, which the engine applies."""
        return self.change.applied_by == "engine"

    def dropped_peers_of(self, node_name: str) -> tuple[str, ...]:
        """Return the nodes to which the event ends the connections of a node; none for other kinds of events."""
        return self.change.peers_of(node_name) if isinstance(self.change, ConnectionDrop) else ()

    @property
    def node_fault(self) -> AnyNodeFault:
        """The fault of nodes that the event is.

        Raises:
            TypeError: the event is no fault of nodes.
        """
        if not isinstance(self.change, NodeFault):
            raise TypeError(f"a {self.change.kind} is no fault of nodes")
        return self.change

    def is_due_at_step_of(self, worker_name: str, step: int) -> bool:
        """Return whether the coordinator starts the event, at the latest, when this worker begins this step."""
        is_due = self.step is not None and self.step <= step
        return is_due and self.change.applied_by != "worker" and self.change.is_triggered_by_step_of(worker_name)


def plan_event_occurrences(
    declared_events: Sequence[AnyDeclaredEvent],
    step_count: int,
    random_events_end_s: float,
    seed: int,
    declared_positions: Sequence[int] | None = None,
) -> tuple[PlannedEvent, ...]:
    """Return all planned occurrences of the events of a trial.

    Events that begin at a time come first, in order. Events that begin at a training step follow.

    Args:
        declared_events: as the scenario lists them.
        step_count: steps of the training budget.
        random_events_end_s: virtual seconds up to which random events are drawn.
        seed: seed of the trial.
        declared_positions: positions of the events in the list of the scenario file; None: as they are listed here.
    """
    occurrences = [
        (*moment_and_change, position if declared_positions is None else declared_positions[position])
        for position, event in enumerate(declared_events)
        for moment_and_change in _event_occurrences(event, position, step_count, random_events_end_s, seed)
    ]
    occurrences.sort(key=lambda item: (item[0] is None, item[0] or 0.0, item[1] or 0))
    return tuple(
        PlannedEvent(number=number, time_s=time_s, step=step, change=change, declared_index=index)
        for number, (time_s, step, change, index) in enumerate(occurrences)
    )


def _event_occurrences(
    declared_event: AnyDeclaredEvent, event_index: int, step_count: int, random_events_end_s: float, seed: int
) -> Iterator[tuple[float | None, int | None, AnyDeclaredEvent]]:
    """Yield every occurrence of an event, each with its virtual time or its training step.

    An occurrence is (virtual time in seconds, None, event) or (None, step, event). The event has the nodes of this
    occurrence only.
    """
    trigger = declared_event.at
    if trigger.time is not None:
        yield float(trigger.time), None, declared_event
    elif trigger.recurrence is not None:
        for occurrence in trigger.recurrence.iter_occurrences(
            RecurringEvent(
                kind=declared_event.kind,
                node_names=declared_event.node_names,
                lasts_s=declared_event.lasts or 0.0,
                is_per_node=trigger.is_per_node,
                end_s=random_events_end_s,
                make_rng=lambda name: Random(f"{seed} event {event_index} {name}".rstrip()),
            )
        ):
            restricted_event = declared_event.restrict_to_nodes(occurrence.node_names)
            at = trigger.without_recorded_values()
            yield occurrence.time_s, None, restricted_event.model_copy(update={"at": at})
    elif trigger.step is not None:
        yield None, trigger.step, declared_event
    else:
        yield None, min(int((trigger.share or 0.0) * step_count), step_count - 1), declared_event


def mean_time_between_failures_s(declared_events: Sequence[AnyDeclaredEvent]) -> float | None:
    """Return the declared mean time between failures of all nodes together, in virtual seconds.

    A failure is a random event that ends nodes; several nodes that an event ends at once are one failure. Rates of
    events add up. Return None without such an event, or if one of them has no mean, such as a trace.
    """
    rate = 0.0  # per virtual second
    for event in declared_events:
        if not isinstance(event, NodeFault) or not event.ends_nodes:
            continue
        if event.at.mean_gap_s is None:
            return None
        series_count = len(event.node_names) if event.at.is_per_node else 1
        rate += series_count / (event.at.mean_gap_s + (event.lasts or 0.0))  # gaps begin at the end of an occurrence
    return 1 / rate if rate else None


def find_too_frequent_events(
    declared_events: Sequence[AnyDeclaredEvent], random_events_end_s: float, node_names: Collection[str]
) -> Iterator[KeyConflict]:
    """Yield a `KeyConflict` for each random event that would occur too often.

    The limit is `MAX_RANDOM_OCCURRENCES` occurrences. Events whose nodes are all absent from `node_names` are skipped.
    """
    for k, event in enumerate(declared_events):
        mean_gap_s, lasts_s = event.at.mean_gap_s, event.lasts or 0.0
        own_events = restrict_events_to_nodes([event], node_names)
        if mean_gap_s is None or not own_events:
            continue
        series_count = len(own_events[0].node_names) if event.at.is_per_node else 1
        all_series_s = series_count * random_events_end_s
        if all_series_s / (mean_gap_s + lasts_s) <= MAX_RANDOM_OCCURRENCES:
            continue
        smallest_gap = Duration(f"{1e3 * (1.1 * all_series_s / MAX_RANDOM_OCCURRENCES - lasts_s):.2g}ms")
        nodes = f" on each of {series_count} nodes" if series_count > 1 else ""
        yield KeyConflict(
            (k, "at", *event.at.mean_gap_key),
            f"a mean gap of {mean_gap_s}{nodes} gives more than {MAX_RANDOM_OCCURRENCES:,} events in "
            f"{random_events_end_s:.3g} s, three times the predicted duration of the trial; "
            f"write {smallest_gap} or more",
        )


def restrict_events_to_nodes(
    events: Iterable[AnyDeclaredEvent], node_names: Collection[str]
) -> tuple[AnyDeclaredEvent, ...]:
    """Return the events that change nodes in `node_names` or the coordinator, each limited to these nodes."""
    known_names = dict.fromkeys((*node_names, COORDINATOR))  # in the order of the nodes, and quickly searched
    restricted = (event.restrict_to_nodes(known_names) for event in events)
    return tuple(event for event in restricted if event.node_names)


def find_positions_of_events(events: Sequence[AnyDeclaredEvent], node_names: Collection[str]) -> tuple[int, ...]:
    """Return the positions of the events that `restrict_events_to_nodes` returns, in the list of all events."""
    return tuple(k for k, event in enumerate(events) if restrict_events_to_nodes([event], node_names))


def event_conflicts(declared_events: Sequence[AnyDeclaredEvent], node_names: Collection[str]) -> Iterator[KeyConflict]:
    """Yield a `KeyConflict` for each unknown node and each contradiction in a list of declared events.

    Args:
        declared_events: the events; key paths start at this list.
        node_names: names of all nodes on the data network.
    """
    for k, declared_event in enumerate(declared_events):
        event = declared_event.expand_node_groups(node_names)
        if len(event.at.declared_trigger_key_names) != 1:
            yield KeyConflict((k, "at"), "declare exactly one of time, step, share, random and law")
        yield from _find_law_conflicts(k, event)
        known_names = (*node_names, COORDINATOR) if event.may_concern_coordinator else node_names
        for name in event.node_names:
            if name not in known_names:
                groups = [group for group, start in NODE_GROUPS.items() if any(n.startswith(start) for n in node_names)]
                allowed = ", ".join((*known_names, *groups))
                yield KeyConflict((k, event.node_key), f"there is no node {name}; allowed are {allowed}")
            elif event.applied_by == "worker" and not name.startswith("worker-"):
                yield KeyConflict(
                    (k, event.node_key), f"{name} is not a worker; a {event.kind} applies to workers only"
                )
        yield from _find_conflicts_of_kind(k, event, node_names)


def _find_conflicts_of_kind(k: int, event: AnyDeclaredEvent, node_names: Collection[str]) -> Iterator[KeyConflict]:
    """Yield the contradictions that only one kind of events can have."""
    if isinstance(event, LinkChange) and not any((event.uplink, event.downlink, event.delay, event.loss)):
        yield KeyConflict((k,), "changes nothing; declare at least one of uplink, downlink, delay and loss")
    if isinstance(event, NetworkPartition) and set(event.apart) >= set(node_names):
        yield KeyConflict((k, "apart"), "lists all nodes; at least one node must be on the other side")
    if isinstance(event, ConnectionDrop) and len(set(event.of)) == 1:
        yield KeyConflict((k, "of"), "lists one node; a connection has two, so list at least two nodes")
    if isinstance(event, ConnectionDrop) and event.at.is_per_node:
        yield KeyConflict(
            (k, "at", "law"), "per: node draws times for each node, but a connection has two nodes; write per: event"
        )


def _find_law_conflicts(event_index: int, event: AnyDeclaredEvent) -> Iterator[KeyConflict]:
    law = event.at.law
    if event.at.per is not None and (law is None or law.mean_gap_s is None):
        yield KeyConflict((event_index, "at", "per"), "has an effect only with a law that draws gaps; remove it")
    if not isinstance(law, FailureTrace):
        return
    if not law.recorded:
        message = f"the file {law.file} has not been read; load the scenario with load_scenario, and don't sweep events"
        yield KeyConflict((event_index, "at", "law", "file"), message)
    elif not law.failures_of(event.kind, event.node_names):
        names, file = ", ".join(event.node_names), path_for_messages(Path(law.file))
        message = f"{file} has no failure of kind {event.kind} of {names}; remove the event, or list other nodes"
        yield KeyConflict((event_index, "at", "law", "file"), message)
