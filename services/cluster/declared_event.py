"""What all kinds of events have in common: the moment at which an event begins, and who applies it."""

from collections.abc import Collection
from math import inf
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, NonNegativeInt

from services.cluster.failure_laws import AnyFailureLaw, ExponentialLaw, FailureLaw
from services.schema.component import FrozenRecord, ScenarioComponent
from services.schema.units import Duration

# Who applies an event: whatever shapes the links, the worker itself, the engine that started the nodes, the transports
# of the nodes, or the nodes themselves, to their disks.
EventApplier: TypeAlias = Literal["links", "worker", "engine", "transport", "disk"]
STOPPED_COMPUTE = inf  # factor of the compute time while a worker is stopped
NODE_GROUPS = {"workers": "worker-", "servers": "server-"}  # name of all nodes of a role -> start of their names


class EventTrigger(FrozenRecord):
    """Moment at which an event begins, as a scenario declares it.

    Exactly one of the keys `time`, `step`, `share`, `random` and `law` is declared.
    """

    time: Duration | None = Field(None, description="virtual time since the start of training")
    step: NonNegativeInt | None = Field(
        None,
        description="training step, from 0: an event of workers begins when the worker itself begins the step, an "
        "event of links when the first worker does, another event of nodes when the first of its workers does",
    )
    share: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None, description="share of the budget's steps that are done; the event begins with the next step"
    )
    random: Duration | None = Field(
        None,
        description="mean gap from the end of one occurrence of a repeated event to the next; gaps are exponential and "
        "drawn from the seed, as by an exponential law with per: event",
    )
    law: AnyFailureLaw | None = Field(None, description="law by which the event occurs again and again")
    per: Literal["node", "event"] | None = Field(
        None,
        description="with a law whose gaps are drawn: node, the default, draws occurrences for each node; event draws "
        "them for all nodes of the event together",
    )

    @property
    def declared_trigger_key_names(self) -> tuple[str, ...]:
        """Names of the keys by which the scenario declares the moment of the event.

        The possible keys are `time`, `step`, `share`, `random` and `law`.
        """
        return tuple(key for key, value in self if value is not None and key != "per")

    @property
    def recurrence(self) -> FailureLaw | None:
        """Law by which the event occurs again and again; None if it occurs once."""
        return ExponentialLaw(mean=self.random) if self.random is not None else self.law

    @property
    def mean_gap_s(self) -> Duration | None:
        """Mean of the gaps that are drawn between occurrences, in virtual seconds; None if none are drawn."""
        return self.recurrence.mean_gap_s if self.recurrence is not None else None

    @property
    def is_per_node(self) -> bool:
        """Whether every node of the event has occurrences of its own."""
        return self.law is not None and self.per != "event"

    @property
    def mean_gap_key(self) -> tuple[str, ...]:
        """Path of the key that declares the mean gap."""
        return ("random",) if self.random is not None else ("law", "mean")

    def without_recorded_values(self) -> Self:
        """Return this trigger without values that its law has from a file."""
        return self if self.law is None else self.model_copy(update={"law": self.law.without_recorded_values()})


class DeclaredEvent(ScenarioComponent):
    """Event that begins during a trial, as a scenario declares it."""

    at: EventTrigger = Field(description="moment at which the event begins")

    node_key: ClassVar[str] = "of"  # the key that lists the nodes
    applied_by: ClassVar[EventApplier]
    may_concern_coordinator: ClassVar[bool] = False
    changes_times: ClassVar[bool] = True  # of steps or messages, so that closed forms do not describe the trial

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
        """Return whether the event, if it waits for a step, may begin when this worker begins the step.

        An event of links, or one that concerns no worker, begins with the step of any worker.
        """
        if self.applied_by == "links" or worker_name in self.node_names:
            return True
        return not any(name.startswith(NODE_GROUPS["workers"]) for name in self.node_names)

    def restrict_to_nodes(self, node_names: Collection[str]) -> Self:
        """Return a copy of this event that changes only the nodes in `node_names`, each of them by its name."""
        names = self.expand_node_groups(node_names).node_names
        return self.model_copy(update={self.node_key: tuple(name for name in names if name in node_names)})

    def expand_node_groups(self, node_names: Collection[str]) -> Self:
        """Return a copy of this event that names each node of the groups that it declares, such as `workers`."""
        expanded: dict[str, None] = {}
        for name in self.node_names:
            prefix = NODE_GROUPS.get(name)
            members = [node_name for node_name in node_names if prefix and node_name.startswith(prefix)]
            expanded |= dict.fromkeys(members or [name])
        return self.model_copy(update={self.node_key: tuple(expanded)})


class LastingEvent(DeclaredEvent):
    """Event whose change is undone after a while, or stays until the end of the trial."""

    lasts: Duration | None = Field(
        None, description="time after which the change is undone; when absent, it stays until the end of the trial"
    )
