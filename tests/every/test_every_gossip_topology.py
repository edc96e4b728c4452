"""Tests of every gossip topology: weights are doubly stochastic, mixing keeps the mean and approaches it."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from services.strategies.gossip.mixing import MixingRound, list_target_ranks, mix_vectors, plan_mixing_transfers
from services.strategies.gossip.topologies import (
    AnyGossipTopology,
    CompleteGossip,
    ExponentialGossip,
    GossipTopology,
    GraphGossip,
    RingGossip,
)

STAR = GraphGossip(edges=((0, 1), (0, 2), (0, 3), (0, 4)))
LINE = GraphGossip(edges=((0, 1), (1, 2), (2, 3), (3, 4)))
EXAMPLES: list[GossipTopology] = [RingGossip(), ExponentialGossip(), CompleteGossip(), STAR, LINE]

every_topology = pytest.mark.parametrize("topology", EXAMPLES, ids=repr)


def allowed_workers(topology: GossipTopology, workers: int) -> int:
    """Return this number of workers, or five, for which the graphs of the table are declared."""
    return 5 if topology.find_conflict(workers) else workers


def rounds_of(topology: GossipTopology, workers: int) -> tuple[MixingRound, ...]:
    return topology.mixing_rounds(allowed_workers(topology, workers))


def mix_all(mixing_round: MixingRound, vectors: list[np.ndarray]) -> list[np.ndarray]:  # type: ignore[type-arg]
    """Return the vectors of all ranks after a round."""
    return [mix_vectors(row, {rank: vectors[rank] for rank in row}) for row in mixing_round.weights]


def test_examples_table_contains_every_topology() -> None:
    """A topology that is not in the table is not tested."""
    union, _ = get_args(AnyGossipTopology)

    assert {type(topology) for topology in EXAMPLES} == set(get_args(union))


@every_topology
def test_topology_survives_a_json_round_trip(topology: GossipTopology) -> None:
    """The record of a run has the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyGossipTopology).validate_json(topology.model_dump_json()) == topology


@every_topology
@given(workers=st.integers(1, 33))
def test_weights_are_positive_and_doubly_stochastic(topology: GossipTopology, workers: int) -> None:
    """Rows add up to 1, so equal vectors stay equal; columns add up to 1, so the mean of the vectors stays the same."""
    for mixing_round in rounds_of(topology, workers):
        matrix = mixing_round.as_matrix()
        assert (matrix >= 0).all()
        assert (np.diag(matrix) > 0).all()
        np.testing.assert_allclose(matrix.sum(axis=0), 1, rtol=0, atol=1e-15 * len(matrix))
        np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=0, atol=1e-15 * len(matrix))


@every_topology
@given(workers=st.integers(1, 17), seed=st.integers(0, 99))
def test_mixing_keeps_the_mean_and_never_spreads_the_vectors(topology: GossipTopology, workers: int, seed: int) -> None:
    """The mean of all workers is what is evaluated: mixing must not move it."""
    rounds = rounds_of(topology, workers)
    vectors = list(np.random.default_rng(seed).standard_normal((len(rounds[0].weights), 7)))
    mean = np.mean(vectors, axis=0)

    for mixing_round in rounds:
        mixed = mix_all(mixing_round, vectors)
        np.testing.assert_allclose(np.mean(mixed, axis=0), mean, rtol=0, atol=1e-12)
        assert np.linalg.norm(mixed - mean) <= np.linalg.norm(vectors - mean) * (1 + 1e-12)
        vectors = mixed


@every_topology
@given(workers=st.integers(2, 17))
def test_repeated_mixing_brings_all_vectors_to_the_mean(topology: GossipTopology, workers: int) -> None:
    """Otherwise a part of the workers would train a model of its own."""
    rounds = rounds_of(topology, workers)
    product = np.linalg.multi_dot([np.eye(len(rounds[0].weights)), *(each.as_matrix() for each in rounds)][::-1])

    averaged = np.linalg.matrix_power(product, 2000)

    np.testing.assert_allclose(averaged, 1 / len(averaged), rtol=0, atol=1e-9)


@every_topology
@given(workers=st.integers(1, 33))
def test_senders_and_receivers_agree(topology: GossipTopology, workers: int) -> None:
    """A worker waits for every rank whose vector it mixes; a rank that does not send would block it."""
    rounds = rounds_of(topology, workers)
    for mixing_round in rounds:
        ranks = range(len(mixing_round.weights))
        sent = {(source, target) for source in ranks for target in mixing_round.target_ranks(source)}
        assert sent == set(mixing_round.rank_pairs)
    transfers = list(plan_mixing_transfers(rounds).transfers_of_all_rounds)
    assert {transfer.rank_pair for transfer in transfers} == {pair for each in rounds for pair in each.rank_pairs}
    for rank in range(len(rounds[0].weights)):
        targets = {transfer.target for transfer in transfers if transfer.source == rank}
        assert set(list_target_ranks(rounds, rank)) == targets


@pytest.mark.parametrize("exponent", [1, 2, 3, 4])
def test_exponential_rounds_give_the_exact_mean_of_a_power_of_two(exponent: int) -> None:
    """Like a butterfly: after lg n rounds, each worker has a part of the vectors of all."""
    rounds = ExponentialGossip().mixing_rounds(1 << exponent)

    product = np.linalg.multi_dot([np.eye(1 << exponent), *(each.as_matrix() for each in rounds)][::-1])

    assert len(rounds) == exponent
    np.testing.assert_allclose(product, 1 / (1 << exponent), rtol=0, atol=1e-15)


@pytest.mark.parametrize(("workers", "rounds"), [(1, 1), (2, 1), (5, 3), (8, 3), (9, 4)])
def test_exponential_topology_has_one_round_per_power_of_two(workers: int, rounds: int) -> None:
    """The distances are 1, 2, 4, … below the number of workers."""
    assert len(ExponentialGossip().mixing_rounds(workers)) == rounds


@pytest.mark.parametrize(("workers", "weight"), [(2, 1 / 2), (3, 1 / 3), (8, 1 / 3)])
def test_neighbours_of_a_ring_have_the_weights_of_the_paper(workers: int, weight: float) -> None:
    """Lian et al. mix a third of each neighbour; two workers have one neighbour each."""
    (mixing_round,) = RingGossip().mixing_rounds(workers)

    for rank, row in enumerate(mixing_round.weights):
        assert row == pytest.approx(dict.fromkeys({rank, (rank - 1) % workers, (rank + 1) % workers}, weight))


def test_metropolis_weights_of_a_star_follow_the_larger_degree() -> None:
    """The centre has four neighbours: every edge has the weight 1/5, and the ends keep 4/5 of their own."""
    (mixing_round,) = STAR.mixing_rounds(5)

    assert mixing_round.weights[0] == pytest.approx(dict.fromkeys(range(5), 1 / 5))
    assert mixing_round.weights[3] == pytest.approx({0: 1 / 5, 3: 4 / 5})


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        (((0, 1), (2, 3)), "there is no path from worker 0 to worker 2"),
        (((0, 1), (1, 2), (2, 4)), "there is no worker 4"),
        (((0, 1), (1, 1)), "not 1 with itself"),
        ((), "there is no path from worker 0 to worker 1"),
    ],
)
def test_graph_that_cannot_mix_all_workers_is_rejected(edges: tuple[tuple[int, int], ...], words: str) -> None:
    """The message names the first worker that would never be reached, or the edge that is wrong."""
    conflict = GraphGossip(edges=edges).find_conflict(4)

    assert conflict is not None
    assert words in conflict.message
