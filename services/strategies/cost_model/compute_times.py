"""Compute times of all workers in the steps of a training phase.

A plan knows them before a trial starts: the data order gives the samples of a worker in every step, and the declared
variation of its speed is a function of seed, rank and step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Self

import numpy as np

from services.schema.arrays import HostArray


@dataclass(frozen=True)
class ComputeTimes:
    """Samples and compute time of each worker in each step of a training phase."""

    samples: HostArray  # shape (steps, workers)
    seconds: HostArray  # shape (steps, workers)

    @classmethod
    def of_equal_steps(cls, worker_compute_s: Sequence[float]) -> Self:
        """Return the compute times of a phase whose steps are all equal, given the seconds by rank."""
        return cls(np.ones((1, len(worker_compute_s)), int), np.array([worker_compute_s], float))

    @property
    def mean_s_by_worker(self) -> tuple[float, ...]:
        """Mean compute time of a step in seconds, by rank."""
        return tuple(fsum(column) / len(column) for column in self.seconds.T.tolist())

    @property
    def mean_samples_by_worker(self) -> tuple[float, ...]:
        """Mean number of samples in a step, by rank."""
        return tuple(self.samples.mean(axis=0).tolist())

    def of_first_workers(self, worker_count: int) -> Self:
        """Return the compute times of the workers of lowest rank."""
        return type(self)(self.samples[:, :worker_count], self.seconds[:, :worker_count])

    def only_full_batch_rounds(self, steps_per_round: int) -> Self:
        """Return the compute times of rounds in which every step has a whole batch.

        An exchange ends a round. Return all compute times if there is no such round, as when workers exchange once per
        epoch.
        """
        batches = self.samples.sum(axis=1)
        round_count = len(batches) // steps_per_round
        is_whole = (batches == batches.max())[: round_count * steps_per_round].reshape(round_count, steps_per_round)
        chosen = np.flatnonzero(np.repeat(is_whole.all(axis=1), steps_per_round))
        return type(self)(self.samples[chosen], self.seconds[chosen]) if chosen.size else self

    def mean_slowest_s(self, steps_per_round: int = 1) -> float:
        """Return the mean seconds per step until the slowest worker has computed all steps of a round."""
        return fsum(self._seconds_by_round(steps_per_round).max(axis=1).tolist()) / len(self.seconds)

    def mean_slowest_s_by_starts(self, round_starts: Sequence[int]) -> float:
        """Return what `mean_slowest_s` returns, for rounds that begin at the given steps, the first at step 0."""
        rounds_s = np.add.reduceat(self.seconds, round_starts, axis=0)
        return fsum(rounds_s.max(axis=1).tolist()) / len(self.seconds)

    def _seconds_by_round(self, steps_per_round: int) -> HostArray:
        """Return the sum of the compute times of each round; the shape is (rounds, workers)."""
        return np.add.reduceat(self.seconds, np.arange(0, len(self.seconds), steps_per_round), axis=0)

    def mean_end_of_pushes_s(self, push_s: float, head_start_s: float, steps_per_round: int) -> float:
        """Return the mean seconds per round until a shared link has carried one push of each worker.

        Pushes of early workers pass the link while other workers still compute. If the workers of a round start to
        push at the ascending times c_1 … c_n, the pushes end at max_k(c_k + (n-k+1)·push).

        Args:
            push_s: seconds for which a push occupies the link.
            head_start_s: seconds by which a worker starts a round before the worker of the next rank.
            steps_per_round: steps from one push to the next.
        """
        rounds_s = self._seconds_by_round(steps_per_round)
        starts_s = -head_start_s * np.arange(rounds_s.shape[1] - 1, -1, -1)
        pushes_left = np.arange(rounds_s.shape[1], 0, -1)
        return float((np.sort(starts_s + rounds_s, axis=1) + pushes_left * push_s).max(axis=1).mean())

    def mean_spread_s(self, steps_per_round: int = 1) -> float:
        """Return the mean seconds per step by which the slowest worker of a round ends after the fastest."""
        return float(np.ptp(self._seconds_by_round(steps_per_round), axis=1).sum() / len(self.seconds))

    def mean_kth_fastest_s(self, kth: int, pause_between_steps_s: float) -> float:
        """Return the mean seconds until k workers have computed a step; k is `kth`.

        Workers for which a step does not wait start late: they first finish their compute, and only then take part in
        a step again. A fixed pause lies between two steps.
        """
        if kth == self.seconds.shape[1]:
            return self.mean_slowest_s()
        delays_s, steps_s = np.zeros(self.seconds.shape[1]), []
        for compute_s in self.seconds:
            finished_s = delays_s + compute_s
            end_s = np.partition(finished_s, kth - 1)[kth - 1]
            steps_s.append(end_s)
            late_s = np.where(finished_s > end_s, finished_s - end_s, 0.0)
            delays_s = np.where(delays_s > end_s, delays_s - end_s - pause_between_steps_s, late_s)
        return float(np.mean(steps_s))
