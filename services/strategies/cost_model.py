"""Cost model of a cluster, and the step time that a formula predicts from it.

The cost model consists of link speeds and compute times.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from services.cluster.device_profiles import AnyVariation
from services.cluster.links.fluid_link import to_goodput_bytes_per_s
from services.cluster.links.message_lengths import MessageSizeLimits
from services.cluster.network import Network
from services.parameter_server.order_statistics import Cdf, simulate_mean_round_s
from services.schema.component import FrozenRecord

Flow: TypeAlias = tuple[str, str]  # names of sender and receiver
FlowBytes: TypeAlias = tuple[Flow, float]  # a flow and its payload bytes
LinkId: TypeAlias = tuple[str, str | int]  # ("up" | "down", node name) or ("shared", number of the shared link)


class CostModel(FrozenRecord):
    """Cost model of a cluster: nodes, link speeds and compute times.

    A closed form predicts the step time from the cost model.
    """

    workers: tuple[str, ...]  # node names by rank
    servers: tuple[str, ...] = ()  # names of dedicated servers by rank
    entries: int  # of the parameter vector
    dtype: str
    alpha_s: float = 0.0  # latency per message that the host adds (α), in virtual seconds; 0 without calibration
    message_lengths: MessageSizeLimits | None = None  # message lengths; None: every vector is one message
    uplink_s_per_byte: dict[str, float]  # by node name; 0 for an unshaped link
    downlink_s_per_byte: dict[str, float]
    network: Network = Network()
    compute_s: float  # compute time of one step of the slowest worker
    worker_compute_s: tuple[float, ...] = ()  # compute time of one step by rank; empty: all equal `compute_s`
    variations: tuple[AnyVariation | None, ...] = ()  # of the compute times, by rank; empty: none varies

    def concurrent_transfer_s(self, sender_receiver_pairs: Collection[Flow], bytes_per_pair: float) -> float:
        """Return the seconds in which the given node pairs transfer equally many bytes each.

        All node pairs start together.
        """
        return self.transfer_s([(flow, bytes_per_pair) for flow in sender_receiver_pairs])

    def transfer_s(self, flows_with_bytes: Iterable[FlowBytes]) -> float:
        """Return the seconds in which flows that start together transfer their bytes.

        The result is the time of the busiest link.
        """
        return max(self.busy_s_by_link(flows_with_bytes).values(), default=0.0)

    def busy_s_by_link(self, flows_with_bytes: Iterable[FlowBytes]) -> dict[LinkId, float]:
        """Return the seconds that each link needs for the bytes of all flows over this link."""
        link_bytes = defaultdict[LinkId, float](float)
        for (source, target), size_bytes in flows_with_bytes:
            link_bytes["up", source] += size_bytes
            link_bytes["down", target] += size_bytes
            for number, pipe in enumerate(self.network.shared_links):
                link_bytes["shared", number] += size_bytes * pipe.carries_flow(source, target)
        return {link: size_bytes * self._link_s_per_byte(link) for link, size_bytes in link_bytes.items()}

    def _link_s_per_byte(self, link: LinkId) -> float:
        direction, name = link
        if isinstance(name, int):
            return 1 / to_goodput_bytes_per_s(self.network.shared_links[name].rate_bps)
        return self.uplink_s_per_byte[name] if direction == "up" else self.downlink_s_per_byte[name]

    @property
    def vector_bytes(self) -> int:
        """Bytes of the parameter vector."""
        return self.entries * np.dtype(self.dtype).itemsize

    @property
    def expected_compute_s(self) -> tuple[float, ...]:
        """Expected compute time of one step, in seconds, for each worker by rank."""
        varied = zip(self._declared_compute_s, self.variations or (None,) * len(self.workers), strict=True)
        return tuple(seconds * (variation.mean_duration_factor if variation else 1.0) for seconds, variation in varied)

    @property
    def _declared_compute_s(self) -> tuple[float, ...]:
        return self.worker_compute_s or (self.compute_s,) * len(self.workers)

    def kth_fastest_compute_s(self, kth: int, pause_between_steps_s: float = 0.0) -> float:
        """Return the expected seconds until the k-th fastest worker has computed its gradient.

        k is `kth`, and the gradient is that of one step. All workers start together, except those for which the
        previous step did not wait: they start when they have finished that step. A fixed pause lies between two steps.
        """
        declared = self._declared_compute_s
        if not any(self.variations):
            return sorted(declared)[kth - 1]
        varied = list(zip(declared, self.variations, strict=True))
        cdfs = {worker: _cdf_of_compute_time(*worker) for worker in varied}  # equal workers share one function
        return simulate_mean_round_s([cdfs[worker] for worker in varied], kth, self.compute_s, pause_between_steps_s)

    def max_latency_s(self, sender_receiver_pairs: Collection[Flow]) -> float:
        """Return the largest latency from sender to receiver of any flow, in seconds.

        The latency includes the host's own latency.
        """
        delays = {(path.source, path.target): path.delay_s for path in self.network.paths}
        return self.alpha_s + max((delays.get(flow, 0.0) for flow in sender_receiver_pairs), default=0.0)


def _cdf_of_compute_time(mean_s: float, distribution: AnyVariation | None) -> Cdf:
    """Return the cumulative distribution function of a worker's compute time."""
    if distribution is None:
        return lambda x: (x >= mean_s).astype(float)
    return lambda x: distribution.duration_factor_cdf(x / mean_s)


class StepTimePrediction(FrozenRecord):
    """Predicted step time, in virtual seconds.

    The prediction consists of compute time, exchange time, and the formula.
    """

    compute_s: float
    exchange_s: float
    formula: str
    steps_s: tuple[float, ...] = ()  # step time of each worker by rank in asynchronous training; else empty
    counted: float = 1.0  # share of the computed gradients that go into updates; the rest is dropped

    @property
    def step_s(self) -> float:
        """Predicted duration of a whole step, in seconds.

        In asynchronous training, it is the duration of a step of the slowest worker.
        """
        return self.compute_s + self.exchange_s

    @property
    def median_step_s(self) -> float | None:
        """Predicted median of the step time over all steps of all workers.

        The value is None if it would be 0 s. A worker that is twice as fast does twice as many steps.
        """
        if not all(self.steps_s or (0.0,)):
            return self.step_s or None
        ascending_s = sorted(self.steps_s)
        cumulative_rates = list(accumulate(1 / step_s for step_s in ascending_s))
        half = cumulative_rates[-1] / 2
        return next(step_s for step_s, rate in zip(ascending_s, cumulative_rates, strict=True) if rate >= half)

    @property
    def mean_step_s(self) -> float | None:
        """Predicted mean of the step time over all steps of all workers.

        None instead of 0 if steps take no time.
        """
        if not all(self.steps_s or (0.0,)):
            return self.step_s or None
        return len(self.steps_s) / sum(1 / step_s for step_s in self.steps_s)

    def predict_training_s(self, step_count: int, worker_batch_shares: Sequence[int]) -> float:
        """Return the predicted seconds of a whole training run, given its number of steps.

        Return 0 if steps take no time. Each worker computes its share, given by `worker_batch_shares`. In asynchronous
        training a fast worker computes more than its share.
        """
        steps_s = self.steps_s or (self.step_s,) * len(worker_batch_shares)
        if not all(steps_s):
            return 0.0
        shares_per_s = sum(share / step_s for share, step_s in zip(worker_batch_shares, steps_s, strict=True))
        batches_per_s = shares_per_s / sum(worker_batch_shares)
        return step_count / (batches_per_s * self.counted)
