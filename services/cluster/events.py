"""Events that change links or workers while a trial runs.

The module defines events as a scenario declares them, and events as planned for a trial.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from random import Random
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, NonNegativeInt, PositiveFloat

from services.cluster.links.impairments import AnyPacketLoss
from services.schema.component import FrozenRecord, ScenarioComponent
from services.schema.conflicts import KeyConflict
from services.schema.units import Duration, Rate

# Per declared event. More occurrences would take longer to draw and to apply than the training that they disturb.
MAX_RANDOM_OCCURRENCES = 10_000


class EventTrigger(FrozenRecord):
    """Moment at which an event begins, as a scenario declares it.

    Exactly one of the keys `time`, `step`, `share` and `random` is declared.
    """

    time: Duration | None = Field(None, description="virtual time since the start of training")
    step: NonNegativeInt | None = Field(
        None,
        description="training step, from 0: an event of workers begins when the worker itself begins the step, an "
        "event of links when the first worker does",
    )
    share: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None, description="share of the budget's steps that are done; the event begins with the next step"
    )
    random: Duration | None = Field(
        None,
        description="mean gap from the end of one occurrence of a repeated event to the next; gaps are exponential and "
        "drawn from the seed",
    )

    @property
    def declared_trigger_key_names(self) -> tuple[str, ...]:
        """Names of the keys by which the scenario declares the moment of the event.

        The possible keys are `time`, `step`, `share` and `random`.
        """
        return tuple(key for key, value in self if value is not None)


class DeclaredLinkOrWorkerEvent(ScenarioComponent):
    """Change of links or workers that begins during a trial, as a scenario declares it."""

    at: EventTrigger = Field(description="moment at which the event begins")
    lasts: Duration | None = Field(
        None, description="time after which the change is undone; when absent, it stays until the end of the trial"
    )

    node_key: ClassVar[str] = "of"  # the key that lists the nodes

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes that the event changes."""
        names: tuple[str, ...] = getattr(self, self.node_key)
        return names

    def restrict_to_nodes(self, node_names: Collection[str]) -> Self:
        """Return a copy of this event that changes only the nodes in `node_names`."""
        return self.model_copy(update={self.node_key: tuple(name for name in self.node_names if name in node_names)})


class LinkChange(DeclaredLinkOrWorkerEvent):
    """Change of the access links of some nodes during a trial.

    A link property that is left out keeps its value.
    """

    kind: Literal["link"] = "link"
    of: tuple[str, ...] = Field(min_length=1, description="names of the nodes, such as worker-0")
    uplink: Rate | None = Field(None, description="new rate at which the nodes send")
    downlink: Rate | None = Field(None, description="new rate at which the nodes receive")
    delay: Duration | None = Field(None, description="time added to the one-way delay of the links")
    loss: AnyPacketLoss | None = Field(None, description="packet loss in addition to the declared one")


class NetworkPartition(DeclaredLinkOrWorkerEvent):
    """Partition of the network into two sides whose nodes cannot reach each other."""

    node_key: ClassVar[str] = "apart"
    kind: Literal["partition"] = "partition"
    apart: tuple[str, ...] = Field(min_length=1, description="nodes on one side; all other nodes are on the other side")
    lasts: Duration = Field(description="duration of the partition; nodes wait for each other meanwhile")


class WorkerSlowdown(DeclaredLinkOrWorkerEvent):
    """Slower computation on some workers during a trial.

    The scenario must declare the compute speed of these workers.
    """

    kind: Literal["slowdown"] = "slowdown"
    of: tuple[str, ...] = Field(min_length=1, description="names of the workers, such as worker-0")
    factor: PositiveFloat = Field(description="factor by which the compute time of a step is multiplied")


class WorkerPause(DeclaredLinkOrWorkerEvent):
    """Pause of some workers, as during the migration of a virtual machine."""

    kind: Literal["pause"] = "pause"
    of: tuple[str, ...] = Field(min_length=1, description="names of the workers, such as worker-0")
    lasts: Duration = Field(description="duration of the pause")


AnyDeclaredEvent: TypeAlias = Annotated[
    LinkChange | NetworkPartition | WorkerSlowdown | WorkerPause, Field(discriminator="kind")
]


class PlannedEvent(FrozenRecord):
    """One planned occurrence of an event, which begins at a virtual time or with a training step."""

    number: int  # position in the plan's list of events
    time_s: float | None  # virtual, since the start of training
    step: int | None
    change: AnyDeclaredEvent

    @property
    def is_link_event(self) -> bool:
        """Whether the event changes links.

        The link shaper applies such events; workers apply all other events.
        """
        return isinstance(self.change, LinkChange | NetworkPartition)


