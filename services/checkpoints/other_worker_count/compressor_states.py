"""States of compressors after a change of the number of workers."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from services.checkpoints.other_worker_count.worker_change import WorkerChange
from services.compressors import CompressorSeed, CompressorState
from services.compressors.encoding.randomness import VectorRandomness
from services.compressors.sparsification.dgc import DgcState
from services.compressors.wrappers.error_feedback import ErrorFeedbackState
from services.compressors.wrappers.large_arrays_only import LargeArraysState
from services.strategies.vector_sums.low_rank_sum import LowRankState

# From the states by old rank, the change, and the sender of each new rank in the seed of random numbers.
StateRule: TypeAlias = Callable[[Sequence[Any], WorkerChange, Sequence[int]], list[CompressorState]]


def change_compressor_states(
    states: Sequence[CompressorState], change: WorkerChange, senders: Sequence[int]
) -> list[CompressorState]:
    """Return the states of one compressor by new rank.

    Args:
        states: the states by old rank, after the same number of vectors.
        change: which workers continue.
        senders: number of each new rank in the seed of random numbers.
    """
    return _STATE_RULES[type(states[change.first])](states, change, senders)


def _keep_nothing(
    states: Sequence[None],  # noqa: ARG001 - all are None
    change: WorkerChange,
    senders: Sequence[int],  # noqa: ARG001
) -> list[CompressorState]:
    return [None] * len(change.old_ranks)


def _change_randomness(
    states: Sequence[VectorRandomness], change: WorkerChange, senders: Sequence[int]
) -> list[CompressorState]:
    first = states[change.first]
    return [first._replace(seed=CompressorSeed(first.seed.trial_seed, sender)) for sender in senders]


def _change_error_feedback(
    states: Sequence[ErrorFeedbackState], change: WorkerChange, senders: Sequence[int]
) -> list[CompressorState]:
    residuals = change.add_residuals([state.residual for state in states])
    inner_states = change_compressor_states([state.inner_state for state in states], change, senders)
    counts = change.add_counts([state.reset_count for state in states])
    return list(map(ErrorFeedbackState, residuals, inner_states, counts))


def _change_dgc(states: Sequence[DgcState], change: WorkerChange, senders: Sequence[int]) -> list[CompressorState]:  # noqa: ARG001 - without random numbers
    velocities = change.add_residuals([state.velocity for state in states])
    unsent = change.add_residuals([state.unsent for state in states])
    counts = change.add_counts([state.reset_count for state in states])
    numbers = change.copy_values([state.vector_number for state in states])  # all ranks are in the same format stage
    return list(map(DgcState, velocities, unsent, counts, numbers))


def _change_large_arrays(
    states: Sequence[LargeArraysState], change: WorkerChange, senders: Sequence[int]
) -> list[CompressorState]:
    large = change_compressor_states([state.large for state in states], change, senders)
    small = change_compressor_states([state.small for state in states], change, senders)
    return list(map(LargeArraysState, large, small))


def _change_local_momentum(
    states: Sequence[tuple[Any]],
    change: WorkerChange,
    senders: Sequence[int],  # noqa: ARG001 - without random numbers
) -> list[CompressorState]:
    return [(velocity,) for velocity in change.add_residuals([velocity for (velocity,) in states])]


def _change_low_rank(
    states: Sequence[LowRankState],
    change: WorkerChange,
    senders: Sequence[int],  # noqa: ARG001 - all workers draw the same numbers
) -> list[CompressorState]:
    residuals = change.add_residuals([state.residual for state in states])
    copies = change.copy_values(states)
    return [state._replace(residual=residual) for state, residual in zip(copies, residuals, strict=True)]


_STATE_RULES: dict[type, StateRule] = {
    type(None): _keep_nothing,
    VectorRandomness: _change_randomness,
    ErrorFeedbackState: _change_error_feedback,
    DgcState: _change_dgc,
    LargeArraysState: _change_large_arrays,
    tuple: _change_local_momentum,
    LowRankState: _change_low_rank,
}
