"""Predicted time of a step of AD-PSGD.

An active worker sends its parameters and receives those of a passive worker: 2α + 2Sβ. A passive worker only computes.
Every worker reports its samples to worker 0, which replies: 2α. Pushes of several active workers to the same passive
worker share its links, and reports wait behind vectors on the links of worker 0. The formula does not contain these
waits: it is a lower bound, and describes the step only if averages are a negligible part of it.
"""

from services.strategies.async_averaging.pairing import list_active_ranks, list_passive_ranks
from services.strategies.cost_model import MAX_NEGLECTED_SHARE, CostModel, StepTimePrediction

FORMULA = "active workers: t_c + 4α + 2S·β, passive workers: t_c + 2α"
SHARED_LINKS_REASON = "how many vectors share the links of a worker at a time is known only during the run"


def predict_pair_step(cost_model: CostModel) -> StepTimePrediction:
    """Return the predicted step time of active and passive workers."""
    workers, computes_s = cost_model.workers, cost_model.compute_times.mean_s_by_worker
    if len(workers) == 1:
        return StepTimePrediction(compute_s=max(computes_s), exchange_s=0.0, formula="t_c")
    average_s = dict.fromkeys(list_passive_ranks(len(workers)), 0.0)
    average_s |= {rank: _average_s(cost_model, rank) for rank in list_active_ranks(len(workers))}
    steps_s = tuple(
        compute_s + average_s[rank] + _report_s(cost_model, rank) for rank, compute_s in enumerate(computes_s)
    )
    is_negligible = max(average_s.values()) <= MAX_NEGLECTED_SHARE * max(steps_s)
    return StepTimePrediction(
        compute_s=max(computes_s),
        exchange_s=max(steps_s) - max(computes_s),
        formula=FORMULA,
        steps_s=steps_s,
        inapplicable_reason="" if is_negligible else SHARED_LINKS_REASON,
    )


def _average_s(cost_model: CostModel, active_rank: int) -> float:
    """Return the seconds in which an active worker averages with the passive worker of the slowest links."""
    active, passive = cost_model.workers[active_rank], list_passive_ranks(len(cost_model.workers))
    return max(
        sum(
            cost_model.max_latency_s([flow]) + cost_model.transfer_s([(flow, cost_model.vector_bytes)])
            for flow in ((active, name), (name, active))
        )
        for name in (cost_model.workers[rank] for rank in passive)
    )


def _report_s(cost_model: CostModel, rank: int) -> float:
    """Return the seconds in which a worker reports its samples to worker 0 and gets the reply."""
    first, worker = cost_model.workers[0], cost_model.workers[rank]
    return 0.0 if rank == 0 else sum(cost_model.max_latency_s([flow]) for flow in ((worker, first), (first, worker)))