def plan_event_occurrences(
    declared_events: Sequence[AnyDeclaredEvent], step_count: int, random_events_end_s: float, seed: int
) -> tuple[PlannedEvent, ...]:
    """Return all planned occurrences of the events of a trial.

    Events that begin at a time come first, in order. Events that begin at a training step follow.

    Args:
        declared_events: as the scenario lists them.
        step_count: steps of the training budget.
        random_events_end_s: virtual seconds up to which random events are drawn.
        seed: seed of the trial.
    """
    occurrences = [
        moment
        for position, event in enumerate(declared_events)
        for moment in _event_occurrences(event, position, step_count, random_events_end_s, seed)
    ]
    occurrences.sort(key=lambda item: (item[0] is None, item[0] or 0.0, item[1] or 0))
    return tuple(
        PlannedEvent(number=number, time_s=time_s, step=step, change=event)
        for number, (time_s, step, event) in enumerate(occurrences)
    )


def _event_occurrences(
    declared_event: AnyDeclaredEvent, event_index: int, step_count: int, random_events_end_s: float, seed: int
) -> Iterator[tuple[float | None, int | None, AnyDeclaredEvent]]:
    """Yield every occurrence of an event, each with its virtual time or its training step.

    An occurrence is (virtual time in seconds, None, event) or (None, step, event).
    """
    trigger = declared_event.at
    if trigger.time is not None:
        yield float(trigger.time), None, declared_event
    elif trigger.random is not None:
        rng, time_s = Random(f"{seed} event {event_index}"), 0.0
        while (time_s := time_s + rng.expovariate(1 / trigger.random)) < random_events_end_s:
            yield time_s, None, declared_event
            time_s += declared_event.lasts or 0.0
    elif trigger.step is not None:
        yield None, trigger.step, declared_event
    else:
        yield None, min(int((trigger.share or 0.0) * step_count), step_count - 1), declared_event


def find_too_frequent_events(
    declared_events: Sequence[AnyDeclaredEvent], random_events_end_s: float, node_names: Collection[str]
) -> Iterator[KeyConflict]:
    """Yield a `KeyConflict` for each random event that would occur too often.

    The limit is `MAX_RANDOM_OCCURRENCES` occurrences. Events whose nodes are all absent from `node_names` are skipped.
    """
    for k, event in enumerate(declared_events):
        mean_gap, lasts_s = event.at.random, event.lasts or 0.0
        if mean_gap is None or not restrict_events_to_nodes([event], node_names):
            continue
        if random_events_end_s / (mean_gap + lasts_s) <= MAX_RANDOM_OCCURRENCES:
            continue
        smallest_gap = Duration(f"{1e3 * (1.1 * random_events_end_s / MAX_RANDOM_OCCURRENCES - lasts_s):.2g}ms")
        yield KeyConflict(
            (k, "at", "random"),
            f"a mean gap of {mean_gap} gives more than {MAX_RANDOM_OCCURRENCES:,} events in "
            f"{random_events_end_s:.3g} s, three times the predicted duration of the trial; "
            f"write {smallest_gap} or more",
        )


def restrict_events_to_nodes(
    events: Iterable[AnyDeclaredEvent], node_names: Collection[str]
) -> tuple[AnyDeclaredEvent, ...]:
    """Return the events that change nodes in `node_names`, each limited to these nodes."""
    return tuple(event.restrict_to_nodes(node_names) for event in events if set(event.node_names) & set(node_names))


def event_conflicts(declared_events: Sequence[AnyDeclaredEvent], node_names: Collection[str]) -> Iterator[KeyConflict]:
    """Yield a `KeyConflict` for each unknown node and each contradiction in a list of declared events.

    Args:
        declared_events: the events; key paths start at this list.
        node_names: names of all nodes on the data network.
    """
    for k, event in enumerate(declared_events):
        if len(event.at.declared_trigger_key_names) != 1:
            yield KeyConflict((k, "at"), "declare exactly one of time, step, share and random")
        for name in event.node_names:
            if name not in node_names:
                yield KeyConflict((k, event.node_key), f"there is no node {name}; nodes are {', '.join(node_names)}")
            elif isinstance(event, WorkerSlowdown | WorkerPause) and not name.startswith("worker-"):
                yield KeyConflict(
                    (k, event.node_key), f"{name} is not a worker; a {event.kind} applies to workers only"
                )
        if isinstance(event, LinkChange) and not any((event.uplink, event.downlink, event.delay, event.loss)):
            yield KeyConflict((k,), "changes nothing; declare at least one of uplink, downlink, delay and loss")
        if isinstance(event, NetworkPartition) and set(event.apart) >= set(node_names):
            yield KeyConflict((k, "apart"), "lists all nodes; at least one node must be on the other side")
