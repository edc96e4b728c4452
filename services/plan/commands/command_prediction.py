"""Predicted bytes and times of a user's command, from the collectives that a dry run has counted."""

from collections.abc import Sequence

from services.plan.commands.command_collectives import (
    CollectiveTransfers,
    compressor_of_sum,
    entries_and_dtype_of,
    plan_collective,
)
from services.scenario.commands.step_profile import CollectiveCall, StepProfile
from services.strategies import CommandStrategy
from services.strategies.all_reduce import AllReduce
from services.strategies.cost_model import CostModel, StepTimePrediction

SUMS = ("all_reduce", "reduce_scatter")
FORMULA = "t_c + the part of the collectives that the compute does not hide"


def payload_bytes_sent(
    call: CollectiveCall, strategy: CommandStrategy, worker_count: int, rank: int, *, runs_on_gloo: bool
) -> float | None:
    """Return the payload bytes that a rank sends for a collective.

    Return None if they are not known: those of gather depend on its root, and those of a group of some of the ranks may
    depend on the rank in this group.

    Args:
        call: the collective.
        strategy: collective and compressor of Ensayo's process group.
        worker_count: number of all ranks.
        rank: the sender.
        runs_on_gloo: whether gloo runs the collective.
    """
    if call.operation == "all_to_all" or (not call.bytes and call.operation != "barrier"):
        return call.bytes * (call.group_size - 1) / call.group_size
    transfers = plan_collective(call, strategy, runs_on_gloo=runs_on_gloo)
    if transfers is None:
        return None
    sent = transfers.sent_bytes_by_rank
    if call.group_size == worker_count:
        return sent[rank]
    return sum(sent) / len(sent) if transfers.has_equal_senders else None


def explain_unpredictable_collectives(profile: StepProfile, worker_count: int) -> str:
    """Return why the collectives of a step have no closed form; the result is empty if they have one."""
    for call in profile.collectives:
        if call.group_size != worker_count:
            return f"{call.operation} among {call.group_size} of {worker_count} ranks has no closed form here"
        if not _has_closed_form(call):
            return f"{call.operation} has no closed form here"
    return ""


def _has_closed_form(call: CollectiveCall) -> bool:
    return call.operation in (*SUMS, "all_gather", "barrier") or call.root_rank is not None


def predict_command_step(
    profile: StepProfile, strategy: CommandStrategy, cost_model: CostModel, compute_s: float
) -> StepTimePrediction:
    """Return the predicted time of a step of a command.

    Collectives are launched at their scheduled times, and run one after the other. The compute stops at the scheduled
    time of each wait until the collective has ended.

    Args:
        profile: collectives of a step and their scheduled times.
        strategy: algorithm of all-reduce.
        cost_model: network of the cluster.
        compute_s: compute time of a step of the slowest worker, in virtual seconds.
    """
    return StepTimePrediction(
        compute_s=compute_s,
        exchange_s=_blocked_s(profile, predict_collectives_s(profile, strategy, cost_model), compute_s),
        formula=FORMULA,
        inapplicable_reason=explain_unpredictable_collectives(profile, len(cost_model.workers)),
    )


def _blocked_s(profile: StepProfile, durations_s: Sequence[float], compute_s: float) -> float:
    """Return the seconds of a step in which the script waits for collectives of these durations."""
    launches = [(share, 0, index) for index, share in enumerate(profile.launch_shares)]
    waits = [(share, 1, index) for index, share in enumerate(profile.wait_shares)]
    network_free_s = blocked_s = 0.0
    ends_s: dict[int, float] = {}
    for share, is_wait, index in sorted((*launches, *waits)):
        time_s = share * compute_s + blocked_s
        if is_wait:
            blocked_s += max(0.0, ends_s[index] - time_s)
        else:
            network_free_s = ends_s[index] = max(time_s, network_free_s) + durations_s[index]
    return blocked_s


def predict_collectives_s(profile: StepProfile, strategy: CommandStrategy, cost_model: CostModel) -> tuple[float, ...]:
    """Return the predicted seconds of each collective of a step, if all ranks begin it together."""
    return tuple(_collective_s(call, strategy, cost_model) for call in profile.collectives)


def _collective_s(call: CollectiveCall, strategy: CommandStrategy, cost_model: CostModel) -> float:
    """Return the seconds of a collective: of an all-reduce, of half a ring all-reduce, or of a broadcast.

    An all_gather has no sums, and a reduce_scatter of Ensayo no copies. A barrier takes no time.
    """
    ranks, runs_on_gloo = len(cost_model.workers), strategy.process_group == "gloo"
    if ranks == 1 or call.group_size != ranks or not _has_closed_form(call) or call.operation == "barrier":
        return 0.0
    if call.operation == "all_reduce" or (call.operation == "reduce_scatter" and runs_on_gloo):
        compress = compressor_of_sum(call, strategy)
        return _all_reduce_s(call, AllReduce(collective=strategy.collective, compress=compress), cost_model)
    if call.operation == "reduce_scatter":
        ring = AllReduce(compress=compressor_of_sum(call, strategy))
        return _all_reduce_s(call, ring, cost_model) / 2
    if call.operation == "all_gather":
        whole = call.model_copy(update={"bytes": call.bytes * ranks})
        return _all_reduce_s(whole, AllReduce(), cost_model) / 2
    transfers = plan_collective(call, strategy, runs_on_gloo=runs_on_gloo)
    return _transfers_s(transfers, cost_model) if transfers else 0.0


def _all_reduce_s(call: CollectiveCall, all_reduce: AllReduce, cost_model: CostModel) -> float:
    entries, dtype = entries_and_dtype_of(call)
    model = cost_model.model_copy(update={"entries": max(1, entries), "dtype": dtype})
    return all_reduce.predict_step_time(model).exchange_s


def _transfers_s(transfers: CollectiveTransfers, cost_model: CostModel) -> float:
    """Return the seconds of transfers of one chunk: those of the busiest link, and the latency of the longest chain."""
    names, schedule = cost_model.workers, transfers.schedule
    flows = {pair: (names[pair[0]], names[pair[1]]) for pair in schedule.sending_rank_pairs}
    transfer_s = sum(
        cost_model.transfer_s([(flows[pair], chunks * transfers.entries) for pair, chunks in load.items()])
        for load in schedule.relative_payload_sizes
    )
    latency_s = {pair: cost_model.max_latency_s([flow]) for pair, flow in flows.items()}
    return transfer_s + schedule.critical_path_latency_s(latency_s)
