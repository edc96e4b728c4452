"""What changes while a trial runs, when, and for how long?"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from random import Random
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, NonNegativeInt, PositiveFloat

from services.cluster.impairments import AnyLoss
from services.schema.component import Component, Record
from services.schema.conflicts import Conflict
from services.schema.units import Duration, Rate

MOMENTS = 10_000  # of one random event; to draw and to apply more would take longer than what they disturb


class When(Record):
    """One moment; exactly one of the keys."""

    time: Duration | None = Field(None, description="virtual time since training began")
    step: NonNegativeInt | None = Field(
        None, description="when the first worker begins this step, from 0; a worker's own event: when itself does"
    )
    share: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None, description="the step that begins when this share of the budget's steps is done; after all there is none"
    )
    random: Duration | None = Field(
        None, description="again and again, with exponential gaps of this mean, by the seed"
    )

    @property
    def keys(self) -> tuple[str, ...]:
        """Which of the keys are given."""
        return tuple(key for key, value in self if value is not None)


class Happening(Component):
    """What changes."""

    at: When = Field(description="when it begins")
    lasts: Duration | None = Field(None, description="when it is undone, after it began; never when absent")

    names: ClassVar[str] = "of"  # the key that holds the nodes

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes that it changes."""
        named: tuple[str, ...] = getattr(self, self.names)
        return named

    def among(self, nodes: Collection[str]) -> Self:
        """The same for those of its nodes that are there."""
        return self.model_copy(update={self.names: tuple(name for name in self.nodes if name in nodes)})


class LinkChange(Happening):
    """Links of some nodes get other properties; a key left out stays as it is."""

    kind: Literal["link"] = "link"
    of: tuple[str, ...] = Field(min_length=1, description="nodes, such as worker-0")
    uplink: Rate | None = Field(None, description="the new rate")
    downlink: Rate | None = Field(None, description="the new rate")
    delay: Duration | None = Field(None, description="added to the one-way delay of the link")
    loss: AnyLoss | None = Field(None, description="beside what is lost anyway")


class Partition(Happening):
    """Some nodes can't reach the others, in both directions, though they reach each other."""

    names: ClassVar[str] = "apart"
    kind: Literal["partition"] = "partition"
    apart: tuple[str, ...] = Field(min_length=1, description="nodes on one side; all others are on the other")
    lasts: Duration = Field(description="how long; nodes wait for each other meanwhile")


class Slowdown(Happening):
    """Paced devices take longer."""

    kind: Literal["slowdown"] = "slowdown"
    of: tuple[str, ...] = Field(min_length=1, description="workers, such as worker-0")
    factor: PositiveFloat = Field(description="what the duration of a step's mathematics is multiplied by")


class Pause(Happening):
    """Workers do nothing for a while, as when a virtual machine is moved."""

    kind: Literal["pause"] = "pause"
    of: tuple[str, ...] = Field(min_length=1, description="workers, such as worker-0")
    lasts: Duration = Field(description="how long")


AnyHappening: TypeAlias = Annotated[LinkChange | Partition | Slowdown | Pause, Field(discriminator="kind")]


class Event(Record):
    """One happening, decided: begins at a virtual time or when a step begins, and what it is."""

    number: int
    time_s: float | None  # since training began
    step: int | None
    what: AnyHappening

    @property
    def is_of_links(self) -> bool:
        """Whether whoever shapes links applies it; workers apply the rest to themselves."""
        return isinstance(self.what, LinkChange | Partition)


def decide(happenings: Sequence[AnyHappening], steps: int, horizon_s: float, seed: int) -> tuple[Event, ...]:
    """The events of a trial, random ones drawn up to the horizon; ordered by their times, then by their steps.

    Args:
        happenings: as the scenario lists them.
        steps: of the budget.
        horizon_s: virtual seconds that the trial is expected to take at most.
        seed: of the trial.
    """
    drawn = [moment for k, what in enumerate(happenings) for moment in _moments(what, k, steps, horizon_s, seed)]
    drawn.sort(key=lambda item: (item[0] is None, item[0] or 0.0, item[1] or 0))
    return tuple(Event(number=n, time_s=time_s, step=step, what=what) for n, (time_s, step, what) in enumerate(drawn))


def _moments(
    what: AnyHappening, place: int, steps: int, horizon_s: float, seed: int
) -> Iterator[tuple[float | None, int | None, AnyHappening]]:
    when = what.at
    if when.time is not None:
        yield float(when.time), None, what
    elif when.random is not None:
        law, now = Random(f"{seed} event {place}"), 0.0
        while (now := now + law.expovariate(1 / when.random)) < horizon_s:
            yield now, None, what
            now += what.lasts or 0.0
    else:
        yield None, when.step if when.step is not None else min(int((when.share or 0.0) * steps), steps - 1), what


def crowded(happenings: Sequence[AnyHappening], horizon_s: float, nodes: Collection[str]) -> Iterator[Conflict]:
    """Which random ones come so often that nobody wants to wait for all their moments, given who is there."""
    for k, what in enumerate(happenings):
        lasts_s = what.lasts or 0.0
        if what.at.random is None or not present([what], nodes) or horizon_s / (what.at.random + lasts_s) <= MOMENTS:
            continue
        least = Duration(f"{1e3 * (1.1 * horizon_s / MOMENTS - lasts_s):.2g}ms")
        yield Conflict(
            (k, "at", "random"),
            f"{what.at.random} is too often: moments are drawn for {horizon_s:.3g} s, three times the predicted "
            f"duration, and {MOMENTS:,} are allowed; write {least} or more",
        )


def present(happenings: Iterable[AnyHappening], nodes: Collection[str]) -> tuple[AnyHappening, ...]:
    """What happens to nodes that are there; an event of which all nodes are absent is left out."""
    return tuple(what.among(nodes) for what in happenings if set(what.nodes) & set(nodes))


def conflicts(happenings: Sequence[AnyHappening], nodes: Collection[str]) -> Iterator[Conflict]:
    """What is wrong with a timeline, given the names of all nodes on the data network."""
    for k, what in enumerate(happenings):
        if len(what.at.keys) != 1:
            yield Conflict((k, "at"), "write one of time, step, share and random")
        for name in what.nodes:
            if name not in nodes:
                yield Conflict((k, what.names), f"there is no node {name}; nodes are {', '.join(nodes)}")
            elif isinstance(what, Slowdown | Pause) and not name.startswith("worker-"):
                yield Conflict((k, what.names), f"{name} computes nothing; name workers")
        if isinstance(what, LinkChange) and not any((what.uplink, what.downlink, what.delay, what.loss)):
            yield Conflict((k,), "nothing changes; write one of uplink, downlink, delay and loss")
        if isinstance(what, Partition) and set(what.apart) >= set(nodes):
            yield Conflict((k, "apart"), "nobody is on the other side; leave some nodes out")
