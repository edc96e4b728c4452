"""Tests of a change of the number of workers: sums over all workers stay the same, and so does training."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_trial import SimulatedTrial

from services.checkpoints.other_worker_count import (
    UnsupportedWorkerChange,
    WorkerChange,
    WorkerSnapshot,
    change_workers,
)
from services.compressors import Dgc, ErrorFeedback, Int8, LargeArraysOnly, OneBit, RandomK, TopK
from services.compressors.sparsification.dgc import DgcState
from services.compressors.wrappers.error_feedback import ErrorFeedbackState
from services.learning.optimisers import Momentum
from services.schema.arrays import HostArray
from services.strategies import (
    AdPsgd,
    AllReduce,
    DiLoCo,
    DPsgd,
    Easgd,
    LocalSgd,
    NoLoCo,
    ParameterServer,
    PartialAllReduce,
    SingleWorker,
    StepResult,
    Strategy,
)
from services.strategies.local_training.diloco.worker import DiLoCoState
from services.strategies.vector_sums import PowerSgd
from services.strategies.vector_sums.low_rank_sum import LowRankState
from services.worker.runtime import WorkerRuntime

SGD = {"kind": "sgd", "rate": 0.02}
MEMBERSHIPS = [(0, 1), (0,), (2, 1), (None, 0), (0, 1, 2, None), (1, None, None, None), (0, 1, 2)]
every_membership = pytest.mark.parametrize("old_ranks", MEMBERSHIPS, ids=repr)


class Snapshots:
    """Snapshots that workers take before a step, and with which the workers of a later trial continue."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
        self.taken: dict[int, WorkerSnapshot] = {}  # by rank
        self.given: Sequence[WorkerSnapshot] = ()  # by rank; empty: workers continue with their own
        run_step = WorkerRuntime._run_training_step

        async def run(worker: WorkerRuntime, number: int, previous: StepResult, *args: Any) -> StepResult:
            if number == step and self.given:
                previous = replace(previous, **self.given[worker.node.rank]._asdict())
            elif number == step:
                self.taken[worker.node.rank] = WorkerSnapshot(previous.params, previous.state)
            return await run_step(worker, number, previous, *args)

        monkeypatch.setattr(WorkerRuntime, "_run_training_step", run)

    @property
    def by_rank(self) -> list[WorkerSnapshot]:
        return [self.taken[rank] for rank in sorted(self.taken)]


def take_snapshots(
    strategy: Strategy, monkeypatch: pytest.MonkeyPatch, step: int = 5, workers: int = 3, **workload: Any
) -> list[WorkerSnapshot]:
    """Return the snapshots of all workers of a trial before a step."""
    snapshots = Snapshots(monkeypatch, step)
    SimulatedTrial.of(strategy, 8, workers, 12, **{"optimiser": SGD, **workload})
    return snapshots.by_rank


def list_residuals(state: Any) -> Iterator[HostArray]:
    """Yield the vectors of a state that the worker has not sent yet, and the velocities of its compressors."""
    match state:
        case ErrorFeedbackState(residual) | LowRankState(residual=residual):
            yield from [] if residual is None else [residual]
        case DgcState(velocity, unsent):
            yield from (vector for vector in (velocity, unsent) if vector is not None)
        case DiLoCoState():
            yield from list_residuals(state.fragments)
        case tuple():
            for item in state:
                yield from list_residuals(item)
        case _:
            yield from list_residuals(getattr(state, "compressor_state", ()))


def sum_residuals(snapshots: Sequence[WorkerSnapshot], weights: Sequence[float] = ()) -> list[HostArray]:
    """Return the sums of residuals over all workers, times their weights."""
    factors = weights or [1.0] * len(snapshots)
    found = [
        [factor * vector.astype("float64") for vector in list_residuals(snapshot.state)]
        for factor, snapshot in zip(factors, snapshots, strict=True)
    ]
    return [sum(vectors) for vectors in zip(*(vectors for vectors in found if vectors), strict=True)]


RESIDUAL_STRATEGIES = [
    AllReduce(compress=ErrorFeedback(inner=TopK(ratio=0.1))),
    AllReduce(compress=ErrorFeedback(inner=Int8())),
    AllReduce(compress=Dgc(ratio=0.1)),
    AllReduce(compress=LargeArraysOnly(min_entries=8, inner=Dgc(ratio=0.1))),
    AllReduce(compress=LargeArraysOnly(min_entries=8, inner=ErrorFeedback(inner=OneBit()))),
    AllReduce(compress=PowerSgd(rank=1, min_ratio=0)),
    LocalSgd(period=2, compress=ErrorFeedback(inner=TopK(ratio=0.1))),
    DiLoCo(period=2, fragments=2, compress=ErrorFeedback(inner=TopK(ratio=0.1))),
]


