"""Tests of every synchroniser: no worker waits forever, and stricter rules never allow more than looser ones."""

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
from services.ps_shard.machine import ShardStateMachine
from services.ps_shard.shard_actions import (
    ApplyUpdateAction,
    DropStalePushAction,
    SendReplyAction,
    ShardAction,
    WorkerPush,
)

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


def test_examples_table_contains_every_synchroniser() -> None:
    """A synchroniser that is not in the table is not tested."""
    union, _ = get_args(AnySynchroniser)

    assert {type(synchroniser) for synchroniser in EXAMPLES} == set(get_args(union))


@every_synchroniser
def test_synchroniser_survives_a_json_round_trip(synchroniser: Synchroniser) -> None:
    """The record of a run has the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnySynchroniser).validate_json(synchroniser.model_dump_json()) == synchroniser


@every_synchroniser
@given(step=steps)
def test_slowest_worker_may_always_start_its_next_step(synchroniser: Synchroniser, step: int) -> None:
    """Otherwise all workers wait for a worker that waits itself: a deadlock."""
    assert synchroniser.may_start_step(step, steps_finished_by_slowest=step)


@every_synchroniser
@given(step=steps, slowest=steps)
def test_progress_of_the_slowest_worker_never_revokes_a_permission(
    synchroniser: Synchroniser, step: int, slowest: int
) -> None:
    """A waiting worker is released only by the progress of others."""
    assert synchroniser.may_start_step(step, slowest) <= synchroniser.may_start_step(step, slowest + 1)


def test_bsp_stops_every_worker_at_the_barrier() -> None:
    """No worker is a step ahead of the slowest one."""
    assert Bsp().may_start_step(step=3, steps_finished_by_slowest=3)
    assert not Bsp().may_start_step(step=4, steps_finished_by_slowest=3)


def test_asp_worker_never_waits() -> None:
    """However far the other workers are behind."""
    assert Asp().may_start_step(step=1000, steps_finished_by_slowest=0)


@every_synchroniser
@given(workers=st.integers(1, 64))
def test_update_averages_at_most_one_gradient_per_waiting_worker(synchroniser: Synchroniser, workers: int) -> None:
    """A server that needs more gradients than workers can send waits forever; one that needs none never learns.

    Workers that don't wait for the update continue to push, so any number of gradients can arrive.
    """
    assert synchroniser.gradients_per_update(workers) >= 1
    if synchroniser.describe_worker_sync().replies_after_update:
        assert synchroniser.gradients_per_update(workers) <= workers


@every_synchroniser
@given(ahead=steps)
def test_only_unbounded_synchronisers_allow_any_number_of_steps_ahead(synchroniser: Synchroniser, ahead: int) -> None:
    """With a bound, predictions use the pace of the slowest worker for all workers."""
    assert synchroniser.limits_worker_lead or synchroniser.may_start_step(ahead, steps_finished_by_slowest=0)


@every_synchroniser
@given(
    slowest=steps,
    ahead=steps,
    own_s=st.floats(0.1, 10.0),
    remaining_s=st.floats(0.0, 10.0),
    slowest_s=st.floats(0.1, 10.0),
)
def test_later_servers_block_no_step_that_the_first_server_allows(
    synchroniser: Synchroniser, slowest: int, ahead: int, own_s: float, remaining_s: float, slowest_s: float
) -> None:
    """Otherwise two workers could wait for each other, because the first server may delay a reply until a push."""
    step = slowest + ahead
    extra_steps = synchroniser.count_allowed_extra_steps(ahead, own_s, remaining_s, slowest_s)

    if synchroniser.may_start_step(step, slowest) or extra_steps:
        last_step = step + max(0, extra_steps - 1)
        assert synchroniser.for_later_shards().may_start_step(last_step, slowest)


def test_only_bsp_is_synchronous() -> None:
    """Strategies without a server need a barrier: replicas must have the same parameters."""
    assert Bsp().describe_worker_sync().is_synchronous
    assert not Asp().describe_worker_sync().is_synchronous
    for synchroniser in (Ssp(staleness=1), Dssp(low=0, high=1), BackupWorkers(backups=1), Gba()):
        assert not synchroniser.describe_worker_sync().is_synchronous


class RandomOrderRun:
    """Workers at random speeds and the state machine of a server, without a network; `order` picks the next worker."""

    def __init__(self, synchroniser: Synchroniser, workers: int, steps: int, order: Random) -> None:
        self.shard = ShardStateMachine(workers, synchroniser)
        self.steps, self.order, self.now = steps, order, 0.0
        self.read = dict.fromkeys(range(workers), 0)
        self.clocks = dict.fromkeys(range(workers), 0)
        self.computing = set(self.read)
        self.pushes: list[WorkerPush] = []
        self.actions: list[ShardAction] = []
        self.gaps: list[int] = []

    def run(self) -> "RandomOrderRun":
        while self.computing:
            self.advance()
        return self

    def advance(self) -> None:
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

    def lose(self, worker: int) -> None:
        self.computing.discard(worker)
        self.clocks.pop(worker, None)
        self._act(self.shard.handle_eviction(worker, self.now))

    def _act(self, actions: list[ShardAction]) -> None:
        self.actions += actions
        for action in actions:
            if isinstance(action, SendReplyAction):
                self.read[action.worker] = self.shard.version
                self.computing.add(action.worker)
                self.gaps.append(self.clocks[action.worker] - min(self.clocks.values()))

    def actions_of(self, kind: type) -> list[Any]:
        return [action for action in self.actions if isinstance(action, kind)]


random_runs = given(workers=st.integers(1, 6), steps=st.integers(0, 12), order=st.randoms(use_true_random=False))


@every_synchroniser
@random_runs
def test_every_gradient_is_used_or_dropped_once_and_answered_once(
    synchroniser: Synchroniser, workers: int, steps: int, order: Random
) -> None:
    """All workers reach their end, in any order of arrival."""
    run = RandomOrderRun(synchroniser, workers, steps, order).run()

    used = [push for update in run.actions_of(ApplyUpdateAction) for push in update.pushes]
    dropped = [drop.push for drop in run.actions_of(DropStalePushAction)]
    assert run.clocks == {}
    assert Counter(used + dropped) == Counter(run.pushes)
    assert Counter((reply.worker, reply.step) for reply in run.actions_of(SendReplyAction)) == Counter(
        (push.worker, push.step) for push in run.pushes
    )
    assert run.shard.samples == sum(push.samples for push in used)


@every_synchroniser
@random_runs
def test_a_lost_worker_gets_no_reply_and_no_other_waits_for_it(
    synchroniser: Synchroniser, workers: int, steps: int, order: Random
) -> None:
    """Also if the server has its push, which becomes part of an update later."""
    run, lost = RandomOrderRun(synchroniser, workers, steps, order), order.randrange(workers)
    for _ in range(order.randint(0, workers * steps)):
        run.advance()
    before = len(run.actions)

    run.lose(lost)
    run.run()

    later_replies = [action for action in run.actions[before:] if isinstance(action, SendReplyAction)]
    assert lost not in {reply.worker for reply in later_replies}
    assert run.clocks == {}


@every_synchroniser
@random_runs
def test_update_uses_the_declared_number_of_gradients_that_are_not_too_stale(
    synchroniser: Synchroniser, workers: int, steps: int, order: Random
) -> None:
    """It uses fewer gradients only after workers have left."""
    run = RandomOrderRun(synchroniser, workers, steps, order).run()

    for update in run.actions_of(ApplyUpdateAction):
        assert len(update.pushes) <= max(synchroniser.gradients_per_update(workers), 1)
        assert all(update.count_updates_behind(push) >= 0 for push in update.pushes)
        if not isinstance(synchroniser, Gba):  # gradients in its buffer become more stale while they wait
            assert all(synchroniser.accepts_staleness(update.count_updates_behind(push)) for push in update.pushes)
    assert all(
        not synchroniser.accepts_staleness(drop.version - drop.push.version)
        for drop in run.actions_of(DropStalePushAction)
    )


@pytest.mark.parametrize(("synchroniser", "most"), [(Bsp(), 0), (Ssp(staleness=2), 2), (Dssp(low=1, high=3), 3)])
@random_runs
def test_no_worker_starts_a_step_further_ahead_than_allowed(
    synchroniser: Synchroniser, most: int, workers: int, steps: int, order: Random
) -> None:
    """The bound applies when a step starts; during the step, the gap grows by that step at most."""
    assert max(RandomOrderRun(synchroniser, workers, steps, order).run().gaps, default=0) <= most


@pytest.mark.parametrize(
    ("synchroniser", "equivalent"),
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
def test_limit_of_a_setting_equals_the_simpler_rule(
    synchroniser: Synchroniser, equivalent: Synchroniser, workers: int, steps: int, seed: int
) -> None:
    """The actions are equal one by one, for any order of arrival."""
    assert (
        RandomOrderRun(synchroniser, workers, steps, Random(seed)).run().actions
        == RandomOrderRun(equivalent, workers, steps, Random(seed)).run().actions
    )


@random_runs
def test_step_with_backups_uses_only_fresh_gradients(workers: int, steps: int, order: Random) -> None:
    """It uses n - b of them, as long as no worker has left."""
    run = RandomOrderRun(BackupWorkers(backups=1), workers, steps, order).run()

    assert all(
        update.count_updates_behind(push) == 0 for update in run.actions_of(ApplyUpdateAction) for push in update.pushes
    )
    if workers > 1:
        sizes = {len(update.pushes) for update in run.actions_of(ApplyUpdateAction)}
        assert sizes <= set(range(1, workers))


@pytest.mark.parametrize(
    ("own_s", "next_s", "slowest_s", "granted"),
    [
        (1.0, 2.5, 2.5, 2),  # done at 1 and 2; the slowest at 2.5: two steps wait half a second
        (1.0, 0.0, 2.5, 0),  # the slowest is about to finish
        (2.5, 2.5, 2.5, 1),  # as fast: one step ends when the slowest does
        (1.0, 9.0, 9.0, 3),  # high - gap + 1 is all there is
        (0.0, 1.0, 1.0, 0),  # no step times are known yet
        (1.0, 0.0, 1e-310, 0),  # the slowest took no time: no wait to save
    ],
)
def test_dssp_grants_the_number_of_steps_with_the_shortest_wait(
    own_s: float, next_s: float, slowest_s: float, granted: int
) -> None:
    """Expected values are computed by hand, for a worker that is one step further ahead than `low`."""
    assert Dssp(low=1, high=4).count_allowed_extra_steps(2, own_s, next_s, slowest_s) == granted


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
def test_straggler_is_slower_than_the_mean_less_one_deviation(speeds: tuple[float, ...], slow: list[int]) -> None:
    """By hand, after Sync-Switch; a worker that is at most 5 % slower needs no straggler policy."""
    assert [rank for rank, speed in enumerate(speeds) if StragglerCriterion().is_slow(speed, speeds)] == slow


def test_worker_is_a_straggler_after_several_slow_windows_until_one_fast_window() -> None:
    """A single slow step does not make a straggler, and one fast window ends its classification."""
    shard = ShardStateMachine(4, ElasticSynchroniser(stragglers=StragglerCriterion(window=2, windows=3)))
    stragglers = []

    for step in range(12):
        for worker in range(4):
            took_s = 4.0 if worker == 0 and 2 <= step < 7 else 1.0
            shard.handle_push(WorkerPush(worker, step, shard.version, samples=8, compute_s=took_s))
        stragglers.append(shard.straggler_ranks)

    assert [step for step, ranks in enumerate(stragglers) if ranks] == [4, 5, 6, 7]
    assert set(stragglers) == {frozenset(), frozenset({0})}
