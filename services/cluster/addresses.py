"""Addresses of nodes on the two networks of a trial, and who assigns them."""

from typing import Protocol

from services.schema.component import Record


class Address(Record):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Place(Record):
    """A node's two addresses: the shaped network and the unshaped one."""

    data: Address
    control: Address


class Addressing(Protocol):
    """Which addresses an engine has to give; the plan hands them out."""

    def place(self, number: int) -> Place:
        """The addresses of the node with this number, from 0."""


class Nowhere(Record):
    """The addresses of nodes that share a process."""

    def place(self, number: int) -> Place:
        address = Address(host="in-process", port=number)
        return Place(data=address, control=address)
