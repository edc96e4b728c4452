"""Every synchroniser through one battery: nobody is held back for ever, waiting more never helps less."""

from collections import Counter
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from services.parameter_server.synchronisers import (
    AnySynchroniser,
    Asp,
    BackupWorkers,
    Bsp,
    Dssp,
    ElasticSynchroniser,
    Gba,
    GreedySynchroniser,
    Ssp,
    StragglerCriterion,
    Synchroniser,
)
from services.ps_shard.machine import ApplyUpdate, DropStalePush, SendReply, ShardAction, ShardStateMachine, WorkerPush

EXAMPLES: list[Synchroniser] = [
    Bsp(),
    Asp(),
    Ssp(staleness=0),
    Ssp(staleness=2),
    Dssp(low=1, high=3),
    BackupWorkers(backups=0),
    BackupWorkers(backups=2),
    Gba(),
    Gba(gather=3, oldest=1),
    ElasticSynchroniser(),
    GreedySynchroniser(),
]

every_synchroniser = pytest.mark.parametrize("synchroniser", EXAMPLES, ids=repr)
steps = st.integers(0, 1000)


def test_every_member_of_the_family_of_synchronisers_stands_in_the_table() -> None:
    """A synchroniser that is not in the table is not tested."""
    union, _ = get_args(AnySynchroniser)

    assert {type(synchroniser) for synchroniser in EXAMPLES} == set(get_args(union))


@every_synchroniser
def test_a_synchroniser_is_read_from_what_it_writes(synchroniser: Synchroniser) -> None:
    """A run's record holds the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnySynchroniser).validate_json(synchroniser.model_dump_json()) == synchroniser


@every_synchroniser
@given(step=steps)
def test_the_slowest_worker_may_always_go_on(synchroniser: Synchroniser, step: int) -> None:
    """Otherwise everybody waits for somebody who waits: a deadlock."""
    assert synchroniser.may_start_step(step, slowest_worker_steps=step)


@every_synchroniser
@given(step=steps, slowest=steps)
def test_progress_of_the_slowest_never_takes_a_permission_away(
    synchroniser: Synchroniser, step: int, slowest: int
) -> None:
    """A waiting worker is woken by progress and by nothing else."""
    assert synchroniser.may_start_step(step, slowest) <= synchroniser.may_start_step(step, slowest + 1)


def test_bsp_holds_everybody_at_the_barrier() -> None:
    """Nobody is a step ahead of the slowest."""
    assert Bsp().may_start_step(step=3, slowest_worker_steps=3)
    assert not Bsp().may_start_step(step=4, slowest_worker_steps=3)


def test_asp_never_waits() -> None:
    """However far the others are behind."""
    assert Asp().may_start_step(step=1000, slowest_worker_steps=0)


@every_synchroniser
@given(workers=st.integers(1, 64))
def test_an_update_averages_no_more_gradients_than_there_are_workers(synchroniser: Synchroniser, workers: int) -> None:
    """A server that gathers more than can come waits for ever; one that gathers none never learns.

    Workers that don't wait for the update go on pushing: then any number comes.
    """
    assert synchroniser.gradients_per_update(workers) >= 1
    if synchroniser.properties().replies_after_update:
        assert synchroniser.gradients_per_update(workers) <= workers


@every_synchroniser
@given(ahead=steps)
def test_only_without_a_bound_a_worker_may_be_any_number_of_steps_ahead(synchroniser: Synchroniser, ahead: int) -> None:
    """Predictions of those with a bound take the pace of the slowest for all."""
    assert synchroniser.limits_steps_ahead or synchroniser.may_start_step(ahead, slowest_worker_steps=0)


def test_only_a_barrier_keeps_everybody_at_the_same_step() -> None:
    """Strategies without a server need it: replicas must hold the same parameters."""
    assert Bsp().properties().is_synchronous
    assert not Asp().properties().is_synchronous
    for one in (Ssp(staleness=1), Dssp(low=0, high=1), BackupWorkers(backups=1), Gba()):
        assert not one.properties().is_synchronous


class Race:
    """Workers at random speeds and their server's machine, without a network; `order` says who pushes next."""

    def __init__(self, synchroniser: Synchroniser, workers: int, steps: int, order: Random) -> None:
        self.shard = ShardStateMachine(workers, synchroniser)
        self.steps, self.order, self.now = steps, order, 0.0
        self.read = dict.fromkeys(range(workers), 0)
        self.clocks = dict.fromkeys(range(workers), 0)
        self.computing = set(self.read)
        self.pushes: list[WorkerPush] = []
        self.actions: list[ShardAction] = []
        self.gaps: list[int] = []

    def run(self) -> "Race":
        while self.computing:
            worker = self.order.choice(sorted(self.computing))
            self.now += self.order.random()
            self.computing.remove(worker)
            if self.clocks[worker] == self.steps:
                del self.clocks[worker]
                self._act(self.shard.handle_leave(worker, self.now))
            else:
                push = WorkerPush(worker, self.clocks[worker], self.read[worker], samples=worker + 1)
                self.pushes.append(push)
                self.clocks[worker] += 1
                self._act(self.shard.handle_push(push, self.now))
        return self

    def _act(self, actions: list[ShardAction]) -> None:
        self.actions += actions
        for action in actions:
            if isinstance(action, SendReply):
                self.read[action.worker] = self.shard.version
                self.computing.add(action.worker)
                self.gaps.append(self.clocks[action.worker] - min(self.clocks.values()))

    def of(self, kind: type) -> list[Any]:
        return [action for action in self.actions if isinstance(action, kind)]


