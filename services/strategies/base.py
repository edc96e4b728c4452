"""The contract of a strategy: how the gradients of all workers become the next parameters of each.

A strategy is written once, as coroutines over the seams Transport and Clock. It says what it needs (servers), what it
sends (bytes per node and step) and what it should cost (a closed form), all before a run starts.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from services.cluster.device_profiles import AnyVariation
from services.cluster.fluid_link import goodput
from services.cluster.message_lengths import Lengths
from services.cluster.network import Network
from services.collectives.base import Schedule, Site
from services.compressors import Compressor, Identity
from services.learning.layout import Range
from services.learning.optimisers import AnyOptimiser
from services.learning.optimisers import State as Kept
from services.parameter_server.order_statistics import Cdf, expected_round
from services.parameter_server.update_rules import UpdateRule
from services.runtime.device import Device
from services.runtime.run_log import Phases
from services.runtime.transport import Transport
from services.schema.arrays import HostArray, Vector
from services.schema.component import Component, Record
from services.schema.errors import ProtocolError

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
    servers: Sequence[str]  # names of the nodes that hold a shard, by shard; a worker may be among them
    shards: Sequence[Range]  # which range of the vector each server holds
    schedule: Schedule  # of its collective
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
    underway: int | None = None  # samples of others that will go into them; None: not known here
    judged: Vector | None = None  # the parameters to evaluate, where they are not those to train on


@dataclass(frozen=True)
class Sent:
    """Payload bytes per step; no whole numbers where exchanges are seldom: many steps would add up what is rounded."""

    workers: tuple[float, ...]  # by rank
    servers: tuple[float, ...] = ()  # by rank
    answers: tuple[float, ...] = ()  # by rank: of the workers' bytes, those that answer others' steps; none if empty


def spread(size_bytes: int, steps: int) -> float:
    """What is sent once in so many steps, per step; a whole number where it is one."""
    whole, rest = divmod(size_bytes, steps)
    return size_bytes / steps if rest else whole


Flow: TypeAlias = tuple[str, str]  # names of sender and receiver
Load: TypeAlias = tuple[Flow, float]  # and payload bytes
Port: TypeAlias = tuple[str, str | int]  # what carries bytes: ("up" | "down", node name), ("pipe", number)


class Cost(Record):
    """What closed forms need to know of a cluster: who is where, and how long a byte takes."""

    workers: tuple[str, ...]  # node names by rank
    servers: tuple[str, ...] = ()  # those of nodes that only serve
    entries: int  # of the vector
    dtype: str
    alpha_s: float = 0.0  # per message, virtual: what a calibrated host adds, else 0
    lengths: Lengths | None = None  # of messages; None: everything is sent as a whole
    uplinks_s: dict[str, float]  # seconds per byte by node name; 0 where nothing is shaped
    downlinks_s: dict[str, float]
    network: Network = Network()
    compute_s: float  # of one step of the slowest worker
    computes_s: tuple[float, ...] = ()  # of one step, by rank; all like the slowest when empty
    variations: tuple[AnyVariation | None, ...] = ()  # of these, by rank; none when empty

    def together_s(self, flows: Collection[Flow], size_bytes: float) -> float:
        """Seconds in which all flows move `size_bytes` each at once."""
        return self.moving_s([(flow, size_bytes) for flow in flows])

    def moving_s(self, loads: Iterable[Load]) -> float:
        """Seconds in which every flow moves its bytes, all at once: what the most loaded port or pipe takes."""
        return max(self.busy_s(loads).values(), default=0.0)

    def busy_s(self, loads: Iterable[Load]) -> dict[Port, float]:
        """Seconds for which these bytes keep every port and pipe busy that they pass."""
        passed = defaultdict[Port, float](float)
        for (source, target), size_bytes in loads:
            passed["up", source] += size_bytes
            passed["down", target] += size_bytes
            for number, pipe in enumerate(self.network.pipes):
                passed["pipe", number] += size_bytes * pipe.carries(source, target)
        return {port: size_bytes * self._per_byte_s(port) for port, size_bytes in passed.items()}

    def _per_byte_s(self, port: Port) -> float:
        kind, which = port
        if isinstance(which, int):
            return 1 / goodput(self.network.pipes[which].rate_bps)
        return self.uplinks_s[which] if kind == "up" else self.downlinks_s[which]

    @property
    def vector_bytes(self) -> int:
        """Of the parameters."""
        return self.entries * np.dtype(self.dtype).itemsize

    @property
    def expected_s(self) -> tuple[float, ...]:
        """Expected seconds of computing a step, by rank."""
        varied = zip(self._declared_s, self.variations or (None,) * len(self.workers), strict=True)
        return tuple(seconds * (variation.mean if variation else 1.0) for seconds, variation in varied)

    @property
    def _declared_s(self) -> tuple[float, ...]:
        return self.computes_s or (self.compute_s,) * len(self.workers)

    def computed_s(self, kth: int, pause_s: float = 0.0) -> float:
        """Expected seconds until `kth` workers, counted from 1, have computed a step.

        All begin together, but for those that the step before has not waited for: they begin when they are done with
        that one. `pause_s` lies between two steps.
        """
        declared = self._declared_s
        if not any(self.variations):
            return sorted(declared)[kth - 1]
        varied = list(zip(declared, self.variations, strict=True))
        laws = {each: _law(*each) for each in varied}
        return expected_round([laws[each] for each in varied], kth, self.compute_s, pause_s)

    def latency_s(self, flows: Collection[Flow]) -> float:
        """Seconds until the first byte of a message has arrived, on the longest way; α is in it."""
        delays = {(path.source, path.target): path.delay_s for path in self.network.paths}
        return self.alpha_s + max((delays.get(flow, 0.0) for flow in flows), default=0.0)


def _law(mean_s: float, variation: AnyVariation | None) -> Cdf:
    """The distribution of a worker's computing time."""
    if variation is None:
        return lambda x: (x >= mean_s).astype(float)
    return lambda x: variation.cdf(x / mean_s)


