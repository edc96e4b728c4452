"""Predicted time of a step that ends with an average over a group of the workers that are ready first.

Symbols: t_c is the compute time of a step, α the latency of a message, g the size of a group, S the bytes of the vector
and β the seconds per byte of a link. The report of a finished step and its reply take 2α. Equal workers form all their
groups at once. Workers of unequal speed wait until g - 1 others are ready. If workers become ready independently of
each other, at λ workers per second, a worker waits for (g-1)/(2λ) on average: from nothing for the last member of a
group to (g-1)/λ for the first.
"""

from collections.abc import Sequence

from services.collectives import Ring, TransferSchedule
from services.collectives.base import Transfer
from services.strategies.cost_model import MAX_NEGLECTED_SHARE, CostModel, StepTimePrediction
from services.strategies.vector_sums.base import SingleStageSum
from services.strategies.vector_sums.prediction import predict_step_with_sum

FORMULA = "t_c + 2α + 2(g-1)(α + S/g·β), g = {members}"
WAIT_TEXT = " + (g-1)/(2λ), λ: workers per second that become ready"
UNKNOWN_WAIT_REASON = "how long a worker waits for its group is known only during the run"
FIXED_POINT_ITERATIONS = 100  # the error shrinks at least by half in each


def predict_group_step(vector_sum: SingleStageSum, cost_model: CostModel, members: int) -> StepTimePrediction:
    """Return the predicted step time of workers that average their parameters in groups of `members` workers.

    Each worker has its own step time, as in all asynchronous training. The links of a group are the slowest ones.
    """
    times, workers = cost_model.compute_times, cost_model.workers
    if members == 1:
        return StepTimePrediction(compute_s=times.mean_slowest_s(), exchange_s=0.0, formula="t_c")
    exchange = predict_step_with_sum(vector_sum, _slowest_group(cost_model, members))
    others = workers[1:]
    report_s = cost_model.max_latency_s([(worker, workers[0]) for worker in others])
    exchange_s = exchange.exchange_s + report_s + cost_model.max_latency_s([(workers[0], worker) for worker in others])
    computes_s = times.mean_s_by_worker
    is_uneven = times.mean_spread_s() > MAX_NEGLECTED_SHARE * (max(computes_s) + exchange_s)
    if members == len(workers):
        return _predict_step_of_all(times.mean_slowest_s(), exchange_s, exchange.inapplicable_reason, members)
    has_unknown_wait = is_uneven or cost_model.has_unequal_links or bool(len(workers) % members)
    wait_s = _mean_wait_s([seconds + exchange_s for seconds in computes_s], members) if has_unknown_wait else 0.0
    return StepTimePrediction(
        compute_s=max(computes_s),
        exchange_s=exchange_s + wait_s,
        formula=FORMULA.format(members=members) + WAIT_TEXT * has_unknown_wait,
        steps_s=tuple(seconds + exchange_s + wait_s for seconds in computes_s),
        inapplicable_reason=UNKNOWN_WAIT_REASON if has_unknown_wait else exchange.inapplicable_reason,
    )


def _predict_step_of_all(
    slowest_s: float, exchange_s: float, inapplicable_reason: str, members: int
) -> StepTimePrediction:
    """Return the predicted step time of a group of all workers, which waits for the slowest in each step."""
    return StepTimePrediction(
        compute_s=slowest_s,
        exchange_s=exchange_s,
        formula=FORMULA.format(members=members),
        steps_s=(slowest_s + exchange_s,) * members,
        inapplicable_reason=inapplicable_reason,
    )


def _slowest_group(cost_model: CostModel, members: int) -> CostModel:
    """Return the cost model of a group of the workers with the slowest links."""
    by_speed = sorted(
        cost_model.workers,
        key=lambda name: -max(cost_model.uplink_s_per_byte[name], cost_model.downlink_s_per_byte[name]),
    )
    return cost_model.model_copy(update={"workers": tuple(by_speed[:members])})


def _mean_wait_s(steps_without_wait_s: Sequence[float], members: int) -> float:
    """Return the mean wait w for a group: w = (g-1)/(2λ) with λ = Σ 1/(step + w).

    The right side grows with w by less than half, so the iteration converges.
    """
    wait_s = 0.0
    for _ in range(FIXED_POINT_ITERATIONS):
        if not all(seconds + wait_s for seconds in steps_without_wait_s):
            return wait_s
        wait_s = (members - 1) / 2 / sum(1 / (seconds + wait_s) for seconds in steps_without_wait_s)
    return wait_s


def static_group_schedule(worker_count: int, members: int) -> TransferSchedule:
    """Return the transfers of rings over groups of neighbouring ranks; ranks without a full group send nothing."""
    ring = Ring().plan_transfers(members)
    first_ranks = range(0, worker_count - members + 1, members)
    rounds = tuple(
        tuple(_shift_ranks(transfer, first) for first in first_ranks for transfer in transfers)
        for transfers in ring.rounds
    )
    return ring.model_copy(update={"rounds": rounds})


def _shift_ranks(transfer: Transfer, offset: int) -> Transfer:
    return transfer._replace(source=transfer.source + offset, target=transfer.target + offset)
