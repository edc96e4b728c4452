"""Tests of every placement of shards: shards cover the vector, and nodes send the predicted bytes."""

from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from services.parameter_server.placement import (
    AnyPlacement,
    ColocatedPlacement,
    DedicatedPlacement,
    Placement,
    PromotedWorkerPlacement,
    SpareNodePlacement,
)
from services.strategies import ParameterServer

EXAMPLES: list[Placement] = [
    DedicatedPlacement(),
    ColocatedPlacement(),
    SpareNodePlacement(),
    PromotedWorkerPlacement(),
    PromotedWorkerPlacement(workers=2),
]

every_placement = pytest.mark.parametrize("placement", EXAMPLES, ids=repr)
clusters = given(workers=st.integers(1, 20), servers=st.integers(1, 20), entries=st.integers(1000, 5000))


def test_examples_table_contains_every_placement() -> None:
    """A placement that is not in the table is not tested."""
    union, _ = get_args(AnyPlacement)

    assert {type(member) for member in EXAMPLES} == set(get_args(union))


@every_placement
def test_placement_survives_a_json_round_trip(placement: Placement) -> None:
    """The record of a run has the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyPlacement).validate_json(placement.model_dump_json()) == placement


@every_placement
@clusters
def test_shards_cover_the_vector_and_each_has_its_own_node(
    placement: Placement, workers: int, servers: int, entries: int
) -> None:
    """Owners are in the order of their nodes, servers first; no node has two shards, and no shard is empty."""
    servers = 1 if placement.node_count_conflict(workers, servers) else servers
    names = (
        tuple(f"worker-{k}" for k in range(workers)),
        tuple(f"server-{k}" for k in range(placement.dedicated_server_count(servers))),
    )

    owners, chunks = placement.shard_owners(*names), placement.shard_ranges(workers, servers, entries)

    assert len(owners) == len(set(owners)) == len(chunks)
    assert list(owners) == [name for name in (*names[1], *names[0]) if name in owners]
    assert [i for chunk in chunks for i in range(*chunk)] == list(range(entries))
    assert all(chunk.size for chunk in chunks)


@clusters
def test_equal_shards_differ_by_at_most_one_entry(workers: int, servers: int, entries: int) -> None:
    """All workers wait for the largest shard."""
    for placement in (DedicatedPlacement(), ColocatedPlacement()):
        sizes = [chunk.size for chunk in placement.shard_ranges(workers, servers, entries)]
        assert max(sizes) - min(sizes) <= 1


@given(workers=st.integers(2, 20), spare=st.integers(1, 20))
def test_spare_nodes_balance_the_bytes_of_all_links(workers: int, spare: int) -> None:
    """BytePS's optimum: no link is idle while another is full; 2n(n-1)/(n²+kn-2k) of the vector each way."""
    assume(spare < workers)
    entries = 1_000_000

    sent = ParameterServer(servers=spare, placement=SpareNodePlacement()).sent_bytes_per_step(
        workers, entries, "float32"
    )

    share = 2 * workers * (workers - 1) / (workers**2 + spare * workers - 2 * spare)
    for count in (*sent.workers, *sent.servers):
        assert count / (4 * entries) == pytest.approx(share, rel=1e-3)


@pytest.mark.parametrize("workers", [1, 2, 5, 8])
def test_colocated_shards_send_as_many_bytes_as_a_ring(workers: int) -> None:
    """2(n-1)/n of the vector: the part that stays on a node is not sent."""
    sent = ParameterServer(placement=ColocatedPlacement()).sent_bytes_per_step(workers, 40 * workers, "float32")

    assert sent.servers == ()
    assert set(sent.workers) == {2 * (workers - 1) * 40 * 4}
    assert set(sent.replies) == {(workers - 1) * 40 * 4}


def test_unsuitable_numbers_of_servers_are_rejected() -> None:
    """More spare nodes than workers would be idle; colocated workers have no dedicated servers."""
    assert "at most as many servers as workers" in (SpareNodePlacement().node_count_conflict(2, 3) or "")
    assert "leave out servers" in (ColocatedPlacement().node_count_conflict(2, 3) or "")
    assert SpareNodePlacement().node_count_conflict(3, 3) is None
    assert ColocatedPlacement().node_count_conflict(2, 1) is None


def test_promotion_needs_a_switch_and_a_remaining_worker() -> None:
    """A server needs a worker that becomes it, and a worker that pushes to it."""
    assert "after of a strategy_switch" in (PromotedWorkerPlacement().node_count_conflict(4, 1) or "")
    assert "at most 3" in (PromotedWorkerPlacement(workers=4).explain_switch_conflict(4, 1) or "")
    assert "leave out servers" in (PromotedWorkerPlacement().explain_switch_conflict(4, 2) or "")
    assert PromotedWorkerPlacement(workers=3).explain_switch_conflict(4, 1) is None


@clusters
def test_promoted_workers_are_the_last_ranks_and_the_others_compute(workers: int, servers: int, entries: int) -> None:
    """A worker is either a server or computes, except for a single worker, which does both."""
    placement = PromotedWorkerPlacement(
        workers=1 if PromotedWorkerPlacement(workers=servers).explain_switch_conflict(workers, 1) else servers
    )

    owners = placement.shard_owners(range(workers), ())

    assert len(placement.shard_ranges(workers, 1, entries)) == len(owners)
    assert workers == 1 or [*range(placement.count_gradient_workers(workers)), *owners] == list(range(workers))
