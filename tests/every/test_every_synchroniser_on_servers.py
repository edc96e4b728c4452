"""Several servers, each with an order of arrival of its own: nobody may wait for ever between two of them."""

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
from services.ps_shard.machine import ApplyUpdate, SendReply, ShardStateMachine, WorkerPush

HASTY = StragglerCriterion(window=2, windows=2, margin=0.0)  # stragglers come and go
MEMBERS: list[Synchroniser] = [
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
        ElasticSynchroniser(stragglers=HASTY),
        GreedySynchroniser(),
        GreedySynchroniser(stragglers=HASTY),
    ),
]
STEPS = 150
DELAY = 0.3  # of a message, on average, in steps


class Known(NamedTuple):
    """What a worker has been answered by one server."""

    version: int
    alone: bool


class Cluster:
    """Machines of several servers, and workers that are slow now and then; every message takes a time of its own."""

    def __init__(self, synchroniser: Synchroniser, workers: int, servers: int, chance: Random) -> None:
        self.shards = [ShardStateMachine(workers, synchroniser) for _ in range(servers)]
        self.steps = dict.fromkeys(range(workers), 0)
        self.known = {worker: [Known(0, alone=False)] * servers for worker in self.steps}
        self.unanswered: dict[int, set[int]] = {worker: set() for worker in self.steps}
        self.chance = chance
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
    def waiting(self) -> set[int]:
        """Workers that never came to their end."""
        return {worker for worker, step in self.steps.items() if step < STEPS}

    def _later(self, now: float, event: Any) -> None:
        moment = now + self.chance.expovariate(1 / DELAY)
        heapq.heappush(self._due, (moment, next(self._numbers), event))

    def _compute(self, worker: int, now: float) -> None:
        if self.chance.random() < 0.1:
            self.pace[worker] = self.chance.choice([1.0, 1.0, 3.0])
        took = self.pace[worker] * self.chance.uniform(0.9, 1.1)
        self.unanswered[worker] = set(range(len(self.shards)))
        alone = self.known[worker][0].alone
        for number, held in enumerate(self.known[worker]):
            push = WorkerPush(
                worker, self.steps[worker], held.version, samples=1, compute_s=took, is_asynchronous=alone
            )
            self._later(now + took, lambda at, number=number, push=push: self._push(number, push, at))

    def _push(self, number: int, push: WorkerPush, now: float) -> None:
        self._answer(number, self.shards[number].handle_push(push, now), now)

    def _leave(self, number: int, worker: int, now: float) -> None:
        self._answer(number, self.shards[number].handle_leave(worker, now), now)

    def _answer(self, number: int, actions: Any, now: float) -> None:
        self.sizes |= {len(action.pushes) for action in actions if isinstance(action, ApplyUpdate)}
        for worker, alone in self._replies(actions):
            told = Known(self.shards[number].version, alone)
            self._later(now, lambda at, worker=worker, told=told: self._hear(number, worker, told, at))

    def _replies(self, actions: Any) -> Iterator[tuple[int, bool]]:
        yield from ((action.worker, action.next_is_asynchronous) for action in actions if isinstance(action, SendReply))

    def _hear(self, number: int, worker: int, told: Known, now: float) -> None:
        self.known[worker] = [*self.known[worker][:number], told, *self.known[worker][number + 1 :]]
        self.unanswered[worker].remove(number)
        if not self.unanswered[worker]:
            self.steps[worker] += 1
            self._go_on(worker, now)

    def _go_on(self, worker: int, now: float) -> None:
        if self.steps[worker] < STEPS:
            self._compute(worker, now)
        else:
            for each in range(len(self.shards)):
                self._later(now, lambda at, each=each: self._leave(each, worker, at))


def test_every_synchroniser_stands_in_the_table() -> None:
    """One that is not is not tested."""
    union, _ = get_args(AnySynchroniser)

    assert {type(member) for member in MEMBERS} == set(get_args(union))


@pytest.mark.parametrize("workers", [3, 4, 8])
@pytest.mark.parametrize(
    ("synchroniser", "servers"),
    [(member, servers) for member in MEMBERS for servers in ((1,) if member.properties().needs_one_server else (2, 4))],
    ids=repr,
)
def test_no_worker_waits_for_ever(synchroniser: Synchroniser, workers: int, servers: int) -> None:
    """Two servers that each keep one worker back until the other one has pushed would do so for good."""
    for seed in range(10):
        assert not Cluster(synchroniser, workers, servers, Random(seed)).run().waiting


def test_greedy_workers_come_apart_and_together_again_there() -> None:
    """Lockstep alone would wait for nobody for ever, either."""
    assert Cluster(GreedySynchroniser(stragglers=HASTY), 4, 4, Random(1)).run().sizes >= {1, 4}