races = given(workers=st.integers(1, 6), steps=st.integers(0, 12), order=st.randoms(use_true_random=False))


@every_synchroniser
@races
def test_every_gradient_is_used_once_or_dropped_and_answered_once(
    synchroniser: Synchroniser, workers: int, steps: int, order: Random
) -> None:
    """And all workers come to their end, in whatever order they are done."""
    race = Race(synchroniser, workers, steps, order).run()

    used = [push for update in race.of(ApplyUpdate) for push in update.pushes]
    dropped = [drop.push for drop in race.of(DropStalePush)]
    assert race.clocks == {}
    assert Counter(used + dropped) == Counter(race.pushes)
    assert Counter((each.worker, each.step) for each in race.of(SendReply)) == Counter(
        (each.worker, each.step) for each in race.pushes
    )
    assert race.shard.samples == sum(push.samples for push in used)


@every_synchroniser
@races
def test_an_update_gathers_what_was_said_of_gradients_that_are_young_enough(
    synchroniser: Synchroniser, workers: int, steps: int, order: Random
) -> None:
    """Fewer only when workers have left."""
    race = Race(synchroniser, workers, steps, order).run()

    for update in race.of(ApplyUpdate):
        assert len(update.pushes) <= max(synchroniser.gradients_per_update(workers), 1)
        assert all(update.push_staleness(push) >= 0 for push in update.pushes)
        if not isinstance(synchroniser, Gba):  # whose gradients age while they wait for others
            assert all(synchroniser.accepts_staleness(update.push_staleness(push)) for push in update.pushes)
    assert all(not synchroniser.accepts_staleness(drop.version - drop.push.version) for drop in race.of(DropStalePush))


