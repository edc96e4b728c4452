"""The contract of a strategy: how the gradients of all workers become the next parameters of each.

A strategy is written once, as coroutines over the seams Transport and Clock. It says what it needs (servers), what it
sends (bytes per node and step) and what it should cost (a closed form), all before a run starts.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from services.collectives.base import Route
from services.component import Component, Record
from services.compressors import Compressor, Identity
from services.device import Device, Vector
from services.layout import Range
from services.links import goodput
from services.network import Network
from services.optimisers import AnyOptimiser
from services.optimisers import State as Kept
from services.runlog import Phases
from services.transport.base import Transport

State: TypeAlias = Any  # what a strategy keeps between steps; it belongs to the worker


@dataclass(frozen=True)
class Gradient:
    """What one worker computed: the mean over its share of the batch."""

    mean: Vector  # shape (n,)
    samples: int  # of the share; may be zero when the last batch of an epoch is small


@dataclass(frozen=True)
class Peer:
    """What a strategy may use of the worker that it runs on."""

    rank: int
    workers: Sequence[str]  # node names by rank
    servers: Sequence[str]  # node names by shard
    shards: Sequence[Range]  # which range of the vector each server holds
    routes: Sequence[Route]
    optimiser: AnyOptimiser
    device: Device
    transport: Transport
    batch_size: Callable[[int], int]  # samples of all workers in a step


@dataclass(frozen=True)
class Outcome:
    """The parameters after a step, and what is known about them."""

    params: Vector
    state: State
    staleness: float | None = None  # updates that others made to the parameters between reading and updating them
    samples: int = 0  # that went into the parameters so far, all workers together; 0: not known here


@dataclass(frozen=True)
class Sent:
    """Payload bytes per step."""

    workers: tuple[int, ...]  # by rank
    servers: tuple[int, ...] = ()  # by shard


Flow: TypeAlias = tuple[str, str]  # names of sender and receiver


class Cost(Record):
    """What closed forms need to know of a cluster: who is where, and how long a byte takes."""

    workers: tuple[str, ...]  # node names by rank
    servers: tuple[str, ...] = ()  # by shard
    entries: int  # of the vector
    dtype: str
    alpha_s: float = 0.0  # per message, virtual: what a calibrated host adds, else 0
    uplinks_s: dict[str, float]  # seconds per byte by node name; 0 where nothing is shaped
    downlinks_s: dict[str, float]
    network: Network = Network()
    compute_s: float  # of one step of the slowest worker

    def together_s(self, flows: Collection[Flow], size_bytes: float) -> float:
        """Seconds in which all flows move `size_bytes` each at once: what the most loaded port or pipe takes."""
        sent, received = Counter(source for source, _ in flows), Counter(target for _, target in flows)
        loads = [count * self.uplinks_s[name] for name, count in sent.items()]
        loads += [count * self.downlinks_s[name] for name, count in received.items()]
        for pipe in self.network.pipes:
            loads.append(sum(pipe.carries(*flow) for flow in flows) / goodput(pipe.rate_bps))
        return size_bytes * max(loads, default=0.0)

    def latency_s(self, flows: Collection[Flow]) -> float:
        """Seconds until the first byte of a message has arrived, on the longest way; α is in it."""
        delays = {(path.source, path.target): path.delay_s for path in self.network.paths}
        return self.alpha_s + max((delays.get(flow, 0.0) for flow in flows), default=0.0)


class Predicted(Record):
    """A closed form, evaluated; virtual seconds."""

    compute_s: float
    exchange_s: float
    formula: str

    @property
    def step_s(self) -> float:
        """Seconds of a whole step."""
        return self.compute_s + self.exchange_s


class Strategy(Component, ABC):
    """One way to train with n workers."""

    @property
    def synchronous(self) -> bool:
        """Whether all replicas hold the same bits after every step."""
        return True

    @property
    def number_format(self) -> Compressor:
        """What gradients look like on the wire."""
        return Identity()

    @property
    def server_count(self) -> int:
        """Nodes that hold parameters and compute no gradients."""
        return 0

    def refusal(self, workers: int) -> str | None:  # noqa: ARG002 - most strategies take any number
        """Why this strategy can't run with `workers` workers; None when it can."""
        return None

    def optimiser(self, given: AnyOptimiser, workers: int) -> AnyOptimiser:  # noqa: ARG002 - most use what was given
        """The optimiser that makes one update of this strategy."""
        return given

    def gathers(self, workers: int) -> int:
        """How many workers' gradients make one update."""
        return workers

    def routes(self, workers: int) -> tuple[Route, ...]:  # noqa: ARG002 - only collectives have routes
        """The routes of the collective that it uses."""
        return ()

    @abstractmethod
    def bytes_per_step(self, workers: int, entries: int, dtype: str) -> Sent:
        """Payload bytes that each node sends in one step, for a vector of `entries` of `dtype`."""

    @abstractmethod
    def predict(self, cost: Cost) -> Predicted:
        """Closed form of the time of one step."""

    def partners(self, peer: Peer) -> tuple[str, ...]:
        """Names of the nodes to which this worker sends."""
        ranks = {rank for route in peer.routes for rank in route.partners(peer.rank)}
        return tuple(peer.workers[rank] for rank in sorted(ranks))

    @abstractmethod
    def init(self, peer: Peer, params: Vector) -> State:
        """The state before the first step."""

    def resume(self, peer: Peer, params: Vector, version: int, kept: Kept) -> State:  # noqa: ARG002 - see below
        """The state to go on with from parameters that another strategy has reached; none has to be kept by default.

        Args:
            peer: as it is under this strategy.
            params: the parameters, on the device.
            version: how many updates have made them.
            kept: the optimiser's state as this strategy is to have it; servers have their own.
        """
        return self.init(peer, params)

    def replicated(self, state: State) -> Kept | None:  # noqa: ARG002 - most leave it to servers
        """The optimiser's state where every worker holds the whole of it; None where servers do."""
        return None

    @abstractmethod
    async def step(
        self, peer: Peer, step: int, params: Vector, gradient: Gradient, state: State, phases: Phases
    ) -> Outcome:
        """Exchange and update; `phases` gets what was measured: exchange, update."""

    async def leave(self, peer: Peer, step: int) -> None:
        """The worker takes no part from `step` on."""
