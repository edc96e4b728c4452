"""Predicted time of a step that ends with a sum of one vector per worker."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil, inf

from services.cluster.links.fluid_link import MAX_FLUID_MESSAGE_BYTES, MIN_FLUID_MESSAGES_PER_VECTOR
from services.collectives import TransferSchedule
from services.collectives.base import RankPair
from services.strategies.cost_model import (
    EARLY_EXCHANGE_REASON,
    MAX_NEGLECTED_SHARE,
    CostModel,
    Flow,
    StepTimePrediction,
)
from services.strategies.vector_sums.base import SingleStageSum, VectorSum

SHORT_VECTOR_BYTES = MIN_FLUID_MESSAGES_PER_VECTOR * MAX_FLUID_MESSAGE_BYTES  # its messages are shorter than others


def predict_step_with_sum(
    vector_sum: VectorSum, cost_model: CostModel, steps_per_exchange: int = 1
) -> StepTimePrediction:
    """Return the predicted step time on a cluster where workers sum their vectors every `steps_per_exchange` steps.

    An exchange begins when the slowest worker has computed its vector: t_c is the mean of the slowest worker's compute
    time in each step. The stages of a sum follow one another.
    """
    stages = [
        _predict_step_with_stage(stage_sum, cost_model.model_copy(update={"entries": entries}), steps_per_exchange)
        for stage_sum, entries in vector_sum.stages(cost_model.entries)
    ]
    if len(stages) == 1:
        return stages[0]
    formula = stages[0].formula.removeprefix("t_c + ")
    return StepTimePrediction(
        compute_s=stages[0].compute_s,
        exchange_s=sum(stage.exchange_s for stage in stages),
        formula=f"t_c + ΣT(S_j) over {len(stages)} sums, with T = {formula}",
        inapplicable_reason=next((stage.inapplicable_reason for stage in stages if stage.inapplicable_reason), ""),
    )


def _predict_step_with_stage(
    vector_sum: SingleStageSum, cost_model: CostModel, steps_per_exchange: int
) -> StepTimePrediction:
    """Return the predicted step time with one stage of a sum, on the vectors of the cost model.

    The latency part is that of the longest chain of transfers.
    """
    schedule = vector_sum.plan_transfers(len(cost_model.workers))
    flows = {edge: (cost_model.workers[edge[0]], cost_model.workers[edge[1]]) for edge in schedule.sending_rank_pairs}
    transfer_s = vector_sum.transfer_time_s(cost_model, _seconds_per_byte(schedule, cost_model))
    waits_s = schedule.critical_path_latency_s({edge: cost_model.max_latency_s([flow]) for edge, flow in flows.items()})
    hidden_s = _latency_hidden_by_transfer_s(vector_sum, schedule, cost_model, transfer_s, waits_s)
    compute_s = cost_model.compute_times.mean_slowest_s(steps_per_exchange)
    exchange_s = (transfer_s + waits_s - hidden_s) / steps_per_exchange
    return StepTimePrediction(
        compute_s=compute_s,
        exchange_s=exchange_s,
        formula=f"t_c + {vector_sum.closed_form}" + (", less the part of α that pieces hide" if hidden_s else ""),
        inapplicable_reason=_explain_inapplicable_form(
            vector_sum, cost_model, compute_s, exchange_s, waits_s, steps_per_exchange
        ),
    )


def _explain_inapplicable_form(
    vector_sum: SingleStageSum,
    cost_model: CostModel,
    compute_s: float,
    exchange_s: float,
    latency_s: float,
    steps_per_exchange: int,
) -> str:
    """Return why the closed form does not describe the step time on this cluster.

    Return an empty text if it does, or if exchanges are a negligible part of the step.
    """
    ranks, max_deviation_s = len(cost_model.workers), MAX_NEGLECTED_SHARE * (compute_s + exchange_s)
    if exchange_s <= max_deviation_s:
        return ""
    schedule, divided_bytes = vector_sum.plan_transfers(ranks), vector_sum.divided_bytes(cost_model)
    is_short = divided_bytes < SHORT_VECTOR_BYTES
    message_bytes = min(cost_model.fluid_message_bytes, schedule.max_piece_bytes or inf)
    if reason := vector_sum.explain_inapplicable_form(ranks, ceil(divided_bytes / message_bytes)):
        return reason
    if is_short and cost_model.has_unequal_links and not schedule.is_pipelined:
        return "ranks with faster links exchange short vectors before the others"
    spread_s = cost_model.compute_times.mean_spread_s(steps_per_exchange)
    if spread_s and is_short and not schedule.is_pipelined and exchange_s > compute_s:
        return EARLY_EXCHANGE_REASON
    # In a pipeline, the slowest rank still sends all its data: ranks that start early hide only latency.
    sends_all_data = schedule.all_ranks_send_in_every_round and schedule.is_pipelined
    has_own_links = not cost_model.network.shared_links
    hidden_s = latency_s / steps_per_exchange if sends_all_data and has_own_links else exchange_s
    if min(spread_s, hidden_s) > max_deviation_s / 2:
        return EARLY_EXCHANGE_REASON
    return ""


def _latency_hidden_by_transfer_s(
    vector_sum: SingleStageSum, schedule: TransferSchedule, cost_model: CostModel, transfer_s: float, latency_s: float
) -> float:
    """Return the seconds of latency that overlap with transfers.

    Latency overlaps with transfers because messages are pipelined in pieces.
    """
    if cost_model.message_lengths is None:
        return 0.0
    longest_bytes = schedule.max_message_bytes(vector_sum.divided_bytes(cost_model), *cost_model.message_lengths)
    piece_bytes = cost_model.round_to_whole_entries(longest_bytes)
    return vector_sum.latency_hidden_by_transfer_s(cost_model, piece_bytes, transfer_s, latency_s)


def _seconds_per_byte(schedule: TransferSchedule, cost_model: CostModel) -> float:
    """Return the effective seconds per byte (β) of an all-reduce schedule on a cluster.

    β is the time of all rounds on this network, divided by their time if every access link carries one byte per second.
    On equal links in a star topology, β is the seconds per byte of one link, whatever the schedule.
    """
    workers, dtype = cost_model.workers, cost_model.dtype
    links = dict.fromkeys(workers, 1.0)
    equal = CostModel(workers=workers, entries=1, dtype=dtype, uplink_s_per_byte=links, downlink_s_per_byte=links)
    transfer_s = equal_transfer_s = 0.0
    for load, rounds in Counter(
        _list_bytes_by_node_pair(load, workers) for load in schedule.relative_payload_sizes
    ).items():
        transfer_s += rounds * cost_model.transfer_s(load)
        equal_transfer_s += rounds * equal.transfer_s(load)
    return transfer_s / equal_transfer_s if equal_transfer_s else 0.0


def _list_bytes_by_node_pair(
    rank_pair_bytes: Mapping[RankPair, int], node_names: Sequence[str]
) -> tuple[tuple[Flow, int], ...]:
    """Return the bytes that each pair of workers transfers in one round of a schedule.

    Each pair is (sender, receiver). The pairs are sorted by names.
    """
    return tuple(
        sorted(((node_names[source], node_names[target]), size) for (source, target), size in rank_pair_bytes.items())
    )
