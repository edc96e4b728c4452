"""What do engines enforce? Pipes that flows share and paths that delay them, whatever a scenario called them.

A message from a to b passes a's uplink, every pipe that has a among its sources and b among its targets, in their
order, and b's downlink; the path from a to b delays it, and may lose its packets at b.
"""

from collections.abc import Iterator
from random import Random

from services.cluster.impairments import AnyJitter, AnyLoss
from services.schema.component import Record


class Pipe(Record):
    """A rate that all flows from its sources to its targets share."""

    name: str  # such as "rack-0 up"
    rate_bps: float  # virtual; the engine divides by the dilation
    sources: tuple[str, ...]
    targets: tuple[str, ...]

    @property
    def shared(self) -> bool:
        """Whether more than one pair of nodes passes it."""
        return len(self.sources) * len(self.targets) > 1

    def carries(self, source: str, target: str) -> bool:
        """Whether a message from one node to another passes it."""
        return source in self.sources and target in self.targets


class Path(Record):
    """What happens to messages between two nodes beside waiting for their turn; one direction."""

    source: str
    target: str
    delay_s: float = 0.0  # virtual, one way, mean
    jitters: tuple[AnyJitter, ...] = ()  # independent of each other
    losses: tuple[AnyLoss, ...] = ()  # one after the other

    def delays(self, random: Random) -> Iterator[float]:
        """One-way delays of message after message, without end; virtual seconds."""
        laws = [jitter.delays(self.delay_s, random) for jitter in self.jitters]
        while True:
            yield max(0.0, self.delay_s + sum(next(law) - self.delay_s for law in laws))

    @property
    def loss(self) -> float:
        """Share of packets lost in the long run."""
        kept = 1.0
        for law in self.losses:
            kept *= 1 - law.mean
        return 1 - kept


class Network(Record):
    """Everything between the ports of a trial's nodes."""

    pipes: tuple[Pipe, ...] = ()
    paths: tuple[Path, ...] = ()  # pairs that have a delay or a loss

    def through(self, source: str, target: str) -> tuple[Pipe, ...]:
        """The pipes between two nodes."""
        return tuple(pipe for pipe in self.pipes if pipe.carries(source, target))

    def path(self, source: str, target: str) -> Path:
        """What lies between two nodes."""
        found = (path for path in self.paths if (path.source, path.target) == (source, target))
        return next(found, Path(source=source, target=target))

    def into(self, target: str) -> tuple[Path, ...]:
        """The paths that end at a node."""
        return tuple(path for path in self.paths if path.target == target)
