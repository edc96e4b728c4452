"""Parameters and states of workers after a change of the number of workers, by strategy."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from services.checkpoints.other_worker_count.compressor_states import change_compressor_states
from services.checkpoints.other_worker_count.worker_change import WorkerChange
from services.learning.layout import VectorRange, equal_vector_ranges
from services.learning.optimisers import OptimiserState
from services.schema.arrays import Vector
from services.schema.errors import EnsayoError
from services.strategies.all_reduce.worker import AllReduceState
from services.strategies.base import WorkerState
from services.strategies.local_training.diloco.worker import DiLoCoState, FragmentState
from services.strategies.local_training.local_sgd import LocalSgdState
from services.strategies.local_training.periodic_exchange import SampleCounts
from services.strategies.server_based.push_pull import PushState


class UnsupportedWorkerChange(EnsayoError):
    """Error because the state of a strategy is not defined for another number of workers."""


class WorkerSnapshot(NamedTuple):
    """Parameters and state of one worker after a step."""

    params: Vector
    state: WorkerState


SnapshotRule: TypeAlias = Callable[[Sequence[WorkerSnapshot], WorkerChange], list[WorkerSnapshot]]


def change_workers(workers: Sequence[WorkerSnapshot], change: WorkerChange) -> list[WorkerSnapshot]:
    """Return parameters and states of the workers by new rank.

    Args:
        workers: snapshots of all old workers after the same step, by old rank.
        change: which of them continue.

    Raises:
        UnsupportedWorkerChange: the state of this strategy is not defined for another number of workers.
    """
    first_state = workers[change.first].state
    has_push_states = type(first_state) is tuple and all(type(state) is PushState for state in first_state)
    state_class = PushState if has_push_states else type(first_state)
    if state_class not in _SNAPSHOT_RULES:
        raise UnsupportedWorkerChange(
            f"the state of workers in the class {state_class.__name__} is not defined for another number of workers; "
            f"continue with {change.old_count} workers"
        )
    return _SNAPSHOT_RULES[state_class](workers, change)


def _copy_replicas(workers: Sequence[WorkerSnapshot], change: WorkerChange) -> list[WorkerSnapshot]:
    return change.copy_values(workers)


def _change_all_reduce(workers: Sequence[WorkerSnapshot], change: WorkerChange) -> list[WorkerSnapshot]:
    compressor_states = _change_weighted_states([worker.state.compressor_state for worker in workers], change)
    return [
        worker._replace(state=worker.state._replace(compressor_state=compressor_state))
        for worker, compressor_state in zip(change.copy_values(workers), compressor_states, strict=True)
    ]


def _change_weighted_states(states: Sequence[Any], change: WorkerChange) -> list[Any]:
    """Return the states of a compressor in a collective, which gets vectors with their weights."""
    return change_compressor_states(states, change.without_weights(), range(len(change.old_ranks)))


def _change_pushes(workers: Sequence[WorkerSnapshot], change: WorkerChange) -> list[WorkerSnapshot]:
    """Return the workers of a strategy with servers, which have one state per shard."""
    shard_count = len(workers[change.first].state)
    by_shard: list[list[PushState]] = []
    for shard in range(shard_count):
        old_states: list[PushState] = [worker.state[shard] for worker in workers]
        senders = [rank * shard_count + shard for rank in range(len(change.old_ranks))]
        compressor_states = change_compressor_states([state.compressor_state for state in old_states], change, senders)
        copies = change.copy_values(old_states)
        by_shard.append([old._replace(compressor_state=s) for old, s in zip(copies, compressor_states, strict=True)])
    states = zip(*by_shard, strict=True)
    return [worker._replace(state=state) for worker, state in zip(change.copy_values(workers), states, strict=True)]


class _LocalPart(NamedTuple):
    """Range of the parameter vector, and the samples of all workers since its last exchange, by old rank."""

    vector_range: VectorRange
    samples: Sequence[SampleCounts]


def _change_local_sgd(workers: Sequence[WorkerSnapshot], change: WorkerChange) -> list[WorkerSnapshot]:
    samples = [worker.state.samples for worker in workers]
    whole = VectorRange(0, len(workers[change.first].params))
    compressor_states = _change_weighted_states([worker.state.compressor_state for worker in workers], change)
    return [
        worker._replace(state=replace(worker.state, compressor_state=compressor_state, samples=own))
        for worker, compressor_state, own in zip(
            _change_local_training(workers, change, [_LocalPart(whole, samples)]),
            compressor_states,
            _change_samples(samples, change),
            strict=True,
        )
    ]


def _change_diloco(workers: Sequence[WorkerSnapshot], change: WorkerChange) -> list[WorkerSnapshot]:
    if any(worker.state.running is not None for worker in workers):
        raise UnsupportedWorkerChange("an exchange of diloco is still running; change the workers after its merge")
    first = workers[change.first]
    ranges = equal_vector_ranges(len(first.params), len(first.state.fragments))
    by_fragment = list(zip(*(worker.state.fragments for worker in workers), strict=True))
    parts = [_LocalPart(part, [old.samples for old in olds]) for part, olds in zip(ranges, by_fragment, strict=True)]
    fragments = zip(*(_change_fragment(olds, change) for olds in by_fragment), strict=True)
    return [
        worker._replace(state=replace(worker.state, fragments=tuple(own)))
        for worker, own in zip(_change_local_training(workers, change, parts), fragments, strict=True)
    ]


def _change_fragment(old_fragments: Sequence[FragmentState], change: WorkerChange) -> list[FragmentState]:
    """Return the states of one fragment by new rank; outer optimisers have equal states on all workers."""
    compressor_states = _change_weighted_states([old.compressor_state for old in old_fragments], change)
    samples = _change_samples([old.samples for old in old_fragments], change)
    outer_states = change.copy_values([old.outer_state for old in old_fragments])
    return list(map(FragmentState, outer_states, compressor_states, samples))


def _change_samples(samples: Sequence[SampleCounts], change: WorkerChange) -> list[SampleCounts]:
    """Return the samples since an exchange by new rank; their sum, and the number of all samples, stay the same."""
    return [SampleCounts(own, samples[change.first].all) for own in change.add_counts([old.own for old in samples])]


def _change_local_training(
    workers: Sequence[WorkerSnapshot], change: WorkerChange, parts: Sequence[_LocalPart]
) -> list[WorkerSnapshot]:
    """Return workers that train parameters of their own, with the first ones' means over the removed workers."""
    first = workers[change.first]
    if change.removed:
        sources = change.list_sources(change.first)
        states = [workers[rank].state.optimiser_state for rank in sources]
        slots = zip(*(state.slots for state in states), strict=True)
        means = tuple(_mean_by_samples(vectors, sources, parts) for vectors in slots)
        optimiser_state = OptimiserState(states[0].update_count, means)
        params = _mean_by_samples([workers[rank].params for rank in sources], sources, parts)
        first = WorkerSnapshot(params, replace(first.state, optimiser_state=optimiser_state))
    new = first._replace(params=first.state.common_params)
    return [new if old is None else first if old == change.first else workers[old] for old in change.old_ranks]


def _mean_by_samples(vectors: Sequence[Vector], old_ranks: Sequence[int], parts: Sequence[_LocalPart]) -> Vector:
    """Return the mean of vectors of old ranks, weighted by samples in each part; without samples, the first vector."""
    mean = vectors[0].copy()
    for part, samples in parts:
        weights = [samples[rank].own for rank in old_ranks]
        if not any(weights[1:]):
            continue
        terms = [part.view(v) * v.dtype.type(w / sum(weights)) for v, w in zip(vectors, weights, strict=True)]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        part.view(mean)[:] = total
    return mean


_SNAPSHOT_RULES: dict[type, SnapshotRule] = {
    AllReduceState: _change_all_reduce,
    DiLoCoState: _change_diloco,
    LocalSgdState: _change_local_sgd,
    OptimiserState: _copy_replicas,  # of a single worker
    PushState: _change_pushes,  # one for each shard
}
