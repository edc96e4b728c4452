"""What collectives make of the place where they run: racks, arrays of a model, slow links; and which one is taken."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cluster.addresses import InProcessAddresses
from services.cluster.links.fluid_link import RateLimiter
from services.collectives import (
    AutoCollective,
    Collective,
    HierarchicalAllReduce,
    HierarchicalCopyAllReduce,
    NetworkAndModelSizes,
    RecursiveDoubling,
    ReduceToOne,
    Ring,
    Transfer,
    TransferSchedule,
)
from services.collectives.double_tree import _tree_edges
from services.collectives.execution.executor import all_reduce
from services.collectives.folding import unfolded_ranks
from services.plan import Plan, make_plan
from services.runtime.transport import Message, MessageKind, MessageTag, ReceiveCallback, SentTraffic, Transport
from services.scenario.scenario import Scenario
from services.schema.errors import DeadlineExceeded, PeerUnreachable, ProtocolError
from services.schema.units import Bytes
from services.transport.virtual import VirtualFabric

SITE = NetworkAndModelSizes(racks=((0, 3, 5), (1, 2, 4)), array_sizes=(600, 40, 1))

InVirtualTime = Callable[[Any], Any]


def plan(
    collective: dict[str, Any], workers: int = 8, features: int = 64, precision: str = "fp32", **cluster: Any
) -> Plan:
    """A linear model of `features` x 64 weights behind links of 1 Gbit/s."""
    port = {"uplink": "1gbit", "downlink": "1gbit"}
    document = {
        "name": "planned",
        "workload": {
            "dataset": {"kind": "synthetic_regression", "samples": 40, "features": features, "outputs": 64},
            "model": {"kind": "linear"},
            "optimiser": {"kind": "sgd", "rate": 1e-3},
            "batch": 32,
            "precision": precision,
        },
        "cluster": {"workers": workers, **cluster, "worker": port | cluster.get("worker", {})},
        "strategies": {"it": {"kind": "all_reduce", "collective": collective}},
        "baseline": False,
    }
    (trial,) = Scenario.decode(document).trials()
    return make_plan(trial, "run", "simulated", InProcessAddresses())


def test_a_ring_in_the_order_of_racks_leaves_each_of_them_once() -> None:
    """Every other order has more flows in a rack's uplink than one."""
    ring = Ring(order="racks").resolve_auto_values(SITE)

    assert ring.sequence == (0, 3, 5, 1, 2, 4)
    between = sorted(edge for edge in ring.plan_transfers(6).rank_pairs if len({0, 3, 5}.intersection(edge)) == 1)
    assert between == [(4, 0), (5, 1)]
    assert Ring().resolve_auto_values(SITE) == Ring()


@pytest.mark.parametrize(
    "collective", [HierarchicalAllReduce(), HierarchicalCopyAllReduce()], ids=lambda member: member.kind
)
def test_two_levels_are_those_of_the_network_unless_they_are_given(collective: Any) -> None:
    """A scenario that sweeps its racks needs no second list of them."""
    assert collective.resolve_auto_values(SITE).groups == SITE.racks
    for named in ({"size": 2}, {"groups": ((5, 4, 3), (2, 1, 0))}):
        mine = collective.model_copy(update=named)
        found = mine.resolve_auto_values(SITE)
        assert (found.size, found.groups) == (mine.size, mine.groups)


@pytest.mark.parametrize(
    ("features", "precision", "kind"),
    [
        (511, "fp32", "recursive_doubling"),  # and a bias: 128 KiB
        (512, "fp32", "ring"),
        (255, "fp64", "recursive_doubling"),
        (256, "fp64", "ring"),
    ],
)
def test_a_ring_leaves_small_vectors_to_recursive_doubling(features: int, precision: Any, kind: str) -> None:
    """A plan decides it by the vector's size, so rounds, bytes and the closed form are those of what runs."""
    ring = {"kind": "ring", "small": "128KiB"}
    decided, other = plan(ring, 6, features, precision), plan({"kind": kind}, 6, features, precision)

    assert decided.strategy.model_dump()["collective"]["kind"] == kind
    assert (decided.schedule, decided.bytes_per_step) == (other.schedule, other.bytes_per_step)
    assert decided.predicted == other.predicted
    assert Plan.model_validate_json(decided.model_dump_json()) == decided
    assert Ring(small=Bytes("1GB")).plan_transfers(6) == Ring().plan_transfers(6), "by itself, it is a ring"


