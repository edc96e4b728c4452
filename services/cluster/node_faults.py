"""Faults of nodes: events by which nodes are killed, frozen or restarted.

The engine applies them to processes or containers. In virtual time, the simulation applies them to the tasks of a node.
"""

from typing import ClassVar, Literal, TypeAlias

from pydantic import Field

from services.cluster.declared_event import STOPPED_COMPUTE, DeclaredEvent, EventApplier
from services.schema.units import Duration

COORDINATOR = "coordinator"  # name of the coordinator's node

# What an engine does to a node: kill its processes, stop and continue them, start them again, or use up its memory.
NodeAction: TypeAlias = Literal["kill", "freeze", "thaw", "start", "exhaust_memory"]

NODE_NAMES_DESCRIPTION = (
    "names of nodes, such as worker-0, server-0 or coordinator, or workers or servers for all of them"
)


class NodeFault(DeclaredEvent):
    """Base class of the faults of nodes: what is done to each node when the fault begins, and when it ends."""

    of: tuple[str, ...] = Field(min_length=1, description=NODE_NAMES_DESCRIPTION)

    applied_by: ClassVar[EventApplier] = "engine"
    may_concern_coordinator: ClassVar[bool] = True
    begin_action: ClassVar[NodeAction]
    end_action: ClassVar[NodeAction | None] = None
    ends_nodes: ClassVar[bool]  # whether the nodes lose their processes and their state
    effect: ClassVar[str]  # what happens to a node, for the reason why a trial ended


class NodeKill(NodeFault):
    """Sudden end of some nodes, as after a power failure."""

    kind: Literal["kill"] = "kill"

    begin_action: ClassVar[NodeAction] = "kill"
    ends_nodes: ClassVar[bool] = True
    effect: ClassVar[str] = "was killed"

    @property
    def lasts(self) -> None:
        """Return None: the event does not start the node again; the policy of the trial may."""
        return


class NodeOutOfMemory(NodeFault):
    """Sudden end of some nodes because they need more memory than they may have."""

    kind: Literal["oom"] = "oom"

    begin_action: ClassVar[NodeAction] = "exhaust_memory"
    ends_nodes: ClassVar[bool] = True
    effect: ClassVar[str] = "ran out of memory"

    @property
    def lasts(self) -> None:
        """Return None: the event does not start the node again; the policy of the trial may."""
        return


class NodeStop(NodeFault):
    """Freeze of some nodes, which neither compute, send nor receive until they continue."""

    kind: Literal["stop"] = "stop"
    lasts: Duration = Field(description="time after which the nodes continue")

    begin_action: ClassVar[NodeAction] = "freeze"
    end_action: ClassVar[NodeAction | None] = "thaw"
    ends_nodes: ClassVar[bool] = False
    effect: ClassVar[str] = "was frozen"

    @property
    def compute_time_factor(self) -> float:
        return STOPPED_COMPUTE


class NodeRestart(NodeFault):
    """Sudden end of some nodes, which are started again after a while and have lost their state."""

    kind: Literal["restart"] = "restart"
    after: Duration = Field(description="time between the end of the nodes and their new start")

    begin_action: ClassVar[NodeAction] = "kill"
    end_action: ClassVar[NodeAction | None] = "start"
    ends_nodes: ClassVar[bool] = True
    effect: ClassVar[str] = "was killed and away"

    @property
    def lasts(self) -> Duration:
        """Time during which the nodes are away."""
        return self.after


AnyNodeFault: TypeAlias = NodeKill | NodeStop | NodeRestart | NodeOutOfMemory