@pytest.mark.parametrize(("synchroniser", "most"), [(Bsp(), 0), (Ssp(staleness=2), 2), (Dssp(low=1, high=3), 3)])
@races
def test_nobody_starts_a_step_further_ahead_than_allowed(
    synchroniser: Synchroniser, most: int, workers: int, steps: int, order: Random
) -> None:
    """The gap at the start is what is bounded; while a step is computed, it may grow by none but its own."""
    assert max(Race(synchroniser, workers, steps, order).run().gaps, default=0) <= most


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Ssp(staleness=0), Bsp()),
        (Ssp(staleness=1000), Asp()),
        (BackupWorkers(backups=0), Bsp()),
        (Gba(gather=1), Asp()),
        (ElasticSynchroniser(), Bsp()),
        (GreedySynchroniser(), Bsp()),
        (Dssp(low=1000, high=1001), Asp()),
    ],
    ids=repr,
)
@given(workers=st.integers(1, 6), steps=st.integers(0, 12), seed=st.integers())
def test_the_end_of_a_range_is_the_simpler_rule(
    one: Synchroniser, other: Synchroniser, workers: int, steps: int, seed: int
) -> None:
    """Action by action, whoever comes when."""
    assert (
        Race(one, workers, steps, Random(seed)).run().actions == Race(other, workers, steps, Random(seed)).run().actions
    )


@races
def test_a_step_with_backups_is_made_of_fresh_gradients_alone(workers: int, steps: int, order: Random) -> None:
    """n - b of them, as long as nobody has left."""
    race = Race(BackupWorkers(backups=1), workers, steps, order).run()

    assert all(update.push_staleness(push) == 0 for update in race.of(ApplyUpdate) for push in update.pushes)
    if workers > 1:
        sizes = {len(update.pushes) for update in race.of(ApplyUpdate)}
        assert sizes <= set(range(1, workers))


@pytest.mark.parametrize(
    ("own_s", "next_s", "slowest_s", "granted"),
    [
        (1.0, 2.5, 2.5, 2),  # done at 1 and 2; the slowest at 2.5: two steps wait half a second
        (1.0, 0.0, 2.5, 0),  # the slowest is about to be done
        (2.5, 2.5, 2.5, 1),  # as fast: one step ends when the slowest does
        (1.0, 9.0, 9.0, 3),  # high - gap + 1 is all there is
        (0.0, 1.0, 1.0, 0),  # nothing is known yet
        (1.0, 0.0, 1e-310, 0),  # the slowest took no time: no wait to save
    ],
)
def test_dssp_grants_the_steps_after_which_a_worker_waits_least(
    own_s: float, next_s: float, slowest_s: float, granted: int
) -> None:
    """By hand, for a worker that is one step further than `low`."""
    assert Dssp(low=1, high=4).allowed_extra_steps(2, own_s, next_s, slowest_s) == granted


@pytest.mark.parametrize(
    ("speeds", "slow"),
    [
        ((1, 1, 1, 0.25), [3]),
        ((1, 1, 1, 1), []),
        ((1, 1, 1, 0.96), []),  # below the mean less one deviation, by next to nothing
        ((1, 1, 0.25, 0.25), []),  # half of all are not the exception
        ((1, 0.25), []),
        ((1, 1, 1, 1, 1, 0.5, 0.5), [5, 6]),
    ],
)
def test_a_straggler_is_below_the_mean_less_one_deviation(speeds: tuple[float, ...], slow: list[int]) -> None:
    """By hand, after Sync-Switch; who is slow by no more than a twentieth is not worth a policy."""
    assert [rank for rank, speed in enumerate(speeds) if StragglerCriterion().is_slow(speed, speeds)] == slow


def test_a_slow_worker_is_a_straggler_after_some_windows_and_no_longer_once_it_is_fast() -> None:
    """One slow step is none yet, and one fast window is enough."""
    shard, found = ShardStateMachine(4, ElasticSynchroniser(stragglers=StragglerCriterion(window=2, windows=3))), []

    for step in range(12):
        for worker in range(4):
            took_s = 4.0 if worker == 0 and 2 <= step < 7 else 1.0
            shard.handle_push(WorkerPush(worker, step, shard.version, samples=8, compute_s=took_s))
        found.append(shard.straggler_ranks)

    assert [step for step, who in enumerate(found) if who] == [4, 5, 6, 7]
    assert set(found) == {frozenset(), frozenset({0})}