class Predicted(Record):
    """A closed form, evaluated; virtual seconds."""

    compute_s: float
    exchange_s: float
    formula: str
    steps_s: tuple[float, ...] = ()  # of each worker, by rank, where they do not wait for each other
    counted: float = 1.0  # share of the gradients computed that go into updates

    @property
    def step_s(self) -> float:
        """Seconds of a whole step; of the slowest worker's, where they do not wait for each other."""
        return self.compute_s + self.exchange_s

    def budget_s(self, steps: int, shares: Sequence[int]) -> float:
        """Seconds until gradients worth `steps` batches are in updates, of which each worker computes its share.

        A fast worker that waits for nobody does more than its share; 0 where steps take no time.
        """
        own_s = self.steps_s or (self.step_s,) * len(shares)
        if not all(own_s):
            return 0.0
        batches_per_s = sum(share / each_s for share, each_s in zip(shares, own_s, strict=True)) / sum(shares)
        return steps / (batches_per_s * self.counted)


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
    def exchanges_every(self) -> int:
        """Steps from one exchange to the next; who leaves in between exchanges once more."""
        return 1

    @property
    def server_count(self) -> int:
        """Nodes that hold parameters and compute no gradients."""
        return 0

    def holders(self, workers: Sequence[str], servers: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002
        """Names of the nodes that hold parameters for all, by shard; most strategies have none."""
        return ()

    def shards(self, workers: int, entries: int) -> tuple[Range, ...]:  # noqa: ARG002
        """The range that each of them holds of a vector of `entries`."""
        return ()

    def update_rule(self, optimiser: AnyOptimiser, params: HostArray, workers: int) -> UpdateRule:  # noqa: ARG002
        """What a holder does with its range `params` and what is pushed to it.

        Raises:
            ProtocolError: nobody holds anything for others.
        """
        raise ProtocolError(f"{self.kind} has no servers")

    def refusal(self, workers: int) -> str | None:  # noqa: ARG002 - most strategies take any number
        """Why this strategy can't run with `workers` workers; None when it can."""
        return None

    def optimiser(self, given: AnyOptimiser, workers: int) -> AnyOptimiser:  # noqa: ARG002 - most use what was given
        """The optimiser that makes one update of this strategy."""
        return given

    def gathers(self, workers: int) -> int:
        """How many workers' gradients make one update."""
        return workers

    def computing(self, workers: int) -> int:
        """How many of them compute gradients: the first so many ranks."""
        return workers

    def settled(self, site: Site, cost: Cost) -> Self:  # noqa: ARG002 - most are the same everywhere
        """The same with all decided that depends on the place; what is asked below is asked of this."""
        return self

    def choices(self, site: Site, cost: Cost) -> dict[str, float]:  # noqa: ARG002 - most leave nothing to choose
        """Predicted seconds of an exchange by each way of which `settled` has taken the shortest."""
        return {}

    def schedule(self, workers: int) -> Schedule:  # noqa: ARG002 - only collectives have rounds
        """The schedule of the collective that it uses."""
        return Schedule()

    @abstractmethod
    def bytes_per_step(self, workers: int, entries: int, dtype: str) -> Sent:
        """Payload bytes that each node sends in one step, for a vector of `entries` of `dtype`."""

    @abstractmethod
    def predict(self, cost: Cost) -> Predicted:
        """Closed form of the time of one step."""

    def partners(self, peer: Peer) -> tuple[str, ...]:
        """Names of the nodes to which this worker sends."""
        return tuple(peer.workers[rank] for rank in sorted(peer.schedule.partners(peer.rank)))

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

    async def finish(self, peer: Peer, step: int, outcome: Outcome, phases: Phases) -> None:
        """The worker is about to leave before `step`: it gives the others what it still owes them."""

    async def leave(self, peer: Peer, step: int) -> None:
        """The worker takes no part from `step` on."""
