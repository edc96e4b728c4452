"""Tests of synchronisers on several servers, each with its own order of arrival: no worker may wait forever."""

import heapq
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any, NamedTuple, get_args

import pytest

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
from services.ps_shard.shard_actions import ApplyUpdateAction, SendReplyAction, WorkerPush

SENSITIVE = StragglerCriterion(window=2, windows=2, margin=0.0)  # workers often become stragglers and recover
EXAMPLES: list[Synchroniser] = [
    *(
        Bsp(),
        Asp(),
        Ssp(staleness=0),
        Ssp(staleness=2),
        Dssp(low=1, high=3),
        BackupWorkers(backups=1),
        Gba(),
        Gba(gather=2),
    ),
    *(
        ElasticSynchroniser(),
        ElasticSynchroniser(stragglers=SENSITIVE),
        GreedySynchroniser(),
        GreedySynchroniser(stragglers=SENSITIVE),
    ),
]
STEPS = 150
MEAN_DELAY = 0.3  # of a message, in steps


class Reply(NamedTuple):
    """Last reply of one server to a worker."""

    version: int
    is_asynchronous: bool


class Cluster:
    """State machines of several servers, and workers that are slow now and then; delays of messages are random."""

    def __init__(self, synchroniser: Synchroniser, workers: int, servers: int, generator: Random) -> None:
        self.shards = [ShardStateMachine(workers, synchroniser) for _ in range(servers)]
        self.steps = dict.fromkeys(range(workers), 0)
        self.replies = {worker: [Reply(0, is_asynchronous=False)] * servers for worker in self.steps}
        self.unanswered: dict[int, set[int]] = {worker: set() for worker in self.steps}
        self.generator = generator
        self.pace = dict.fromkeys(self.steps, 1.0)
        self.sizes: set[int] = set()  # of updates
        self._due: list[tuple[float, int, Any]] = []
        self._numbers = count()

    def run(self) -> "Cluster":
        for worker in self.steps:
            self._compute(worker, 0.0)
        while self._due:
            now, _, event = heapq.heappop(self._due)
            event(now)
        return self

    @property
    def unfinished_workers(self) -> set[int]:
        """Workers that did not finish all their steps."""
        return {worker for worker, step in self.steps.items() if step < STEPS}

    def _schedule(self, now: float, event: Any) -> None:
        due_s = now + self.generator.expovariate(1 / MEAN_DELAY)
        heapq.heappush(self._due, (due_s, next(self._numbers), event))

    def _compute(self, worker: int, now: float) -> None:
        if self.generator.random() < 0.1:
            self.pace[worker] = self.generator.choice([1.0, 1.0, 3.0])
        duration = self.pace[worker] * self.generator.uniform(0.9, 1.1)
        self.unanswered[worker] = set(range(len(self.shards)))
        is_asynchronous = self.replies[worker][0].is_asynchronous
        for number, reply in enumerate(self.replies[worker]):
            push = WorkerPush(
                worker,
                self.steps[worker],
                reply.version,
                samples=1,
                compute_s=duration,
                is_asynchronous=is_asynchronous,
            )
            self._schedule(now + duration, lambda at, number=number, push=push: self._push(number, push, at))

    def _push(self, number: int, push: WorkerPush, now: float) -> None:
        self._send_replies(number, self.shards[number].handle_push(push, now), now)

    def _leave(self, number: int, worker: int, now: float) -> None:
        self._send_replies(number, self.shards[number].handle_leave(worker, now), now)

    def _send_replies(self, number: int, actions: Any, now: float) -> None:
        self.sizes |= {len(action.pushes) for action in actions if isinstance(action, ApplyUpdateAction)}
        for worker, is_asynchronous in self._replies(actions):
            reply = Reply(self.shards[number].version, is_asynchronous)
            self._schedule(now, lambda at, worker=worker, reply=reply: self._receive(number, worker, reply, at))

    def _replies(self, actions: Any) -> Iterator[tuple[int, bool]]:
        yield from (
            (action.worker, action.next_is_asynchronous) for action in actions if isinstance(action, SendReplyAction)
        )

    def _receive(self, number: int, worker: int, reply: Reply, now: float) -> None:
        self.replies[worker] = [*self.replies[worker][:number], reply, *self.replies[worker][number + 1 :]]
        self.unanswered[worker].remove(number)
        if not self.unanswered[worker]:
            self.steps[worker] += 1
            self._continue(worker, now)

    def _continue(self, worker: int, now: float) -> None:
        if self.steps[worker] < STEPS:
            self._compute(worker, now)
        else:
            for number in range(len(self.shards)):
                self._schedule(now, lambda at, number=number: self._leave(number, worker, at))


def test_examples_table_contains_every_synchroniser() -> None:
    """A synchroniser that is not in the table is not tested."""
    union, _ = get_args(AnySynchroniser)

    assert {type(member) for member in EXAMPLES} == set(get_args(union))


@pytest.mark.parametrize("workers", [3, 4, 8])
@pytest.mark.parametrize(
    ("synchroniser", "servers"),
    [
        (member, servers)
        for member in EXAMPLES
        for servers in ((1,) if member.describe_worker_sync().needs_one_server else (2, 4))
    ],
    ids=repr,
)
def test_no_worker_waits_forever(synchroniser: Synchroniser, workers: int, servers: int) -> None:
    """Two servers that each block one worker until the other worker has pushed would never release them."""
    for seed in range(10):
        assert not Cluster(synchroniser, workers, servers, Random(seed)).run().unfinished_workers


def test_greedy_workers_become_asynchronous_and_synchronous_again() -> None:
    """Without this test, purely synchronous workers would pass the test above."""
    assert Cluster(GreedySynchroniser(stragglers=SENSITIVE), 4, 4, Random(1)).run().sizes >= {1, 4}
