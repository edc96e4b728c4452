"""State machine that forms groups of ready workers.

It sends no messages and has no parameters. Groups are formed in the order in which workers become ready. The name is
from Prague (Q. Luo et al., ASPLOS 2020), the order from X. Miao et al., "Heterogeneity-aware distributed machine
learning training via partial reduce", SIGMOD 2021.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from services.schema.errors import ProtocolError


@dataclass(frozen=True)
class FormGroupAction:
    """Action: let the workers of a group average their parameters."""

    number: int  # of the group, counted from 0
    ranks: tuple[int, ...]  # of the members, ascending
    samples: int  # of all workers, in all steps that have been reported so far
    # By member: samples that other workers are computing at the moment.
    pending_samples: Mapping[int, int]


@dataclass
class GroupGenerator:
    """State machine that forms groups of ready workers.

    Invariants: a worker is in at most one group at a time, and every report is followed by exactly one group. A group
    has `group_size` members, or all workers that have not finished training if they are fewer.

    The members of a group end together. Without a further rule, workers of equal speed would form the same groups in
    every step. So the last `connect_within` groups are the edges of a graph. While this graph does not connect all
    workers, a group joins two of its components. If all ready workers are of one component, they wait for a worker of
    another component, but only for one that has reported more steps than the first of them, or exactly one step less.
    A permanently slow worker falls behind by more steps, so this rule does not wait for it, nor for a worker that has
    just left for its next step. A slow worker delays others only while too few workers are ready without it.
    """

    worker_count: int
    group_size: int
    connect_within: int
    sample_budget: int  # samples after which workers stop
    samples: int = 0  # of all workers, in the steps that have been reported
    _next_number: int = 0
    _ready_ranks: list[int] = field(default_factory=list)  # in the order of their reports
    _computing_ranks: set[int] = field(init=False)
    _stopping_ranks: set[int] = field(default_factory=set)  # know from their last group that the budget is used
    _step_counts: dict[int, int] = field(
        init=False
    )  # steps that workers have reported; those that have left are missing
    _next_samples: dict[int, int] = field(default_factory=dict)  # samples of the step after the last report of a worker
    _recent_groups: deque[tuple[int, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self._computing_ranks = set(range(self.worker_count))
        self._step_counts = dict.fromkeys(range(self.worker_count), 0)
        self._recent_groups = deque(maxlen=self.connect_within)

    def handle_ready(self, rank: int, samples: int, next_samples: int) -> list[FormGroupAction]:
        """Record that a worker has finished a step on `samples` samples, and return the groups that are formed.

        Its next step would have `next_samples` samples.

        Raises:
            ProtocolError: the worker has left, or waits for a group.
        """
        self._expect_computing(rank)
        self._computing_ranks.remove(rank)
        self._stopping_ranks.discard(rank)
        self._ready_ranks.append(rank)
        self._step_counts[rank] += 1
        self._next_samples[rank] = next_samples
        self.samples += samples
        return list(self._form_groups())

    def handle_leave(self, rank: int) -> list[FormGroupAction]:
        """Record that a worker leaves the run, and return the groups that no longer wait for it.

        Raises:
            ProtocolError: the worker has left already, or waits for a group.
        """
        self._expect_computing(rank)
        self._computing_ranks.remove(rank)
        self._stopping_ranks.discard(rank)
        del self._step_counts[rank]
        return list(self._form_groups())

    def _expect_computing(self, rank: int) -> None:
        if rank not in self._computing_ranks:
            computing, ready = sorted(self._computing_ranks), self._ready_ranks
            raise ProtocolError(f"unexpected message of worker {rank}; computing: {computing}, waiting: {ready}")

    def _form_groups(self) -> Iterator[FormGroupAction]:
        while (ranks := self._choose_members()) is not None:
            self._recent_groups.append(ranks)
            yield self._form_group(ranks)

    def _choose_members(self) -> tuple[int, ...] | None:
        """Return the members of the next group; None while there are too few ready workers, or while they wait."""
        size = min(self.group_size, len(self._step_counts))
        if not size or len(self._ready_ranks) < size:
            return None
        first, *others = self._ready_ranks
        if size == 1:
            return (first,)
        component = self._find_component(first)
        bridges = [rank for rank in others if rank not in component]
        if not bridges and self._is_other_component_expected(first, component):
            return None
        return tuple(sorted([first, *sorted(others, key=lambda rank: rank not in bridges[:1])[: size - 1]]))

    def _find_component(self, rank: int) -> set[int]:
        """Return the workers that the last groups connect with a worker: all, while there are too few groups."""
        active, component = set(self._step_counts), {rank}
        if len(self._recent_groups) < self.connect_within:
            return active
        groups = [active.intersection(group) for group in self._recent_groups]
        while touching := [group for group in groups if group & component and not group <= component]:
            component.update(*touching)
        return component

    def _is_other_component_expected(self, first: int, component: set[int]) -> bool:
        """Return whether a worker of another component is computing and is not slow compared with worker `first`."""
        steps = self._step_counts[first]
        outside = (self._step_counts[rank] for rank in self._computing_ranks - self._stopping_ranks - component)
        return any(other_steps > steps or other_steps == steps - 1 for other_steps in outside)

    def _form_group(self, ranks: tuple[int, ...]) -> FormGroupAction:
        number, pending_samples = self._next_number, dict[int, int]()
        self._next_number += 1
        self._ready_ranks = [rank for rank in self._ready_ranks if rank not in ranks]
        for rank in ranks:
            pending_samples[rank] = self._count_samples_in_progress(rank)
            self._computing_ranks.add(rank)
            if self.samples + pending_samples[rank] >= self.sample_budget:
                self._stopping_ranks.add(rank)
        return FormGroupAction(number, ranks, self.samples, pending_samples)

    def _count_samples_in_progress(self, rank: int) -> int:
        """Return the number of samples that workers are computing, without worker `rank`.

        A worker that has not reported yet is assumed to compute as many samples as worker `rank`.
        """
        computing = self._computing_ranks - self._stopping_ranks
        return sum(self._next_samples.get(other, self._next_samples[rank]) for other in computing)
