"""Step time of gossip strategies, predicted from the times at which each worker has the vectors of its neighbours.

There is no barrier over all workers, except at evaluations: a worker continues as soon as its own vector has left and
those of its neighbours have arrived. With s_i the start of worker i, c_i its compute time, and T_ji the time of a
vector from j to i, the next start is the maximum over neighbours j, and i itself, of s_j + c_j + T_ji. If the exchange
overlaps with the compute, it is the maximum of s_i + c_i and of s_j + T_ji. On equal workers and links, a step
therefore takes t_c + T, or max(t_c, T).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

from services.schema.arrays import HostArray
from services.strategies.cost_model import MAX_NEGLECTED_SHARE, CostModel, Flow, LinkId, StepTimePrediction
from services.strategies.gossip.mixing import MixingRound

EQUAL_EXCHANGES, MAX_STEPS = 240, 4096  # whose times are added: slow workers delay distant ones after some steps
MAX_EARLY_SHARE = MAX_NEGLECTED_SHARE / 3  # of the time between two evaluations
SHARED_LINK_REASON = "workers that share a link exchange at different times"
UNEQUAL_PAIRS_REASON = "the compute times of workers differ, so the time of an exchange depends on its partners"
EARLY_AVERAGE_REASON = "fast workers begin the exchange before an evaluation while slow workers still train"


@dataclass(frozen=True)
class GossipTimeline:
    """Times at which workers that exchange with their neighbours begin their steps."""

    cost_model: CostModel
    round_of_exchange: Callable[[int], MixingRound]  # by number of the exchange
    steps_per_exchange: int
    overlaps_compute: bool  # whether an exchange overlaps with the compute of the step whose update needs it
    exchange_formula: str  # seconds of an exchange on equal workers and links, as text; empty without neighbours

    def predict_step_time(self, evaluation_exchange_s: float) -> StepTimePrediction:
        """Return the predicted step time: the mean over all steps of all workers.

        `evaluation_exchange_s` are the seconds of the exchange before an evaluation.
        """
        times = self.cost_model.compute_times
        mean_s, wait_s, exchange_count, step_count = self._add_up_steps()
        compute_s = sum(times.mean_s_by_worker) / len(times.mean_s_by_worker)
        exchange_s = max(0.0, mean_s - step_count * compute_s) / (exchange_count * self.steps_per_exchange)
        return StepTimePrediction(
            compute_s=compute_s,
            exchange_s=exchange_s,
            formula=self._formula,
            epoch_start_delay_s=wait_s,
            evaluation_exchange_s=evaluation_exchange_s,
            inapplicable_reason=self._explain_inapplicable_form(
                compute_s + exchange_s, exchange_s, min(wait_s, evaluation_exchange_s)
            ),
        )

    @property
    def _formula(self) -> str:
        exchange, period = self.exchange_formula, self.steps_per_exchange
        if not exchange:
            return "t_c"
        if self.overlaps_compute:
            return f"max(t_c, {exchange})"
        return f"t_c + {exchange}" if period == 1 else f"t_c + ({exchange})/{period}"

    def _explain_inapplicable_form(self, step_s: float, exchange_s: float, early_s: float) -> str:
        """Return why the prediction does not describe training; empty if it does, or if the error is negligible.

        `early_s` are the seconds before an evaluation in which fast workers may exchange while slow ones still train.
        """
        cost_model, max_deviation_s = self.cost_model, MAX_NEGLECTED_SHARE * step_s
        spread_s = cost_model.compute_times.mean_spread_s(self.steps_per_exchange)
        is_uneven = spread_s > 0 or cost_model.has_unequal_rates or self.steps_per_exchange > 1
        if cost_model.network.shared_links and is_uneven and exchange_s > max_deviation_s / 2:
            return SHARED_LINK_REASON
        if self.steps_per_exchange > 1 and spread_s > max_deviation_s:
            return UNEQUAL_PAIRS_REASON
        if early_s > MAX_EARLY_SHARE * step_s * (cost_model.steps_per_evaluation or inf):
            return EARLY_AVERAGE_REASON
        return ""

    def _add_up_steps(self) -> tuple[float, float, int, int]:
        """Return the mean seconds of all steps per worker, and the mean wait of a worker for an evaluation.

        Return the numbers of exchanges and of steps, too. Each evaluation ends when the last worker has done its steps,
        and the last step ends with an exchange.
        """
        steps_s, steps_per_evaluation = self._steps_s, self.cost_model.steps_per_evaluation
        transfers_s = _TransferTimes(self.cost_model)
        starts_s, begin_s = np.zeros(len(self.cost_model.workers)), 0.0
        waits_s, total_s, exchange_count = [0.0], 0.0, 0
        for number, compute_s in enumerate(steps_s, start=1):
            sent_s, starts_s = starts_s, starts_s + compute_s
            if number % self.steps_per_exchange == 0 or number == len(steps_s):
                sent_s = sent_s if self.overlaps_compute else starts_s
                seconds = transfers_s.by_rank_pair(self.round_of_exchange(exchange_count))
                starts_s = np.maximum(starts_s, (sent_s[:, None] + seconds).max(axis=0))
                exchange_count += 1
            is_evaluated = steps_per_evaluation is not None and number % steps_per_evaluation == 0
            if is_evaluated or number == len(steps_s):
                total_s += float(starts_s.mean()) - begin_s
                begin_s = float(starts_s.max())
                waits_s.append(begin_s - float(starts_s.mean()))
                starts_s = np.full_like(starts_s, begin_s)
        wait_s = 0.0 if steps_per_evaluation is None else sum(waits_s) / max(1, len(waits_s) - 1)
        return total_s, wait_s, exchange_count, len(steps_s)

    @property
    def _steps_s(self) -> HostArray:
        """Compute times of the steps that are added up, shape (steps, workers)."""
        seconds = self.cost_model.compute_times.seconds
        if len(seconds) == 1:  # all steps are equal
            return np.repeat(seconds, min(MAX_STEPS, EQUAL_EXCHANGES * self.steps_per_exchange), axis=0)
        return seconds[:MAX_STEPS]


class _TransferTimes:
    """Seconds of the vectors of a round on a cluster; rounds that occur again are not computed again."""

    def __init__(self, cost_model: CostModel) -> None:
        self._cost_model = cost_model
        self._delays_s = {(path.source, path.target): path.delay_s for path in cost_model.network.paths}
        self._known: dict[tuple[tuple[int, int], ...], HostArray] = {}

    def by_rank_pair(self, mixing_round: MixingRound) -> HostArray:
        """Return the seconds from source (first axis) to target of each vector; minus infinity without one.

        All workers send at the same time. The seconds from a rank to itself are those until its own vectors have left.
        """
        pairs = mixing_round.rank_pairs
        if pairs not in self._known:
            self._known[pairs] = self._compute_seconds(pairs)
        return self._known[pairs]

    def _compute_seconds(self, rank_pairs: tuple[tuple[int, int], ...]) -> HostArray:
        cost_model, names = self._cost_model, self._cost_model.workers
        flows = {pair: (names[pair[0]], names[pair[1]]) for pair in rank_pairs}
        busy_s = cost_model.busy_s_by_link((flow, cost_model.vector_bytes) for flow in flows.values())
        seconds = np.full((len(names), len(names)), -inf)
        for pair, flow in flows.items():
            slowest_s = max(busy_s[link] for link in _links_of_flow(cost_model, flow))
            seconds[pair] = cost_model.alpha_s + self._delays_s.get(flow, 0.0) + slowest_s
        for rank, name in enumerate(names):
            seconds[rank, rank] = busy_s.get(("up", name), 0.0)
        return seconds


def _links_of_flow(cost_model: CostModel, flow: Flow) -> list[LinkId]:
    """Return the links that a flow passes: both access links, and the shared links on its path."""
    source, target = flow
    links: list[LinkId] = [("up", source), ("down", target)]
    links += [
        ("shared", number)
        for number, link in enumerate(cost_model.network.shared_links)
        if link.carries_flow(source, target)
    ]
    return links


def format_exchange_seconds(vector_count: int) -> str:
    """Return the closed form of an exchange in which a worker sends a vector to `vector_count` workers, as text."""
    if not vector_count:
        return ""
    return "α + S·β" if vector_count == 1 else f"α + {vector_count}·S·β"
