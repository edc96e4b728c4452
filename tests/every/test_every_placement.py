"""Every placement of shards through one battery: the vector is covered, and links carry what was said."""

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


def test_every_member_of_the_family_stands_in_the_table() -> None:
    """One that is not in the table is not tested."""
    union, _ = get_args(AnyPlacement)

    assert {type(member) for member in EXAMPLES} == set(get_args(union))


@every_placement
def test_it_is_read_from_what_it_writes(placement: Placement) -> None:
    """A run's record holds the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyPlacement).validate_json(placement.model_dump_json()) == placement


@every_placement
@clusters
def test_shards_cover_the_vector_and_every_one_has_its_node(
    placement: Placement, workers: int, servers: int, entries: int
) -> None:
    """In the order of their nodes, servers first; no node holds two, none holds nothing."""
    servers = 1 if placement.node_count_conflict(workers, servers) else servers
    names = (
        tuple(f"worker-{k}" for k in range(workers)),
        tuple(f"server-{k}" for k in range(placement.dedicated_server_count(servers))),
    )

    held, chunks = placement.shard_owners(*names), placement.shard_ranges(workers, servers, entries)

    assert len(held) == len(set(held)) == len(chunks)
    assert list(held) == [name for name in (*names[1], *names[0]) if name in held]
    assert [i for chunk in chunks for i in range(*chunk)] == list(range(entries))
    assert all(chunk.size for chunk in chunks)


@clusters
def test_equal_shares_differ_by_one_entry_at_most(workers: int, servers: int, entries: int) -> None:
    """The largest shard is what everybody waits for."""
    for placement in (DedicatedPlacement(), ColocatedPlacement()):
        sizes = [chunk.size for chunk in placement.shard_ranges(workers, servers, entries)]
        assert max(sizes) - min(sizes) <= 1


@given(workers=st.integers(2, 20), spare=st.integers(1, 20))
def test_spare_nodes_make_all_links_carry_the_same(workers: int, spare: int) -> None:
    """BytePS's optimum: no link is idle while another is full; 2n(n-1)/(n²+kn-2k) of the vector each way."""
    assume(spare < workers)
    entries = 1_000_000

    sent = ParameterServer(servers=spare, placement=SpareNodePlacement()).bytes_per_step(workers, entries, "float32")

    share = 2 * workers * (workers - 1) / (workers**2 + spare * workers - 2 * spare)
    for count in (*sent.workers, *sent.servers):
        assert count / (4 * entries) == pytest.approx(share, rel=1e-3)


@pytest.mark.parametrize("workers", [1, 2, 5, 8])
def test_colocated_shards_send_what_a_ring_sends(workers: int) -> None:
    """2(n-1)/n of the vector: what stays on a node is not on the wire."""
    sent = ParameterServer(placement=ColocatedPlacement()).bytes_per_step(workers, 40 * workers, "float32")

    assert sent.servers == ()
    assert set(sent.workers) == {2 * (workers - 1) * 40 * 4}
    assert set(sent.replies) == {(workers - 1) * 40 * 4}


def test_what_makes_no_sense_is_refused() -> None:
    """More spare nodes than workers stay idle; workers that serve have no servers beside them."""
    assert "at most as many servers as workers" in (SpareNodePlacement().node_count_conflict(2, 3) or "")
    assert "leave out servers" in (ColocatedPlacement().node_count_conflict(2, 3) or "")
    assert SpareNodePlacement().node_count_conflict(3, 3) is None
    assert ColocatedPlacement().node_count_conflict(2, 1) is None


def test_promoted_workers_leave_somebody_to_compute_and_are_called_by_a_switch() -> None:
    """A server that nobody has been, or that nobody pushes to, is none."""
    assert "after of a strategy_switch" in (PromotedWorkerPlacement().node_count_conflict(4, 1) or "")
    assert "at most 3" in (PromotedWorkerPlacement(workers=4).node_conflict_after_switch(4, 1) or "")
    assert "leave out servers" in (PromotedWorkerPlacement().node_conflict_after_switch(4, 2) or "")
    assert PromotedWorkerPlacement(workers=3).node_conflict_after_switch(4, 1) is None


@clusters
def test_promoted_workers_are_the_last_ranks_and_the_others_compute(workers: int, servers: int, entries: int) -> None:
    """Nobody does both, but for one worker that is alone."""
    placement = PromotedWorkerPlacement(
        workers=1 if PromotedWorkerPlacement(workers=servers).node_conflict_after_switch(workers, 1) else servers
    )

    held = placement.shard_owners(range(workers), ())

    assert len(placement.shard_ranges(workers, 1, entries)) == len(held)
    assert workers == 1 or [*range(placement.gradient_worker_count(workers)), *held] == list(range(workers))
