"""Laws by which events recur, such as failures of nodes: drawn from the seed, or read from a trace of failures."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from math import gamma
from random import Random
from typing import Annotated, Literal, NamedTuple, Self, TypeAlias

from pydantic import Field

from services.schema.component import FrozenRecord, ScenarioComponent
from services.schema.units import Duration

SMALLEST_SHAPE, LARGEST_SHAPE = 0.3, 10.0  # below: most gaps are a tiny share of their mean


class Occurrence(NamedTuple):
    """One occurrence of a recurring event: its virtual time since the start of training, and its nodes."""

    time_s: float
    node_names: tuple[str, ...]


class RecurringEvent(NamedTuple):
    """What a law needs to know of the event that recurs by it."""

    kind: str
    node_names: tuple[str, ...]
    lasts_s: float  # during which the event can't begin again on the same nodes
    is_per_node: bool  # whether every node has occurrences of its own
    end_s: float  # virtual time of the last occurrence that may be needed
    make_rng: Callable[[str], Random]  # by the name of the node, or an empty text for all nodes together


class FailureLaw(ScenarioComponent):
    """Law by which an event recurs."""

    @property
    @abstractmethod
    def mean_gap_s(self) -> Duration | None:
        """Mean gap in virtual seconds between occurrences; None if the law does not draw them."""

    @abstractmethod
    def iter_occurrences(self, event: RecurringEvent) -> Iterator[Occurrence]:
        """Yield all occurrences of an event, in any order."""

    def without_recorded_values(self) -> Self:
        """Return this law without values that it has from a file."""
        return self


class DrawnLaw(FailureLaw):
    """Law whose gaps, from the end of one occurrence to the next, are independent and drawn from the seed."""

    mean: Duration = Field(description="mean gap from the end of one occurrence to the next")

    @property
    def mean_gap_s(self) -> Duration:
        return self.mean

    @abstractmethod
    def draw_gap_s(self, rng: Random) -> float:
        """Return a random gap in virtual seconds."""

    def iter_occurrences(self, event: RecurringEvent) -> Iterator[Occurrence]:
        groups = [(name, (name,)) for name in event.node_names] if event.is_per_node else [("", event.node_names)]
        for rng_name, node_names in groups:
            rng, time_s = event.make_rng(rng_name), 0.0
            while (time_s := time_s + self.draw_gap_s(rng)) < event.end_s:
                yield Occurrence(time_s, node_names)
                time_s += event.lasts_s


class ExponentialLaw(DrawnLaw):
    """Exponential gaps: a failure is as likely at any time, whenever the last one was."""

    kind: Literal["exponential"] = "exponential"

    def draw_gap_s(self, rng: Random) -> float:
        return rng.expovariate(1 / self.mean)


class WeibullLaw(DrawnLaw):
    """Weibull gaps: below a shape of 1, failures come in bursts; above, they come more regularly.

    Failures of large clusters have shapes of 0.7 to 0.8 (Schroeder and Gibson, "A large-scale study of failures in
    high-performance computing systems", DSN 2006).
    """

    kind: Literal["weibull"] = "weibull"
    shape: float = Field(ge=SMALLEST_SHAPE, le=LARGEST_SHAPE, description="shape; 1 gives exponential gaps")

    def draw_gap_s(self, rng: Random) -> float:
        return rng.weibullvariate(self.mean / gamma(1 + 1 / self.shape), self.shape)


class RecordedFailure(FrozenRecord):
    """One line of a trace of failures."""

    time_s: float  # virtual, since the start of training
    node: str
    kind: str = ""  # of the event; empty: of any kind


class FailureTrace(FailureLaw):
    """Failures from a file of the user, for example from the log of another cluster.

    When a scenario is loaded, the file is read, and its digest and the failures are added to the scenario.
    """

    kind: Literal["trace"] = "trace"
    file: str = Field(
        min_length=1,
        description="path of a table as text (CSV), relative to the scenario file: columns time and node, and possibly "
        "kind, with a line for each failure; lines with nodes or kinds other than those of the event are ignored",
    )
    sha256: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$", description="digest of the content; a file with other content is rejected"
    )
    recorded: tuple[RecordedFailure, ...] = Field((), description="failures in the file; set by Ensayo")

    @property
    def mean_gap_s(self) -> None:
        return

    def iter_occurrences(self, event: RecurringEvent) -> Iterator[Occurrence]:
        for failure in self.failures_of(event.kind, event.node_names):
            yield Occurrence(failure.time_s, (failure.node,))

    def failures_of(self, kind: str, node_names: Sequence[str]) -> list[RecordedFailure]:
        """Return the failures of some nodes by events of a kind."""
        return [failure for failure in self.recorded if failure.node in node_names and failure.kind in ("", kind)]

    def without_recorded_values(self) -> Self:
        return self.model_copy(update={"recorded": ()})


AnyFailureLaw: TypeAlias = Annotated[ExponentialLaw | WeibullLaw | FailureTrace, Field(discriminator="kind")]
