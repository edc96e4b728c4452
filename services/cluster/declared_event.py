"""What all kinds of events have in common: the moment at which an event begins, and who applies it."""

from collections.abc import Collection
from math import inf
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, NonNegativeInt

from services.schema.component import FrozenRecord, ScenarioComponent
from services.schema.units import Duration

# Who applies an event: whatever shapes the links, the worker itself, or the engine that started the nodes.
EventApplier: TypeAlias = Literal["links", "worker", "engine"]
STOPPED_COMPUTE = inf  # factor of the compute time while a worker is stopped


class EventTrigger(FrozenRecord):
    """Moment at which an event begins, as a scenario declares it.

    Exactly one of the keys `time`, `step`, `share` and `random` is declared.
    """

    time: Duration | None = Field(None, description="virtual time since the start of training")
    step: NonNegativeInt | None = Field(
        None,
        description="training step, from 0: an event of workers begins when the worker itself begins the step, an "
        "event of links when the first worker does, a fault of nodes when the first of its workers does",
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


class DeclaredEvent(ScenarioComponent):
    """Event that begins during a trial, as a scenario declares it."""

    at: EventTrigger = Field(description="moment at which the event begins")

    node_key: ClassVar[str] = "of"  # the key that lists the nodes
    applied_by: ClassVar[EventApplier]
    may_concern_coordinator: ClassVar[bool] = False

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes that the event changes."""
        names: tuple[str, ...] = getattr(self, self.node_key)
        return names

    @property
    def compute_time_factor(self) -> float | None:
        """Factor of the compute time of the event's workers while the event lasts.

        It is None if the event does not change the compute time.
        """
        return None

    def is_triggered_by_step_of(self, worker_name: str) -> bool:
        """Return whether the event, if it waits for a step, may begin when this worker begins the step."""
        return self.applied_by == "links" or worker_name in self.node_names

    def restrict_to_nodes(self, node_names: Collection[str]) -> Self:
        """Return a copy of this event that changes only the nodes in `node_names`."""
        return self.model_copy(update={self.node_key: tuple(name for name in self.node_names if name in node_names)})


class LastingEvent(DeclaredEvent):
    """Event whose change is undone after a while, or stays until the end of the trial."""

    lasts: Duration | None = Field(
        None, description="time after which the change is undone; when absent, it stays until the end of the trial"
    )
