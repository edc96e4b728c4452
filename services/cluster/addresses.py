"""Addresses of nodes on the data network and on the control network.

Engines assign the addresses through the interface `AddressAllocator`.
"""

from typing import Protocol

from services.schema.component import FrozenRecord


class Address(FrozenRecord):
    """Host and port at which a node accepts connections."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class NodeAddresses(FrozenRecord):
    """The two addresses of a node: one on the shaped data network, one on the unshaped control network."""

    data: Address
    control: Address


class AddressAllocator(Protocol):
    """Interface through which the planner of a trial gets the addresses of each node.

    Every engine implements it.
    """

    def node_addresses(self, node_index: int) -> NodeAddresses:
        """Return the data and control addresses of the node with this index, counted from 0."""


class DummyAddresses(FrozenRecord):
    """Allocator of placeholder addresses for nodes that share one process and open no sockets."""

    def node_addresses(self, node_index: int) -> NodeAddresses:
        address = Address(host="in-process", port=node_index)
        return NodeAddresses(data=address, control=address)
