"""Mixing of parameters: doubly stochastic weights with which each worker averages its neighbours' vectors with its own.

A round of mixing is a matrix W, whose row i has the weights of worker i: x_i ← Σ_j W_ij x_j. If all rows and all
columns add up to 1, mixing keeps the mean of the vectors over all workers.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from services.collectives.base import RankPair, Transfer, TransferSchedule
from services.schema.arrays import HostArray, Vector


class MixingRound(NamedTuple):
    """Weights of one exchange in which each worker mixes its vector with those of its neighbours."""

    weights: tuple[Mapping[int, float], ...]  # by rank: weight of each rank whose vector it mixes, its own included

    @property
    def rank_pairs(self) -> tuple[RankPair, ...]:
        """All pairs (source rank, target rank) between which a vector is sent."""
        return tuple((source, target) for target in range(len(self.weights)) for source in self.source_ranks(target))

    def source_ranks(self, rank: int) -> tuple[int, ...]:
        """Return the ranks from which a rank receives vectors, in ascending order."""
        return tuple(sorted(source for source in self.weights[rank] if source != rank))

    def target_ranks(self, rank: int) -> tuple[int, ...]:
        """Return the ranks to which a rank sends its vector.

        The first one is the next higher rank, so that no rank is the first target of all others.
        """
        targets = (target for target, row in enumerate(self.weights) if rank in row and target != rank)
        return tuple(sorted(targets, key=lambda target: (target - rank) % len(self.weights)))

    def as_matrix(self) -> HostArray:
        """Return the matrix W, shape (workers, workers)."""
        matrix = np.zeros((len(self.weights), len(self.weights)))
        for rank, row in enumerate(self.weights):
            matrix[rank, list(row)] = list(row.values())
        return matrix


def metropolis_round(neighbours: Sequence[Collection[int]]) -> MixingRound:
    """Return the round of a graph without directions, with Metropolis weights.

    Neighbours i and j mix with W_ij = 1 / (1 + max(degree of i, degree of j)), and a rank keeps the rest for its own
    vector. W is symmetric, so it is doubly stochastic. L. Xiao, S. Boyd, S.-J. Kim, "Distributed average consensus with
    least-mean-square deviation", Journal of Parallel and Distributed Computing 67, 2007. `neighbours` are by rank.
    """
    rows = []
    for rank, linked in enumerate(neighbours):
        row = {other: 1 / (1 + max(len(linked), len(neighbours[other]))) for other in sorted(linked)}
        rows.append(row | {rank: 1 - sum(row.values())})
    return MixingRound(tuple(rows))


def shift_round(worker_count: int, distance: int) -> MixingRound:
    """Return the round in which rank i averages its vector with that of rank i - `distance`, modulo the workers.

    Every rank sends to one rank and receives from one rank, so W is doubly stochastic.
    """
    rows = ({(rank - distance) % worker_count: 0.5, rank: 0.5} for rank in range(worker_count))
    return MixingRound(tuple(rows))


def pair_round(partners: Sequence[int]) -> MixingRound:
    """Return the round in which each rank averages its vector with that of its partner; `partners` are by rank."""
    rows = ({rank: 0.5, partner: 0.5} if rank != partner else {rank: 1.0} for rank, partner in enumerate(partners))
    return MixingRound(tuple(rows))


def mix_vectors(weights: Mapping[int, float], vectors: Mapping[int, Vector]) -> Vector:
    """Return the sum of vectors, each multiplied by its weight; both are by rank.

    Vectors are added in the order of their ranks, so ranks with equal weights get the same bits.
    """
    first, *others = sorted(weights)
    mixed = _multiply(vectors[first], weights[first])
    for rank in others:
        mixed += _multiply(vectors[rank], weights[rank])
    return mixed


def _multiply(vector: Vector, factor: float) -> Vector:
    return vector * vector.dtype.type(factor)


def plan_mixing_transfers(rounds: Sequence[MixingRound]) -> TransferSchedule:
    """Return the transfers of all rounds as one round of a schedule, from which flows and messages are counted.

    Each transfer is a whole vector. No collective runs the schedule.
    """
    pairs = dict.fromkeys(pair for mixing_round in rounds for pair in mixing_round.rank_pairs)
    transfers = tuple(Transfer(source, target, 0, 1, "copy") for source, target in pairs)
    return TransferSchedule(rounds=(transfers,) if transfers else ())


def list_target_ranks(rounds: Sequence[MixingRound], rank: int) -> Iterator[int]:
    """Yield the ranks to which a rank sends its vector in any of the rounds, each once."""
    yield from dict.fromkeys(target for mixing_round in rounds for target in mixing_round.target_ranks(rank))
