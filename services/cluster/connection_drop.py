"""Event that ends the connections between some nodes, which then open others."""

from typing import ClassVar, Literal

from pydantic import Field

from services.cluster.declared_event import DeclaredEvent, EventApplier


class ConnectionDrop(DeclaredEvent):
    """End of all data connections between some nodes, as after the restart of a network switch.

    The nodes open new connections, and send again what has not arrived.
    """

    kind: Literal["drop_connection"] = "drop_connection"
    of: tuple[str, ...] = Field(
        min_length=1, description="names of two nodes or more; the connections between any two of them end"
    )

    applied_by: ClassVar[EventApplier] = "transport"

    @property
    def lasts(self) -> None:
        """Return None: the nodes connect again at once."""
        return

    def peers_of(self, node_name: str) -> tuple[str, ...]:
        """Return the nodes to which the connections of a node end; none if the event does not concern the node."""
        return tuple(name for name in self.of if name != node_name) if node_name in self.of else ()
