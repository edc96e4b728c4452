"""How collectives adapt to racks, arrays of a model and slow links, and which one `auto` chooses."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cluster.addresses import DummyAddresses
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
from services.collectives.folding import ranks_after_folding
from services.plan import Plan, decode_plan, make_plan
from services.runtime.transport import Message, MessageKind, MessageTag, ReceiveCallback, SentTraffic, Transport
from services.scenario.scenario import Scenario
from services.schema.errors import DeadlineExceeded, PeerUnreachable, ProtocolError
from services.schema.units import Bytes
from services.transport.virtual import VirtualFabric

SIZES = NetworkAndModelSizes(racks=((0, 3, 5), (1, 2, 4)), array_sizes=(600, 40, 1))

InVirtualTime = Callable[[Any], Any]


def plan(
    collective: dict[str, Any], workers: int = 8, features: int = 64, precision: str = "fp32", **cluster: Any
) -> Plan:
    """Return the plan of a linear model of `features` x 64 weights, trained over links of 1 Gbit/s."""
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
    return make_plan(trial, "run", "simulated", DummyAddresses())


def test_a_ring_in_the_order_of_racks_leaves_each_rack_once() -> None:
    """With every other order, more than one flow shares the uplink of a rack."""
    ring = Ring(order="racks").fill_in_unset_fields(SIZES)

    assert ring.sequence == (0, 3, 5, 1, 2, 4)
    between = sorted(
        edge for edge in ring.plan_transfers(6).sending_rank_pairs if len({0, 3, 5}.intersection(edge)) == 1
    )
    assert between == [(4, 0), (5, 1)]
    assert Ring().fill_in_unset_fields(SIZES) == Ring()


@pytest.mark.parametrize(
    "collective", [HierarchicalAllReduce(), HierarchicalCopyAllReduce()], ids=lambda member: member.kind
)
def test_hierarchical_groups_are_the_racks_unless_they_are_declared(collective: Any) -> None:
    """A scenario that sweeps its racks needs no groups that repeat them."""
    assert collective.fill_in_unset_fields(SIZES).groups == SIZES.racks
    for declared in ({"size": 2}, {"groups": ((5, 4, 3), (2, 1, 0))}):
        configured = collective.model_copy(update=declared)
        resolved = configured.fill_in_unset_fields(SIZES)
        assert (resolved.size, resolved.groups) == (configured.size, configured.groups)


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
    """The plan decides by the size of the vector, so its rounds, bytes and closed form are those of the chosen one."""
    ring = {"kind": "ring", "small": "128KiB"}
    planned, other = plan(ring, 6, features, precision), plan({"kind": kind}, 6, features, precision)

    assert planned.strategy.model_dump()["collective"]["kind"] == kind
    assert (planned.schedule, planned.bytes_per_step) == (other.schedule, other.bytes_per_step)
    assert planned.predicted == other.predicted
    assert decode_plan(planned.model_dump_json()) == planned
    assert Ring(small=Bytes("1GB")).plan_transfers(6) == Ring().plan_transfers(6), "without a plan, it is a ring"


@pytest.mark.parametrize("senders", ["concurrent", "serial"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("tensors", [(40_000, 90_000, 10, 70_000), (5, 0, 200_000), (1,)])
def test_reduce_to_one_sends_the_total_of_a_tensor_while_it_receives_the_next(
    senders: Any, ranks: int, tensors: tuple[int, ...], in_virtual_time: InVirtualTime
) -> None:
    """The sum is correct, the time is that of the closed form, and no message contains two arrays."""
    unfused = ReduceToOne(senders=senders, fused=False).fill_in_unset_fields(
        NetworkAndModelSizes(racks=(), array_sizes=tensors)
    )
    size, rate = sum(tensors), 1e6
    vectors = [np.full(size, 1.0 + rank, "float32") for rank in range(ranks)]

    seconds = in_virtual_time(sum_in_place(unfused, vectors, rate))

    assert unfused.tensors == tensors
    assert all((vector == ranks * (ranks + 1) / 2).all() for vector in vectors)
    assert unfused.plan_transfers(ranks).count_transfers_from(ranks - 1) == (len(tensors) if ranks > 1 else 0)
    assert seconds == pytest.approx(unfused.all_reduce_time_s(ranks, 4 * size, 0.0, 1 / rate), rel=0.1, abs=1e-4)


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@given(size_bytes=st.integers(1, 10**9), most=st.integers(1, 1 << 22), finest=st.integers(1, 1 << 22))
def test_a_pipelined_chunk_has_two_pieces_unless_they_would_be_too_small(
    ranks: int, size_bytes: int, most: int, finest: int
) -> None:
    """While one piece arrives, the link sends the other; without a pipeline, a chunk waits for its last byte anyway."""
    piece_bytes = Ring().plan_transfers(ranks).max_message_bytes(size_bytes, most, finest)

    assert 1 <= piece_bytes <= most
    assert piece_bytes >= min(most, finest)
    assert piece_bytes <= finest or 2 * ranks * (piece_bytes - 1) < size_bytes
    assert RecursiveDoubling().plan_transfers(ranks).max_message_bytes(size_bytes, most, finest) == most


async def sum_in_place(collective: Collective, vectors: list[Any], rate: float) -> float:
    """Sum the vectors in place over equal links; return the seconds that this took."""
    names = [f"rank-{rank}" for rank in range(len(vectors))]
    fabric = VirtualFabric(
        {name: RateLimiter(rate) for name in names}, {name: RateLimiter(rate) for name in names}, timeout_s=1e6
    )
    schedule = collective.plan_transfers(len(vectors))
    parts = (all_reduce(fabric.make_transport(name), names, k, schedule, 0, vectors[k]) for k, name in enumerate(names))
    await asyncio.gather(*parts)
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("ending", ["too late", "gone", "given up", "too short"])
def test_a_sum_that_fails_leaves_no_pending_receive(ending: str, in_virtual_time: InVirtualTime) -> None:
    """Its vector may have another use then: no message may be written to it, and the caller gets the error."""
    errors = {
        "too late": DeadlineExceeded,
        "gone": PeerUnreachable,
        "given up": asyncio.CancelledError,
        "too short": ProtocolError,
    }

    async def sum_alone() -> bool:
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

    assert in_virtual_time(sum_alone())


class CongestedTransport(Transport):
    """All messages have arrived; the first send ends when the test says so, others at once or with an error."""

    max_piece_bytes = min_piece_bytes = 8

    def __init__(self, error: Exception | None) -> None:
        self.traffic, self.error = SentTraffic(), error
        self.first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def connect(self, node_names: Iterable[str]) -> None:
        """There are no other nodes."""

    def forget_lost_peers(self, names: Iterable[str], oldest_step: int, returned: Iterable[str] = ()) -> None:
        """No node is lost."""

    async def send(self, target: str, message: Message) -> None:
        """No task sends; see `start_send`."""

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
def test_waiting_pieces_are_sent_one_after_the_other(error: Exception | None, in_virtual_time: InVirtualTime) -> None:
    """A long vector has many pieces, which must not nest their calls; an error of one piece ends the sum at once."""
    up, down = Transfer(1, 0, 0, 1, "reduce"), Transfer(0, 1, 0, 1, "copy")
    schedule = TransferSchedule(rounds=((up,), (down,)), is_pipelined=True, sends_partial_sums_first=True)

    async def sum_alone() -> None:
        transport = CongestedTransport(error)
        asyncio.get_running_loop().call_later(1.0, transport.first.set_result, None)
        async with asyncio.timeout(1.5):
            await all_reduce(transport, "ab", 0, schedule, 0, np.ones(5000))

    with pytest.raises(PeerUnreachable, match="b has ended") if error else nullcontext():
        in_virtual_time(sum_alone())


def test_a_vector_with_another_size_than_the_planned_arrays_raises_an_error() -> None:
    """Divided at other places, it would be summed without an error."""
    schedule = ReduceToOne(fused=False, tensors=(3, 4)).plan_transfers(2)

    with pytest.raises(ProtocolError, match="8 entries"):
        schedule.chunk_ranges(8)


@pytest.mark.parametrize("ranks", range(1, 34))
def test_an_inner_rank_of_one_of_two_trees_is_a_leaf_of_the_other(ranks: int) -> None:
    """Otherwise a rank would send 3S or more; and a tree of depth lg n has few hops."""
    trees = [list(_tree_edges(ranks, half)) for half in (0, 1)]
    first, second = ({parent for _, _, parent in tree} for tree in trees)

    assert not first & second
    for tree in trees:
        children = [child for _, child, _ in tree]
        assert len(set(children)) == len(children) == ranks - 1
        assert max((depth for depth, _, _ in tree), default=0) == ranks.bit_length() - 1


@pytest.mark.parametrize("ranks", range(1, 34))
def test_the_number_of_unfolded_ranks_is_the_largest_power_of_two(ranks: int) -> None:
    """Every other rank directly follows an unfolded rank."""
    members = ranks_after_folding(ranks)

    assert len(members) == 1 << (ranks.bit_length() - 1)
    assert set(members) | {rank + 1 for rank in members[: ranks - len(members)]} == set(range(ranks))


@pytest.mark.parametrize(
    ("collective", "reason"),
    [
        (Ring(sequence=(0, 1, 1)), "ranks 0 to 2, each once"),
        (Ring(sequence=(0, 1)), "ranks 0 to 2, each once"),
        (HierarchicalAllReduce(groups=((0, 1), (3,))), "ranks 0 to 2, each once"),
        (HierarchicalCopyAllReduce(groups=((0, 1, 2), ())), "no group may be empty"),
    ],
    ids=repr,
)
def test_ranks_that_are_missing_or_named_twice_are_refused(collective: Collective, reason: str) -> None:
    """A rank that is missing would wait for ever."""
    assert reason in (collective.unsupported_rank_count_reason(3) or "")


def test_auto_needs_a_plan_to_choose_a_collective() -> None:
    """Only the plan knows the network; a default would be a guess."""
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
        ),  # 4 MB: its pieces hide most of fourteen waits, more than two trees hide of six
        (4096, "1us", 6, "ring"),  # a folded rank sends the whole vector
        (1, "10ms", 4, "recursive_doubling"),  # 512 bytes: two waits, as through one rank, and fewer bytes
    ],
)
def test_auto_chooses_the_fastest_collective_and_reports_all_predicted_times(
    features: int, delay: str, workers: int, kind: str
) -> None:
    """The plan contains the chosen collective, so that nodes and reports show what ran, and the reasons."""
    planned = plan({"kind": "auto"}, workers, features, worker={"delay": delay})

    chosen_kind = planned.strategy.model_dump()["collective"]["kind"]
    assert chosen_kind == kind == min(planned.exchange_s_by_choice, key=planned.exchange_s_by_choice.__getitem__)
    assert planned.predicted.exchange_s == planned.exchange_s_by_choice[kind]
    for other, seconds in planned.exchange_s_by_choice.items():
        if other != "ring":  # the ring that auto considers follows the racks
            assert plan({"kind": other}, workers, features, worker={"delay": delay}).predicted.exchange_s == seconds
    assert plan({"kind": "ring"}).exchange_s_by_choice == {}


def test_auto_chooses_hierarchical_for_racks_with_slow_and_distant_uplinks() -> None:
    """Between racks it sends as few bytes as a ring, with fewer waits. For long vectors, a ring's pieces hide more."""
    network = {"kind": "racks", "size": 4, "uplink": "100mbit", "delay": "5ms"}

    planned = plan({"kind": "auto"}, 16, 256, network=network)

    assert min(planned.exchange_s_by_choice, key=planned.exchange_s_by_choice.__getitem__) == "hierarchical"
    assert decode_plan(planned.model_dump_json()) == planned