@every_membership
@pytest.mark.parametrize("strategy", RESIDUAL_STRATEGIES, ids=repr)
def test_sum_of_residuals_stays_the_same(
    strategy: Strategy, old_ranks: tuple[int | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a removed worker has not sent would be lost for training; collectives add vectors with their weights."""
    before = take_snapshots(strategy, monkeypatch)

    after = change_workers(before, WorkerChange(old_ranks, 3))

    assert len(after) == len(old_ranks)
    sums = sum_residuals(before)
    assert sums
    assert all(np.abs(vector).max() > 0 for vector in sums)
    for total, expected in zip(sum_residuals(after), sums, strict=True):
        assert total == pytest.approx(expected, rel=1e-12, abs=1e-15)


@every_membership
@pytest.mark.parametrize("compressor", [ErrorFeedback(inner=TopK(ratio=0.1)), Dgc(ratio=0.1)], ids=repr)
def test_weighted_sum_of_residuals_stays_the_same_with_servers(
    compressor: ErrorFeedback | Dgc, old_ranks: tuple[int | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers multiply decompressed vectors by the worker's share of the samples, which the change alters."""
    before = take_snapshots(ParameterServer(servers=2, compress=compressor), monkeypatch)
    weights = (1 / 3,) * 3
    new_weights = (0.5, *(0.5 / max(1, len(old_ranks) - 1),) * (len(old_ranks) - 1))

    after = change_workers(before, WorkerChange(old_ranks, 3, weights, new_weights))

    sums = sum_residuals(before, weights)
    assert len(sums) == (2 if isinstance(compressor, ErrorFeedback) else 4)
    for total, expected in zip(sum_residuals(after, new_weights), sums, strict=True):
        assert total == pytest.approx(expected, rel=1e-12, abs=1e-15)


@every_membership
@pytest.mark.parametrize("strategy", [LocalSgd(period=4), DiLoCo(period=4), DiLoCo(period=4, fragments=2)], ids=repr)
def test_next_exchange_of_local_training_has_the_same_result(
    strategy: LocalSgd | DiLoCo, old_ranks: tuple[int | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Local steps since the last exchange, also those of removed workers, are part of the next mean."""
    before = take_snapshots(strategy, monkeypatch, step=7, optimiser=Momentum(rate=0.02).model_dump())

    after = change_workers(before, WorkerChange(old_ranks, 3))

    for total, expected in zip(sum_changes(after), sum_changes(before), strict=True):
        assert np.abs(expected).max() > 0
        assert total == pytest.approx(expected, rel=1e-12, abs=1e-15)
    common = before[0].state.common_params
    assert all(
        snapshot.state.common_params is common or (snapshot.state.common_params == common).all() for snapshot in after
    )
    new = [snapshot for old, snapshot in zip(old_ranks, after, strict=True) if old is None]
    assert all((snapshot.params == common).all() for snapshot in new)


def sum_changes(snapshots: Sequence[WorkerSnapshot]) -> list[HostArray]:
    """Return the sums over workers of the changes of parameters, and of momenta, with the weights of an exchange."""
    totals = []
    for part, entries in enumerate(fragment_entries(snapshots[0])):
        weights = [sample_counts(snapshot, part).own_share for snapshot in snapshots]
        assert sum(weights) == pytest.approx(1)
        pairs = list(zip(weights, snapshots, strict=True))
        totals.append(sum(w * (s.params - s.state.common_params)[entries] for w, s in pairs))
        totals.append(sum(w * s.state.optimiser_state.slots[0][entries] for w, s in pairs))
    return totals


def fragment_entries(snapshot: WorkerSnapshot) -> list[slice]:
    """Return the ranges of fragments; the trials here have one or two."""
    size, count = len(snapshot.params), len(getattr(snapshot.state, "fragments", (None,)))
    return [slice(size * number // count, size * (number + 1) // count) for number in range(count)]


def sample_counts(snapshot: WorkerSnapshot, part: int) -> Any:
    """Return the samples since the last exchange of a fragment."""
    fragments = getattr(snapshot.state, "fragments", None)
    return snapshot.state.samples if fragments is None else fragments[part].samples


@pytest.mark.parametrize("old_ranks", [(0,), (1, 2), (0, 1, 2, None), (0, None, None, None, None, None)], ids=repr)
@pytest.mark.parametrize(
    "strategy",
    [
        AllReduce(),
        AllReduce(compress=ErrorFeedback(inner=TopK(ratio=1))),
        AllReduce(compress=Dgc(ratio=1, momentum=0)),
        LocalSgd(period=1),
        DiLoCo(period=1, outer=Momentum(rate=0.7, momentum=0.3, nesterov=True)),
    ],
    ids=repr,
)
def test_n_workers_that_continue_as_m_workers_train_like_n_workers(
    strategy: Strategy, old_ranks: tuple[int | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The global batch of a step depends only on the step: n workers with b samples each equal one with n·b samples."""
    snapshots = Snapshots(monkeypatch, step=5)
    expected = SimulatedTrial.of(strategy, 10, 3, 12, optimiser=SGD)

    snapshots.given = change_workers(snapshots.by_rank, WorkerChange(old_ranks, 3))
    continued = SimulatedTrial.of(strategy, 10, len(old_ranks), 12, optimiser=SGD)

    assert continued.loss == pytest.approx(expected.loss, rel=1e-12)
    snapshots.given = [snapshot._replace(params=snapshot.params * 1.01) for snapshot in snapshots.given]
    assert SimulatedTrial.of(strategy, 10, len(old_ranks), 12, optimiser=SGD).loss != pytest.approx(expected.loss)


@pytest.mark.parametrize("strategy", [SingleWorker(), AllReduce(), ParameterServer(), LocalSgd(period=4)], ids=repr)
def test_same_workers_keep_every_bit(strategy: Strategy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore on the same workers must not show."""
    workers = 1 if isinstance(strategy, SingleWorker) else 3
    before = take_snapshots(strategy, monkeypatch, workers=workers)

    after = change_workers(before, WorkerChange(tuple(range(workers)), workers))

    assert [snapshot.params.tobytes() for snapshot in after] == [snapshot.params.tobytes() for snapshot in before]
    assert [repr(snapshot.state) for snapshot in after] == [repr(snapshot.state) for snapshot in before]


def test_ranks_of_random_numbers_stay_different_and_continue_their_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers with the same random numbers round alike, so their errors no longer cancel."""
    before = take_snapshots(AllReduce(compress=Int8()), monkeypatch)
    after = change_workers(before, WorkerChange((2, 1, None), 3))
    states = [snapshot.state.compressor_state for snapshot in after]

    assert [state.seed.sender for state in states] == [0, 1, 2]
    assert {state.vector_number for state in states} == {5}

    pushes = take_snapshots(ParameterServer(servers=2, compress=RandomK(ratio=0.5)), monkeypatch)
    shard_states = [snapshot.state for snapshot in change_workers(pushes, WorkerChange((2, None), 3))]
    assert [[state.compressor_state.seed.sender for state in shards] for shards in shard_states] == [[0, 1], [2, 3]]


@given(
    residuals=st.lists(st.one_of(st.none(), st.floats(-10, 10)), min_size=1, max_size=6),
    data=st.data(),
)
def test_residuals_of_any_change_have_the_same_sum(residuals: list[float | None], data: st.DataObject) -> None:
    """Whatever worker is removed, added or moved to another rank."""
    count = len(residuals)
    kept = data.draw(st.permutations(range(count)).flatmap(lambda p: st.integers(1, count).map(lambda k: p[:k])))
    new = data.draw(st.integers(0, 3))
    old_ranks = tuple(data.draw(st.permutations([*kept, *[None] * new])))
    before = data.draw(st.lists(st.floats(0.1, 1), min_size=count, max_size=count))
    after = data.draw(st.lists(st.floats(0.1, 1), min_size=len(old_ranks), max_size=len(old_ranks)))
    change = WorkerChange(old_ranks, count, tuple(before), tuple(after))

    changed = change.add_residuals([None if value is None else np.array([value]) for value in residuals])

    total = sum(w * v[0] for w, v in zip(after, changed, strict=True) if v is not None)
    expected = sum(w * v for w, v in zip(before, residuals, strict=True) if v is not None)
    assert total == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    "strategy", [DPsgd(), NoLoCo(period=1), AdPsgd(), PartialAllReduce(group_size=2), Easgd(period=1)], ids=repr
)
def test_strategy_without_a_rule_is_an_error(strategy: Strategy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that is copied without a rule would change the model silently."""
    before = take_snapshots(strategy, monkeypatch, step=1, workers=4)

    with pytest.raises(UnsupportedWorkerChange, match="not defined for another number of workers; continue with 4"):
        change_workers(before, WorkerChange((0, 1), 4))


def test_running_exchange_of_diloco_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages belong to the old workers."""
    strategy = DiLoCo(period=2, fragments=2, overlap_steps=1)
    before = take_snapshots(strategy, monkeypatch, step=2)

    with pytest.raises(UnsupportedWorkerChange, match="still running"):
        change_workers(before, WorkerChange((0, 1), 3))


@pytest.mark.parametrize(
    ("old_ranks", "weights_before", "weights_after"),
    [
        ((), (), ()),
        ((None,), (), ()),
        ((0, 0), (), ()),
        ((0, 3), (), ()),
        ((-1,), (), ()),
        ((0,), (1.0,), (1.0,)),
        ((0,), (1.0, 1.0, 1.0), ()),
    ],
)
def test_change_that_is_none_is_an_error(
    old_ranks: tuple[int | None, ...], weights_before: tuple[float, ...], weights_after: tuple[float, ...]
) -> None:
    """Two workers with one state would count its residuals twice."""
    with pytest.raises(ValueError, match=r"must have different ranks of 3 workers|needs a weight"):
        WorkerChange(old_ranks, 3, weights_before, weights_after)
