"""Step time of gossip strategies, predicted from the times at which each worker has the vectors of its neighbours.

There is no barrier over all workers: a worker continues as soon as its own vector has left and those of its neighbours
have arrived. With s_i the start of worker i, c_i its compute time, and T_ji the time of a vector from j to i, the next
start is max over neighbours j of (s_j + c_j + T_ji). If the exchange runs beside the compute, it is the maximum of
s_i + c_i and of s_j + T_ji. On equal workers and links, a step therefore takes t_c + T, or max(t_c, T).
"""

from collections.abc import Sequence
from math import inf

import numpy as np

from services.schema.arrays import HostArray
from services.strategies.cost_model import CostModel, Flow, LinkId, StepTimePrediction
from services.strategies.gossip.mixing import MixingRound

MIN_EXCHANGES, MAX_EXCHANGES = 240, 2048  # whose times are added: slow workers delay distant ones after some steps


def predict_gossip_step_time(
    cost_model: CostModel,
    rounds: Sequence[MixingRound],
    steps_per_exchange: int,
    *,
    overlaps_compute: bool,
    evaluation_exchange_s: float,
) -> StepTimePrediction:
    """Return the predicted step time of workers that exchange vectors with their neighbours.

    Args:
        cost_model: cost model of the cluster.
        rounds: rounds of mixing, repeated in turn.
        steps_per_exchange: steps from one exchange to the next.
        overlaps_compute: whether an exchange runs beside the compute of the step whose update needs it.
        evaluation_exchange_s: seconds of the exchange before an evaluation.
    """
    compute_s = max(cost_model.compute_times.mean_s_by_worker)
    exchange_s = _predict_mean_exchange_s(cost_model, rounds, steps_per_exchange, overlaps_compute=overlaps_compute)
    vectors = max(len(rounds[0].target_ranks(rank)) for rank in range(len(cost_model.workers)))
    transfer = "α + " + ("" if vectors == 1 else f"{vectors}·") + "S·β"
    if overlaps_compute:
        formula = f"max(t_c, {transfer})"
    else:
        formula = f"t_c + {transfer}" if steps_per_exchange == 1 else f"t_c + ({transfer})/{steps_per_exchange}"
    return StepTimePrediction(
        compute_s=compute_s,
        exchange_s=exchange_s / steps_per_exchange,
        formula=formula if vectors else "t_c",
        evaluation_exchange_s=evaluation_exchange_s,
    )


def _predict_mean_exchange_s(
    cost_model: CostModel, rounds: Sequence[MixingRound], steps_per_exchange: int, *, overlaps_compute: bool
) -> float:
    """Return the seconds per exchange that all workers need beyond the compute of the slowest worker."""
    steps_s = cost_model.compute_times.seconds
    if len(steps_s) == 1:
        steps_s = np.repeat(steps_s, MIN_EXCHANGES * steps_per_exchange, axis=0)  # all steps are equal
    steps_s = steps_s[: MAX_EXCHANGES * steps_per_exchange]
    compute_s = np.add.reduceat(steps_s, np.arange(0, len(steps_s), steps_per_exchange), axis=0)
    transfers_s = [_transfer_s_by_rank_pair(cost_model, mixing_round) for mixing_round in rounds]
    starts_s = np.zeros(len(cost_model.workers))
    for number, exchange_compute_s in enumerate(compute_s):
        ends_s = starts_s + exchange_compute_s
        sent_s = starts_s if overlaps_compute else ends_s
        arrivals_s = (sent_s[:, None] + transfers_s[number % len(rounds)]).max(axis=0)
        starts_s = np.maximum(ends_s, arrivals_s)
    return max(0.0, float(starts_s.max() - compute_s.sum(axis=0).max())) / len(compute_s)


def _transfer_s_by_rank_pair(cost_model: CostModel, mixing_round: MixingRound) -> HostArray:
    """Return the seconds from source (first axis) to target of each vector in a round; minus infinity without one.

    All workers send at the same time. The seconds from a rank to itself are those until its own vectors have left.
    """
    names = cost_model.workers
    flows = {pair: (names[pair[0]], names[pair[1]]) for pair in mixing_round.rank_pairs}
    busy_s = cost_model.busy_s_by_link((flow, cost_model.vector_bytes) for flow in flows.values())
    delays_s = {(path.source, path.target): path.delay_s for path in cost_model.network.paths}
    transfer_s = np.full((len(names), len(names)), -inf)
    for pair, flow in flows.items():
        slowest_s = max(busy_s[link] for link in _links_of_flow(cost_model, flow))
        transfer_s[pair] = cost_model.alpha_s + delays_s.get(flow, 0.0) + slowest_s
    for rank, name in enumerate(names):
        transfer_s[rank, rank] = busy_s.get(("up", name), 0.0)
    return transfer_s


def _links_of_flow(cost_model: CostModel, flow: Flow) -> list[LinkId]:
    """Return the links that a flow passes: both access links, and the shared links on its path."""
    source, target = flow
    shared = enumerate(cost_model.network.shared_links)
    return [
        ("up", source),
        ("down", target),
        *(("shared", number) for number, link in shared if link.carries_flow(source, target)),
    ]
