"""Predicted bytes and times of a user's command, from the collectives that a dry run has counted."""

from collections.abc import Sequence
from typing import NamedTuple

from services.compressors import IdentityCompressor
from services.scenario.step_profile import CollectiveCall, StepProfile
from services.strategies import CommandStrategy
from services.strategies.all_reduce import AllReduce
from services.strategies.cost_model import CostModel, StepTimePrediction

COMPRESSED_TYPES = {"float32": 4, "float64": 8}  # bytes of an entry
FORMULA = "t_c + the part of the collectives that the compute does not hide"


class PayloadShares(NamedTuple):
    """Bytes that each rank sends for a collective on vectors of S bytes, as a multiple of S, with n ranks."""

    gloo: float
    ensayo: float


def payload_shares(operation: str, group_size: int) -> PayloadShares | None:
    """Return the bytes that a rank sends for an operation, as a multiple of S; None if ranks send unequal amounts.

    S is the size of the tensor of all_reduce, the input of reduce_scatter and all_to_all, and the input of all_gather
    on one rank. The reduce_scatter of gloo is an all-reduce, of which each rank keeps a part.
    """
    share = (group_size - 1) / group_size
    shares = {
        "all_reduce": PayloadShares(2 * share, 2 * share),
        "all_gather": PayloadShares(group_size - 1, group_size - 1),
        "reduce_scatter": PayloadShares(2 * share, share),
        "all_to_all": PayloadShares(share, share),
        "barrier": PayloadShares(0.0, 0.0),
    }
    return shares.get(operation)


def payload_bytes_sent(
    call: CollectiveCall, strategy: CommandStrategy, worker_count: int, rank: int, *, runs_on_gloo: bool
) -> float | None:
    """Return the payload bytes that a rank sends for a collective.

    Return None if they are not known: those of a broadcast depend on its root.

    Args:
        call: the collective.
        strategy: collective and compressor of Ensayo's process group.
        worker_count: number of all ranks.
        rank: the sender.
        runs_on_gloo: whether gloo runs the collective.
    """
    if not runs_on_gloo and call.operation == "all_reduce" and call.group_size == worker_count:
        return _all_reduce_bytes(call, strategy, worker_count, rank)
    shares = payload_shares(call.operation, call.group_size)
    return None if shares is None else call.bytes * (shares.gloo if runs_on_gloo else shares.ensayo)


def _all_reduce_bytes(call: CollectiveCall, strategy: CommandStrategy, worker_count: int, rank: int) -> float:
    """Return the bytes that a rank sends in an all-reduce of Ensayo; only fp32 and fp64 are compressed."""
    is_compressed = call.dtype in COMPRESSED_TYPES
    dtype = call.dtype if is_compressed else "uint8"
    compressor = strategy.compress if is_compressed else IdentityCompressor()
    all_reduce = AllReduce(collective=strategy.collective, compress=compressor)
    entries = call.bytes // COMPRESSED_TYPES.get(call.dtype, 1)
    return all_reduce.sent_bytes_per_step(worker_count, entries, dtype).workers[rank]


def explain_unpredictable_collectives(profile: StepProfile, worker_count: int) -> str:
    """Return why the collectives of a step have no closed form; the result is empty if they have one."""
    for call in profile.collectives:
        if call.group_size != worker_count:
            return f"{call.operation} among {call.group_size} of {worker_count} ranks has no closed form here"
        if call.operation not in ("all_reduce", "all_gather", "reduce_scatter", "barrier"):
            return f"{call.operation} has no closed form here"
    return ""


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
    """Return the seconds of a collective: that of an all-reduce, or of its half without a sum or without copies."""
    ranks = len(cost_model.workers)
    if ranks == 1 or call.operation not in ("all_reduce", "all_gather", "reduce_scatter"):
        return 0.0
    all_reduce = AllReduce(collective=strategy.collective, compress=strategy.compress)
    size_bytes = call.bytes * ranks if call.operation == "all_gather" else call.bytes
    entries = max(1, round(size_bytes / 4))
    whole_s = all_reduce.predict_step_time(cost_model.model_copy(update={"entries": entries})).exchange_s
    is_half = call.operation == "all_gather" or (
        call.operation == "reduce_scatter" and strategy.process_group == "ensayo"
    )
    return whole_s / 2 if is_half else whole_s
