"""Groups of ready workers: each worker gets a group, is in one at a time, and no slow worker is waited for."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.schema.errors import ProtocolError
from services.strategies.async_averaging.group_generator import FormGroupAction, GroupGenerator

AVERAGE_S = 0.1  # of a group


@dataclass
class Cluster:
    """Workers that compute, report, average in groups, and leave when the budget is used."""

    generator: GroupGenerator
    steps_s: Sequence[float]  # compute time of each worker
    rng: Random
    jitter: float = 0.0  # largest relative lengthening of a step
    groups: list[FormGroupAction] = field(default_factory=list)
    waits_s: list[float] = field(init=False)
    step_counts: list[int] = field(init=False)

    def run(self) -> "Cluster":
        """Run until all workers have left."""
        workers = range(len(self.steps_s))
        self.waits_s, self.step_counts = [0.0 for _ in workers], [0 for _ in workers]
        events = [(self._step_s(rank), rank, rank, False) for rank in workers]  # end of a step, order, rank, leaves
        heapq.heapify(events)
        ready_s: dict[int, float] = {}
        order = len(events)
        while events:
            now_s, _, rank, leaves = heapq.heappop(events)
            if not leaves:
                ready_s[rank] = now_s
                self.step_counts[rank] += 1
            for group in self.generator.handle_leave(rank) if leaves else self.generator.handle_ready(rank, 1, 1):
                self.groups.append(group)
                for member in group.ranks:
                    self.waits_s[member] += now_s - ready_s.pop(member)  # an error if it was not ready
                    is_over = group.samples + group.pending_samples[member] >= self.generator.sample_budget
                    free_s = now_s + AVERAGE_S * (len(group.ranks) > 1)
                    order += 1
                    end_s = free_s if is_over else free_s + self._step_s(member)
                    heapq.heappush(events, (end_s, order, member, is_over))
        assert not ready_s, f"workers {sorted(ready_s)} wait for ever"
        return self

    def _step_s(self, rank: int) -> float:
        return self.steps_s[rank] * (1 + self.jitter * self.rng.random())

    def mean_wait_s(self, rank: int) -> float:
        return self.waits_s[rank] / self.step_counts[rank]


def generator(workers: int, group_size: int, steps: int, history: int | None = None) -> GroupGenerator:
    least = ceil((workers - 1) / (group_size - 1))
    return GroupGenerator(workers, group_size, history or 2 * least, steps * workers)


@given(
    workers=st.integers(2, 12),
    group_size=st.integers(2, 6),
    history=st.integers(1, 30),
    jitter=st.sampled_from([0.0, 0.3]),
    speeds=st.lists(st.sampled_from([1.0, 1.0, 1.1, 2.0, 7.0]), min_size=12, max_size=12),
    seed=st.integers(0, 1000),
)
def test_every_report_is_followed_by_one_group_and_the_budget_is_used(
    workers: int, group_size: int, history: int, jitter: float, speeds: list[float], seed: int
) -> None:
    """A worker without a group would wait for ever; a step without samples counted would train too long."""
    group_size = min(group_size, workers)
    cluster = Cluster(generator(workers, group_size, 20, history), speeds[:workers], Random(seed), jitter).run()

    assert [group.number for group in cluster.groups] == list(range(len(cluster.groups)))
    assert sum(len(group.ranks) for group in cluster.groups) == sum(cluster.step_counts)
    assert 20 * workers <= sum(cluster.step_counts) == cluster.generator.samples < 21 * workers
    assert all(len(set(group.ranks)) == len(group.ranks) <= group_size for group in cluster.groups)
    full = [group for group in cluster.groups if len(group.ranks) == group_size]
    assert len(cluster.groups) - len(full) < 2 * workers  # smaller groups only when workers have left


@pytest.mark.parametrize(("workers", "group_size"), [(8, 2), (6, 2), (8, 4), (9, 3)])
def test_equal_workers_never_wait_and_are_connected_within_the_history(workers: int, group_size: int) -> None:
    """Without the history the same workers would meet in every step, and the groups would train different models."""
    cluster = Cluster(generator(workers, group_size, 60), [1.0] * workers, Random(0)).run()

    assert cluster.waits_s == pytest.approx([0.0] * workers, abs=1e-9)
    window = 4 * cluster.generator.connect_within
    for start in range(len(cluster.groups) - window):
        assert is_connected([group.ranks for group in cluster.groups[start : start + window]], workers)


def is_connected(groups: Sequence[tuple[int, ...]], workers: int) -> bool:
    component = {0}
    for _ in groups:
        component.update(*(group for group in groups if component.intersection(group)))
    return len(component) == workers


def test_pairs_of_different_speed_do_not_stay_pairs() -> None:
    """Two fast and two slow workers in pairs: the slow pair waits for a fast worker, not the other way round."""
    cluster = Cluster(generator(4, 2, 60), [1.0, 1.0, 2.0, 2.0], Random(0)).run()

    met = {group.ranks for group in cluster.groups}
    assert met > {(0, 1), (2, 3)}
    assert [cluster.mean_wait_s(rank) for rank in (0, 1)] == pytest.approx([0.0, 0.0], abs=0.02)


@pytest.mark.parametrize("slowdown", [3.0, 30.0])
def test_no_worker_waits_longer_because_another_is_slower(slowdown: float) -> None:
    """Seven workers are as fast beside a worker that is 3 times slower as beside one that is 30 times slower."""
    cluster = Cluster(generator(8, 2, 100), [1.0] * 7 + [slowdown], Random(0), jitter=0.1).run()

    assert max(cluster.mean_wait_s(rank) for rank in range(7)) < 0.35
    assert cluster.step_counts[7] < 2 * 100 / slowdown


def test_worker_that_waits_for_a_group_can_neither_report_nor_leave() -> None:
    """Such a message would be an error of the protocol, and a group could contain the worker twice."""
    machine = generator(3, 2, 10)
    machine.handle_ready(1, 4, 4)

    with pytest.raises(ProtocolError, match=r"unexpected message of worker 1; computing: \[0, 2\], waiting: \[1\]"):
        machine.handle_ready(1, 4, 4)
    with pytest.raises(ProtocolError, match="worker 1"):
        machine.handle_leave(1)


def test_groups_of_one_worker_never_wait() -> None:
    """AD-PSGD counts samples with such groups; a worker that waited for another would not be asynchronous."""
    cluster = Cluster(GroupGenerator(4, 1, 1, 400), [1.0, 1.0, 2.0, 3.0], Random(0), jitter=0.2).run()

    assert cluster.waits_s == [0.0] * 4


def test_all_workers_train_on_a_smaller_last_batch() -> None:
    """Samples in progress are those of the next steps: the last batch of a budget may be smaller than the others."""
    machine = GroupGenerator(2, 2, 1, sample_budget=10)
    machine.handle_ready(0, 4, 1)

    (group,) = machine.handle_ready(1, 4, 1)

    assert [group.samples + pending for pending in group.pending_samples.values()] == [8, 9]


def test_group_gets_smaller_when_workers_leave() -> None:
    """The last workers of a run must not wait for workers that have left."""
    machine = generator(3, 3, 10)
    machine.handle_ready(0, 4, 4)
    machine.handle_ready(2, 4, 4)

    (group,) = machine.handle_leave(1)

    assert (group.ranks, group.samples, group.pending_samples) == ((0, 2), 8, {0: 0, 2: 4})
    assert machine.handle_leave(0) == []
    (alone,) = machine.handle_ready(2, 4, 4)
    assert alone.ranks == (2,)
