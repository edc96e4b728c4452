"""Currently active link events, and the resulting link rates, delays and network partitions."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from services.cluster.events import LinkChange, NetworkPartition, PlannedEvent

Direction: TypeAlias = Literal["uplink", "downlink"]


@dataclass
class ActiveLinkEvents:
    """Link events that are currently active, as known to one node.

    Link events change a rate or a delay, or partition the network. Where two active events change the same rate, the
    one that began last counts.
    """

    _active_events: dict[int, PlannedEvent] = field(default_factory=dict)  # by number, in the order of their begin
    _listeners: list[Callable[[], None]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def begin_event(self, event: PlannedEvent) -> None:
        """Mark a link event as active, and call all listeners."""
        self._active_events[event.number] = event
        self._notify_listeners()

    def end_event(self, event: PlannedEvent) -> None:
        """Remove a link event from the active events, and call all listeners.

        Removing the event undoes its change.
        """
        del self._active_events[event.number]
        self._notify_listeners()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Register a function to be called after every begin and end of a link event."""
        self._listeners.append(listener)

    def rate_bps_set_by_events(self, node_name: str, direction: Direction) -> float | None:
        """Return the rate in bit/s to which active link events set a node's access link.

        Return None if no event changes the rate.
        """
        rates = [getattr(change, direction) for change in self._active_link_changes(node_name)]
        return next((rate for rate in reversed(rates) if rate is not None), None)

    def delay_s_added_by_events(self, from_node: str, to_node: str) -> float:
        """Return the one-way delay in virtual seconds that active link events add to a network path.

        The path leads from `from_node` to `to_node`.
        """
        return sum(change.delay or 0.0 for node in (from_node, to_node) for change in self._active_link_changes(node))

    def is_partitioned(self, from_node: str, to_node: str) -> bool:
        """Return whether an active network partition prevents messages from one node to another."""
        changes = (event.change for event in self._active_events.values())
        partitions = (change for change in changes if isinstance(change, NetworkPartition))
        return any(partition.blocks(from_node, to_node) for partition in partitions)

    async def wait_until_connected(self, from_node: str, to_node: str) -> None:
        """Wait until no active network partition prevents messages from one node to another."""
        while self.is_partitioned(from_node, to_node):
            await self._changed.wait()

    def _active_link_changes(self, node_name: str) -> Iterator[LinkChange]:
        changes = (event.change for event in self._active_events.values())
        return (change for change in changes if isinstance(change, LinkChange) and node_name in change.of)

    def _notify_listeners(self) -> None:
        for listener in self._listeners:
            listener()
        self._changed.set()
        self._changed = asyncio.Event()
