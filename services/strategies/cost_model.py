"""Cost model of a cluster: what closed forms of the step time read, and the prediction that they return."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from services.cluster.device_profiles import AnyVariation
from services.cluster.fluid_link import goodput
from services.cluster.message_lengths import Lengths
from services.cluster.network import Network
from services.parameter_server.order_statistics import Cdf, expected_round
from services.schema.component import Record

Flow: TypeAlias = tuple[str, str]  # names of sender and receiver
FlowBytes: TypeAlias = tuple[Flow, float]  # a flow and its payload bytes
LinkId: TypeAlias = tuple[str, str | int]  # ("up" | "down", node name) or ("pipe", number)


class CostModel(Record):
    """Nodes, link speeds and compute times of a cluster, as closed forms of the step time need them."""

    workers: tuple[str, ...]  # node names by rank
    servers: tuple[str, ...] = ()  # names of dedicated servers by rank
    entries: int  # of the parameter vector
    dtype: str
    alpha_s: float = 0.0  # latency of a message that this host adds, virtual; 0 without calibration
    lengths: Lengths | None = None  # of messages; None: every vector is one message
    uplinks_s: dict[str, float]  # seconds per byte by node name; 0 for an unshaped link
    downlinks_s: dict[str, float]
    network: Network = Network()
    compute_s: float  # compute time of one step of the slowest worker
    computes_s: tuple[float, ...] = ()  # compute time of one step by rank; empty: all equal `compute_s`
    variations: tuple[AnyVariation | None, ...] = ()  # of the compute times, by rank; empty: none varies

    def concurrent_transfer_s(self, flows: Collection[Flow], size_bytes: float) -> float:
        """Return the seconds in which all flows transfer `size_bytes` each at the same time."""
        return self.transfer_s([(flow, size_bytes) for flow in flows])

    def transfer_s(self, loads: Iterable[FlowBytes]) -> float:
        """Return the seconds in which all flows transfer their bytes at the same time: those of the busiest link."""
        return max(self.busy_s(loads).values(), default=0.0)

    def busy_s(self, loads: Iterable[FlowBytes]) -> dict[LinkId, float]:
        """Return for how many seconds these bytes occupy each link on their paths."""
        link_bytes = defaultdict[LinkId, float](float)
        for (source, target), size_bytes in loads:
            link_bytes["up", source] += size_bytes
            link_bytes["down", target] += size_bytes
            for number, pipe in enumerate(self.network.pipes):
                link_bytes["pipe", number] += size_bytes * pipe.carries(source, target)
        return {link: size_bytes * self._s_per_byte(link) for link, size_bytes in link_bytes.items()}

    def _s_per_byte(self, link: LinkId) -> float:
        direction, name = link
        if isinstance(name, int):
            return 1 / goodput(self.network.pipes[name].rate_bps)
        return self.uplinks_s[name] if direction == "up" else self.downlinks_s[name]

    @property
    def vector_bytes(self) -> int:
        """Bytes of the parameter vector."""
        return self.entries * np.dtype(self.dtype).itemsize

    @property
    def expected_compute_s(self) -> tuple[float, ...]:
        """Expected compute time of a step in seconds, by rank."""
        varied = zip(self._declared_compute_s, self.variations or (None,) * len(self.workers), strict=True)
        return tuple(seconds * (variation.mean if variation else 1.0) for seconds, variation in varied)

    @property
    def _declared_compute_s(self) -> tuple[float, ...]:
        return self.computes_s or (self.compute_s,) * len(self.workers)

    def kth_compute_s(self, kth: int, pause_s: float = 0.0) -> float:
        """Return the expected seconds until `kth` workers, counted from 1, have computed a step.

        All workers start together, except those that the previous step did not wait for: they start when they have
        finished that step. `pause_s` lies between two steps.
        """
        declared = self._declared_compute_s
        if not any(self.variations):
            return sorted(declared)[kth - 1]
        varied = list(zip(declared, self.variations, strict=True))
        distributions = {each: _distribution(*each) for each in varied}
        return expected_round([distributions[each] for each in varied], kth, self.compute_s, pause_s)

    def latency_s(self, flows: Collection[Flow]) -> float:
        """Return the seconds until the first byte of a message arrives on the slowest of these paths; α is included."""
        delays = {(path.source, path.target): path.delay_s for path in self.network.paths}
        return self.alpha_s + max((delays.get(flow, 0.0) for flow in flows), default=0.0)


def _distribution(mean_s: float, variation: AnyVariation | None) -> Cdf:
    """Return the distribution function of a worker's compute time."""
    if variation is None:
        return lambda x: (x >= mean_s).astype(float)
    return lambda x: variation.cdf(x / mean_s)


class StepPrediction(Record):
    """A closed form of the step time, evaluated; all times are virtual seconds."""

    compute_s: float
    exchange_s: float
    formula: str
    steps_s: tuple[float, ...] = ()  # step time of each worker by rank, where workers do not wait for each other
    counted: float = 1.0  # share of the computed gradients that go into updates

    @property
    def step_s(self) -> float:
        """Seconds of a whole step; those of the slowest worker where workers do not wait for each other."""
        return self.compute_s + self.exchange_s

    def budget_s(self, steps: int, shares: Sequence[int]) -> float:
        """Return the seconds until gradients of `steps` batches are in updates; 0 where steps take no time.

        Each worker computes its share of a batch. A fast worker that waits for nobody computes more than its share.
        """
        worker_s = self.steps_s or (self.step_s,) * len(shares)
        if not all(worker_s):
            return 0.0
        batches_per_s = sum(share / each_s for share, each_s in zip(shares, worker_s, strict=True)) / sum(shares)
        return steps / (batches_per_s * self.counted)
