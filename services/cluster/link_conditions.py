"""What do events change about links at this moment, where transports enforce them?"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from services.cluster.events import Event, LinkChange, Partition

Direction: TypeAlias = Literal["uplink", "downlink"]


@dataclass
class Conditions:
    """The events of links that are in force, as one node sees them; of two that contradict, the later one counts."""

    _active: dict[int, Event] = field(default_factory=dict)
    _heeders: list[Callable[[], None]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self, event: Event) -> None:
        """From now on it is in force."""
        self._active[event.number] = event
        self._tell()

    def end(self, event: Event) -> None:
        """It is undone."""
        del self._active[event.number]
        self._tell()

    def heed(self, heeder: Callable[[], None]) -> None:
        """Call `heeder` after every change."""
        self._heeders.append(heeder)

    def rate_bps(self, node: str, direction: Direction) -> float | None:
        """What a node's link is changed to; None: it is as declared."""
        rates = [getattr(change, direction) for change in self._changes(node)]
        return next((rate for rate in reversed(rates) if rate is not None), None)

    def delay_s(self, source: str, target: str) -> float:
        """What is added to the one-way delay between two nodes: a message passes the links of both."""
        return sum(change.delay or 0.0 for node in (source, target) for change in self._changes(node))

    def apart(self, one: str, other: str) -> bool:
        """Whether a partition lies between two nodes."""
        whats = (event.what for event in self._active.values())
        return any(isinstance(what, Partition) and (one in what.apart) != (other in what.apart) for what in whats)

    async def together(self, one: str, other: str) -> None:
        """Return when no partition lies between two nodes."""
        while self.apart(one, other):
            await self._changed.wait()

    def _changes(self, node: str) -> Iterator[LinkChange]:
        whats = (event.what for event in self._active.values())
        return (what for what in whats if isinstance(what, LinkChange) and node in what.of)

    def _tell(self) -> None:
        for heeder in self._heeders:
            heeder()
        self._changed.set()
        self._changed = asyncio.Event()