@pytest.mark.parametrize("senders", ["concurrent", "serial"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("tensors", [(40_000, 90_000, 10, 70_000), (5, 0, 200_000), (1,)])
def test_tensor_by_tensor_a_total_leaves_while_the_next_comes(
    senders: Any, ranks: int, tensors: tuple[int, ...], in_virtual_time: InVirtualTime
) -> None:
    """The sum is the same, the time that of the closed form, and no message holds two arrays."""
    unfused = ReduceToOne(senders=senders, fused=False).resolve_auto_values(
        NetworkAndModelSizes(racks=(), array_sizes=tensors)
    )
    size, rate = sum(tensors), 1e6
    vectors = [np.full(size, 1.0 + rank, "float32") for rank in range(ranks)]

    seconds = in_virtual_time(summed(unfused, vectors, rate))

    assert unfused.tensors == tensors
    assert all((vector == ranks * (ranks + 1) / 2).all() for vector in vectors)
    assert unfused.plan_transfers(ranks).count_transfers_from(ranks - 1) == (len(tensors) if ranks > 1 else 0)
    assert seconds == pytest.approx(unfused.predict_run_time_s(ranks, 4 * size, 0.0, 1 / rate), rel=0.1, abs=1e-4)


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@given(size_bytes=st.integers(1, 10**9), most=st.integers(1, 1 << 22), finest=st.integers(1, 1 << 22))
def test_in_a_pipeline_a_chunk_is_two_pieces_unless_they_would_be_too_fine(
    ranks: int, size_bytes: int, most: int, finest: int
) -> None:
    """While one comes, the link passes on the other; elsewhere a chunk waits for its last byte anyway."""
    piece_bytes = Ring().plan_transfers(ranks).max_message_bytes(size_bytes, most, finest)

    assert 1 <= piece_bytes <= most
    assert piece_bytes >= min(most, finest)
    assert piece_bytes <= finest or 2 * ranks * (piece_bytes - 1) < size_bytes
    assert RecursiveDoubling().plan_transfers(ranks).max_message_bytes(size_bytes, most, finest) == most


async def summed(collective: Collective, vectors: list[Any], rate: float) -> float:
    """Sums the vectors in place; seconds that it took on equal links."""
    names = [f"rank-{rank}" for rank in range(len(vectors))]
    fabric = VirtualFabric(
        {name: RateLimiter(rate) for name in names}, {name: RateLimiter(rate) for name in names}, timeout_s=1e6
    )
    schedule = collective.plan_transfers(len(vectors))
    parts = (all_reduce(fabric.make_transport(name), names, k, schedule, 0, vectors[k]) for k, name in enumerate(names))
    await asyncio.gather(*parts)
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("ending", ["too late", "gone", "given up", "too short"])
def test_a_sum_that_fails_waits_for_nothing_any_more(ending: str, in_virtual_time: InVirtualTime) -> None:
    """Its vector is used otherwise then: nobody may write to it, and whoever summed hears why."""
    errors = {
        "too late": DeadlineExceeded,
        "gone": PeerUnreachable,
        "given up": asyncio.CancelledError,
        "too short": ValueError,
    }

    async def alone() -> bool:
        ports = [{name: RateLimiter(1e6) for name in "abc"} for _ in range(2)]
        fabric = VirtualFabric(*ports, timeout_s=1.0)
        schedule, mailbox = Ring().plan_transfers(3), fabric.mailboxes["a"]
        summing = asyncio.create_task(all_reduce(fabric.make_transport("a"), "abc", 0, schedule, 0, np.ones(900)))
        await asyncio.sleep(0.01)
        if ending == "gone":
            mailbox.mark_source_failed("c", PeerUnreachable("c broke off its stream"))
        if ending == "given up":
            summing.cancel()
        if ending == "too short":
            mailbox.deliver("c", Message(MessageTag(0, MessageKind.PARTIAL_SUM, 2, 0), bytes(8 * 299)))
        with pytest.raises(errors[ending]):
            await summing
        return not mailbox._pending and not mailbox._pending_by_tag

    assert in_virtual_time(alone())


class Congested(Transport):
    """All has come already; the first message leaves when it is told to, others at once or with an error."""

    max_piece_bytes = min_piece_bytes = 8

    def __init__(self, error: Exception | None) -> None:
        self.traffic, self.error = SentTraffic(), error
        self.first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def connect(self, node_names: Iterable[str]) -> None:
        """Nobody is there."""

    async def send(self, target: str, message: Message) -> None:
        """Nobody sends in a task."""

    async def receive(self, source: str, *tags: MessageTag, buffer: memoryview | None = None) -> Message:
        return Message(tags[0], bytes(8))

    def start_send(self, target: str, message: Message) -> "asyncio.Future[None] | None":
        if message.tag.piece == 0:
            return self.first
        if self.error is not None:
            raise self.error
        return None

    def start_receive(
        self, source: str, tag: MessageTag, callback: ReceiveCallback, buffer: memoryview | None = None
    ) -> None:
        callback(Message(tag, bytes(8)))


@pytest.mark.parametrize("error", [None, PeerUnreachable("b has ended the stream")], ids=["sent", "refused"])
def test_pieces_that_wait_for_their_turn_follow_each_other(
    error: Exception | None, in_virtual_time: InVirtualTime
) -> None:
    """As many as a long vector has, none within the other; what stops one of them ends the sum, at once."""
    up, down = Transfer(1, 0, 0, 1, "reduce"), Transfer(0, 1, 0, 1, "copy")
    schedule = TransferSchedule(rounds=((up,), (down,)), is_pipelined=True, sends_partial_sums_first=True)

    async def alone() -> None:
        transport = Congested(error)
        asyncio.get_running_loop().call_later(1.0, transport.first.set_result, None)
        async with asyncio.timeout(1.5):
            await all_reduce(transport, "ab", 0, schedule, 0, np.ones(5000))

    with pytest.raises(PeerUnreachable, match="b has ended") if error else nullcontext():
        in_virtual_time(alone())


def test_a_vector_that_is_not_made_of_the_planned_arrays_is_a_bug() -> None:
    """Cut elsewhere, it would be summed without an error."""
    schedule = ReduceToOne(fused=False, tensors=(3, 4)).plan_transfers(2)

    with pytest.raises(ProtocolError, match="8 entries"):
        schedule.chunk_ranges(8)


@pytest.mark.parametrize("ranks", range(1, 34))
def test_of_two_trees_who_passes_on_in_one_is_a_leaf_of_the_other(ranks: int) -> None:
    """Otherwise a rank would send 3S or more; and a tree of depth lg n has few hops."""
    trees = [list(_tree_edges(ranks, half)) for half in (0, 1)]
    first, second = ({parent for _, _, parent in tree} for tree in trees)

    assert not first & second
    for tree in trees:
        children = [child for _, child, _ in tree]
        assert len(set(children)) == len(children) == ranks - 1
        assert max((depth for depth, _, _ in tree), default=0) == ranks.bit_length() - 1


@pytest.mark.parametrize("ranks", range(1, 34))
def test_the_core_is_the_largest_power_of_two(ranks: int) -> None:
    """And who is not in it stands right behind somebody who is."""
    members = unfolded_ranks(ranks)

    assert len(members) == 1 << (ranks.bit_length() - 1)
    assert set(members) | {rank + 1 for rank in members[: ranks - len(members)]} == set(range(ranks))


@pytest.mark.parametrize(
    ("collective", "why"),
    [
        (Ring(sequence=(0, 1, 1)), "ranks 0 to 2, each once"),
        (Ring(sequence=(0, 1)), "ranks 0 to 2, each once"),
        (HierarchicalAllReduce(groups=((0, 1), (3,))), "ranks 0 to 2, each once"),
        (HierarchicalCopyAllReduce(groups=((0, 1, 2), ())), "no group may be empty"),
    ],
    ids=repr,
)
def test_ranks_that_are_missing_or_named_twice_are_refused(collective: Collective, why: str) -> None:
    """A rank that is left out waits for ever."""
    assert why in (collective.unsupported_rank_count_reason(3) or "")


def test_auto_is_decided_by_a_plan_and_by_nothing_else() -> None:
    """Nobody else knows the network; a default would be a guess."""
    with pytest.raises(ProtocolError, match="plan"):
        AutoCollective().plan_transfers(4)


@pytest.mark.parametrize(
    ("features", "delay", "workers", "kind"),
    [
        (256, "10us", 8, "halving_doubling"),  # 64 KB: as few bytes as a ring, fewer waits
        (
            16384,
            "2500us",
            8,
            "ring",
        ),  # 4 MB: its pieces hide most of fourteen waits, more than those of two trees of six
        (4096, "1us", 6, "ring"),  # whoever folds sends all of it
        (1, "10ms", 4, "recursive_doubling"),  # 512 bytes: two waits, as through one rank, and fewer bytes
    ],
)
def test_auto_takes_the_shortest_and_says_what_the_others_would_take(
    features: int, delay: str, workers: int, kind: str
) -> None:
    """The plan holds the member itself, so that nodes and reports see what ran; and the reasons."""
    decided = plan({"kind": "auto"}, workers, features, worker={"delay": delay})

    chosen = decided.strategy.model_dump()["collective"]["kind"]
    assert chosen == kind == min(decided.exchange_s_by_choice, key=decided.exchange_s_by_choice.__getitem__)
    assert decided.predicted.exchange_s == decided.exchange_s_by_choice[kind]
    for other, seconds in decided.exchange_s_by_choice.items():
        if other != "ring":  # auto's follows the racks
            assert plan({"kind": other}, workers, features, worker={"delay": delay}).predicted.exchange_s == seconds
    assert plan({"kind": "ring"}).exchange_s_by_choice == {}


def test_auto_goes_by_two_levels_where_racks_have_slow_uplinks_and_long_ways() -> None:
    """Between racks goes as little as in a ring, in fewer waits. Of longer vectors a ring's pieces hide more."""
    network = {"kind": "racks", "size": 4, "uplink": "100mbit", "delay": "5ms"}

    decided = plan({"kind": "auto"}, 16, 256, network=network)

    assert min(decided.exchange_s_by_choice, key=decided.exchange_s_by_choice.__getitem__) == "hierarchical"
    assert Plan.model_validate_json(decided.model_dump_json()) == decided
