"""Every collective through one battery: the sum, the same bits everywhere, as many bytes and seconds as it says."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from math import inf
from typing import Any, TypeAlias, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from services.cluster.links.fluid_link import MAX_FLUID_MESSAGE_BYTES, RateLimiter, goodput_bytes_per_s
from services.cluster.links.message_lengths import MessageSizeLimits
from services.cluster.network import Network, NetworkPath
from services.collectives import (
    AnyCollective,
    AutoCollective,
    BinomialTree,
    Collective,
    DoubleBinaryTree,
    HalvingDoubling,
    HierarchicalAllReduce,
    HierarchicalCopyAllReduce,
    NetworkAndModelSizes,
    RecursiveDoubling,
    ReduceToOne,
    Ring,
    TransferSchedule,
)
from services.collectives.execution.executor import UNCOMPRESSED, all_reduce
from services.collectives.execution.rank_schedule import RankOperation, build_rank_schedule
from services.collectives.folding import unfolded_ranks
from services.collectives.grouped import RankGroupCollective, RankGroups
from services.collectives.pairwise_exchange import PairwiseExchange
from services.collectives.rendezvous import RendezvousCollective
from services.compressors import Compressor, Fp16
from services.runtime.transport import Message, SentTraffic
from services.schema.arrays import HostArray
from services.schema.units import Bytes, Rate
from services.strategies.all_reduce import AllReduce
from services.strategies.cost_model import CostModel
from services.transport.mailbox import Mailbox
from services.transport.virtual import EMPTY_NETWORK, VirtualFabric

EXAMPLES: list[Collective] = [
    Ring(),
    Ring(stride=3),
    ReduceToOne(),
    ReduceToOne(senders="serial"),
    HierarchicalCopyAllReduce(size=2),
    HierarchicalCopyAllReduce(size=3),
    HierarchicalCopyAllReduce(size=3, rendezvous=False),
    BinomialTree(),
    BinomialTree(rendezvous=False),
    DoubleBinaryTree(),
    RecursiveDoubling(),
    RecursiveDoubling(rendezvous=False),
    HalvingDoubling(),
    HalvingDoubling(rendezvous=False),
    HierarchicalAllReduce(size=2),
    HierarchicalAllReduce(size=3),
    HierarchicalAllReduce(size=3, rendezvous=False),
]
RANKS = (*range(1, 10), 16)
SIZES = (1, 2, 3, 7, 64, 1001)  # fewer entries than ranks among them, and chunks of unequal length

InVirtualTime: TypeAlias = Callable[[Any], Any]


every_collective = pytest.mark.parametrize("collective", EXAMPLES, ids=repr)
any_ranks = pytest.mark.parametrize("ranks", RANKS)


@dataclass(frozen=True)
class Exchange:
    """What one all-reduce did."""

    vectors: list[HostArray]  # by rank, afterwards
    traffic: list[SentTraffic]  # by rank
    seconds: float


async def exchange(
    schedule: TransferSchedule,
    vectors: list[HostArray],
    bytes_per_s: float = inf,
    *,
    piece_bytes: int = MAX_FLUID_MESSAGE_BYTES,
    compressor: Compressor = UNCOMPRESSED,
    mailbox: type[Mailbox] = Mailbox,
    network: Network = EMPTY_NETWORK,
) -> Exchange:
    """All ranks at once, on links of equal rate."""
    names = [f"rank-{rank}" for rank in range(len(vectors))]
    links = [{name: RateLimiter(bytes_per_s) for name in names} for _ in range(2)]
    fabric = VirtualFabric(*links, timeout_s=1e6, network=network)
    fabric.mailboxes = {name: mailbox(1e6) for name in names}
    transports = [fabric.make_transport(name) for name in names]
    results = [vector.copy() for vector in vectors]
    for transport in transports:
        transport.max_piece_bytes = piece_bytes
    await asyncio.gather(
        *(
            all_reduce(transport, names, rank, schedule, 0, result, compressor)
            for rank, (transport, result) in enumerate(zip(transports, results, strict=True))
        )
    )
    return Exchange(results, [each.traffic for each in transports], asyncio.get_running_loop().time())


def normal(ranks: int, size: int, dtype: str, seed: int = 0) -> list[HostArray]:
    """One vector per rank."""
    return list(np.random.default_rng(seed).standard_normal((ranks, size)).astype(dtype))


def whole(ranks: int, size: int, dtype: str = "float64", seed: int = 0) -> list[HostArray]:
    """One vector of small whole numbers per rank: sums of them are exact."""
    return [np.round(20 * vector) for vector in normal(ranks, size, dtype, seed)]


def replicas(done: Exchange) -> int:
    """How many different results there are."""
    return len({vector.tobytes() for vector in done.vectors})


def sent_by(collective: Collective, ranks: int, rank: int, size: int) -> int:
    """Bytes that the plan promises for a vector of `size` fp32 entries."""
    return AllReduce(collective=collective).bytes_per_step(ranks, size, "float32").workers[rank]


def test_every_member_of_the_family_of_collectives_stands_in_the_table() -> None:
    """A collective that is not in the table is not tested; `auto` is one of the others once a trial is planned."""
    union, _ = get_args(AnyCollective)

    assert {type(collective) for collective in EXAMPLES} == set(get_args(union)) - {AutoCollective}


@pytest.mark.parametrize("collective", [*EXAMPLES, AutoCollective()], ids=repr)
def test_a_collective_is_read_from_what_it_writes(collective: Collective) -> None:
    """A run's record holds the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyCollective).validate_json(collective.model_dump_json()) == collective


@every_collective
def test_a_schedule_is_read_from_what_it_writes(collective: Collective) -> None:
    """Nodes read it from their plan, and must find the same rounds there."""
    schedule = collective.plan_transfers(6)

    assert TransferSchedule.model_validate_json(schedule.model_dump_json()) == schedule


@every_collective
@any_ranks
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_rank_ends_with_the_sum_in_the_same_bits(
    collective: Collective, ranks: int, dtype: str, in_virtual_time: InVirtualTime
) -> None:
    """Replicas that differ in one bit drift apart."""
    for size in SIZES:
        vectors = normal(ranks, size, dtype)

        done = in_virtual_time(exchange(collective.plan_transfers(ranks), vectors))

        tolerance = ranks * np.finfo(dtype).eps * sum(abs(vector) for vector in vectors)
        assert (abs(done.vectors[0] - np.sum(vectors, axis=0, dtype="float64")) <= tolerance).all()
        assert replicas(done) == 1
        assert done.vectors[0].dtype == np.dtype(dtype)


@every_collective
@settings(deadline=None, max_examples=30)
@given(ranks=st.sampled_from(RANKS), size=st.integers(0, 300), entries=st.integers(1, 80), seed=st.integers(0, 99))
def test_whole_numbers_are_summed_exactly_in_pieces_of_any_size(
    collective: Collective, ranks: int, size: int, entries: int, seed: int, in_virtual_time: InVirtualTime
) -> None:
    """Without rounding nothing hides a chunk that was added twice or left out."""
    vectors = whole(ranks, size, seed=seed)

    done = in_virtual_time(exchange(collective.plan_transfers(ranks), vectors, piece_bytes=8 * entries))

    for vector in done.vectors:
        assert (vector == np.sum(vectors, axis=0)).all()


@every_collective
@settings(deadline=None, max_examples=20)
@given(ranks=st.sampled_from(RANKS), size=st.integers(1, 300), seed=st.integers(0, 99), late_s=st.floats(0, 0.1))
def test_every_summand_counts_once_though_messages_come_thrice_and_out_of_order(
    collective: Collective, ranks: int, size: int, seed: int, late_s: float, in_virtual_time: InVirtualTime
) -> None:
    """A network may repeat and overtake; the order of sums, and so their bits, must not depend on it."""
    vectors, schedule = normal(ranks, size, "float32", seed), collective.plan_transfers(ranks)

    calm = in_virtual_time(exchange(schedule, vectors, 1e4, piece_bytes=64))
    done = in_virtual_time(exchange(schedule, vectors, 1e4, piece_bytes=64, mailbox=unruly(late_s)))

    assert [vector.tobytes() for vector in done.vectors] == [vector.tobytes() for vector in calm.vectors]


def unruly(late_s: float) -> type[Mailbox]:
    """A mailbox to which the network delivers every message up to `late_s` late, and three times."""

    class Unruly(Mailbox):
        def deliver(self, source: str, message: Message) -> None:
            chance = random.Random(repr((source, message.tag)))
            for delay in (late_s * chance.random(), chance.random(), chance.random()):
                asyncio.get_running_loop().call_later(delay, super().deliver, source, message)

    return Unruly


@every_collective
@any_ranks
def test_replicas_hold_the_same_bits_when_the_wire_rounds(
    collective: Collective, ranks: int, in_virtual_time: InVirtualTime
) -> None:
    """Who keeps a value that it has also sent must keep what the others got."""
    vectors = normal(ranks, 501, "float32")

    done = in_virtual_time(exchange(collective.plan_transfers(ranks), vectors, piece_bytes=128, compressor=Fp16()))

    hops = 2 * ranks  # roundings on the way of a sum, at most
    tolerance = hops * 2.0**-11 * sum(abs(vector) for vector in vectors)
    assert (abs(done.vectors[0] - np.sum(vectors, axis=0)) <= tolerance).all()
    assert replicas(done) == 1


@every_collective
@any_ranks
@pytest.mark.parametrize("size", [0, *SIZES, 3 * MAX_FLUID_MESSAGE_BYTES // 4 + 5])
def test_bytes_and_messages_are_those_counted_from_the_schedule(
    collective: Collective, ranks: int, size: int, in_virtual_time: InVirtualTime
) -> None:
    """Bytes per node are promised before a run and compared with its network interface afterwards."""
    schedule = collective.plan_transfers(ranks)

    length = schedule.max_message_bytes(4 * size, MAX_FLUID_MESSAGE_BYTES, MAX_FLUID_MESSAGE_BYTES) // 4

    done = in_virtual_time(exchange(schedule, normal(ranks, size, "float32")))

    for rank, traffic in enumerate(done.traffic):
        assert traffic.payload_bytes == sent_by(collective, ranks, rank, size)
        assert traffic.messages == sum(
            act.is_send for act in build_rank_schedule(schedule, rank, size, length, 4).operations
        )
        assert traffic.messages == schedule.count_transfers_from(rank) or not 64 <= size <= 1001, (
            "nothing had to be cut or left out"
        )
        assert {int(name.removeprefix("rank-")) for name in traffic.payload_bytes_by_peer} <= schedule.target_ranks(
            rank
        )


def lg(ranks: int) -> int:
    """⌊lg n⌋."""
    return ranks.bit_length() - 1


def fold(ranks: int) -> int:
    """Ranks beyond a power of two."""
    return ranks - (1 << lg(ranks))


FORMULAS: dict[str, tuple[Callable[[int], float], Callable[[int], float]]] = {
    # kind -> by n: vectors that all ranks together send; messages that they send for it
    "ring": (lambda n: 2 * (n - 1), lambda n: 2 * n * (n - 1)),
    "reduce_to_one": (lambda n: 2 * (n - 1), lambda n: 2 * (n - 1)),
    "hierarchical_copy": (lambda n: 2 * (n - 1), lambda n: 2 * (n - 1)),
    "tree": (lambda n: 2 * (n - 1), lambda n: 2 * (n - 1)),
    "double_tree": (lambda n: 2 * (n - 1), lambda n: 4 * (n - 1)),
    "recursive_doubling": (
        lambda n: (n - fold(n)) * lg(n) + 2 * fold(n),
        lambda n: (n - fold(n)) * lg(n) + 2 * fold(n),
    ),
    "halving_doubling": (
        lambda n: 2 * (n - fold(n) - 1) + 2 * fold(n),
        lambda n: 2 * (n - fold(n)) * lg(n) + 2 * fold(n),
    ),
}


@pytest.mark.parametrize("collective", [member for member in EXAMPLES if member.kind in FORMULAS], ids=repr)
@any_ranks
def test_bytes_and_messages_are_those_of_the_literature(collective: Collective, ranks: int) -> None:
    """A schedule that moves more than its algorithm must is another algorithm."""
    size, schedule = 5040 * 16, collective.plan_transfers(ranks)  # divisible by every number of ranks
    vectors, messages = (formula(ranks) for formula in FORMULAS[collective.kind])
    tokens = sum(each.kind == "token" for each in schedule.transfers)

    assert tokens == token_count(collective, ranks, messages)
    assert sum(sent_by(collective, ranks, rank, size) for rank in range(ranks)) == 4 * size * vectors
    assert sum(schedule.count_transfers_from(rank) for rank in range(ranks)) == messages + tokens


@pytest.mark.parametrize("collective", [RecursiveDoubling(), HalvingDoubling()], ids=repr)
@pytest.mark.parametrize("ranks", [2, 4, 7, 8])
def test_partners_swap_when_both_are_ready(collective: Collective, ranks: int) -> None:
    """Whoever is early would take the link of whoever is late, and delays would feed each other."""
    for rank in unfolded_ranks(ranks):
        acts = build_rank_schedule(collective.plan_transfers(ranks), rank, 64 * ranks, 64, 4).operations
        folds = {rank - 1, rank + 1} - set(unfolded_ranks(ranks))
        for number, act in enumerate(acts):
            if act.is_send and act.kind == "token":
                assert {k for k, each in enumerate(acts[:number]) if not each.is_send} <= waited(acts, number)
            elif act.is_send and act.peer_rank not in folds:
                assert any(acts[k].kind == "token" and acts[k].peer_rank == act.peer_rank for k in act.prerequisites)


@pytest.mark.parametrize(
    "collective", [BinomialTree(), HierarchicalCopyAllReduce(size=2), HierarchicalAllReduce(size=2)], ids=repr
)
@pytest.mark.parametrize("ranks", [4, 7, 8])
def test_whoever_goes_on_with_somebody_else_has_heard_that_all_is_there(collective: Collective, ranks: int) -> None:
    """Who is served first, because most wait for it, would share the link with who is served next.

    What comes of other chunks meanwhile was sent before, perhaps, and tells nothing.
    """
    turned = 0
    for rank in range(ranks):
        acts = build_rank_schedule(collective.plan_transfers(ranks), rank, 64 * ranks, 64, 4).operations
        for number, act in enumerate(acts):
            if act.is_send and act.kind != "token":
                before = waited(acts, number)
                served = {acts[k].peer_rank: k for k in sorted(before) if acts[k].is_send and acts[k].kind != "token"}
                left = {peer: k for peer, k in served.items() if peer != act.peer_rank}
                turned += len(left)
                for peer, sent in left.items():
                    heard = {k for k in before if k > sent and acts[k].peer_rank == peer and not acts[k].is_send}
                    assert any(acts[k].first_chunk == acts[sent].first_chunk for k in heard)
    assert turned


def waited(acts: Sequence[RankOperation], number: int) -> set[int]:
    """All acts that are over when this one begins."""
    return {k for each in acts[number].prerequisites for k in (each, *waited(acts, each))}


@pytest.mark.parametrize("round_trip", [None, "1000B"])
@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 9])
def test_in_two_trees_nobody_is_far_ahead_of_the_totals(ranks: int, round_trip: str | None) -> None:
    """A leaf has nothing to wait for: its partial sums would fill the port that others need."""
    schedule = DoubleBinaryTree(round_trip=round_trip and Bytes(round_trip)).plan_transfers(ranks)
    ahead = schedule.send_window_pieces(256)
    assert ahead == 4 * (ranks.bit_length() - 1) + (-(-1000 * (ranks.bit_length() - 1) // 256) if round_trip else 0)
    for rank in range(ranks):
        acts = build_rank_schedule(schedule, rank, 40_000, 64, 4).operations
        far = [act for act in acts if act.is_send and act.kind == "reduce" and act.message_number >= ahead]
        awaited = [
            {(k.peer_rank, k.message_number) for k in map(acts.__getitem__, act.prerequisites) if k.kind == "copy"}
            for act in far
        ]
        assert all((act.peer_rank, act.message_number - ahead) in back for act, back in zip(far, awaited, strict=True))
        assert bool(far) == any(act.is_send and act.kind == "reduce" for act in acts)


def test_a_large_segment_does_not_starve_two_trees(in_virtual_time: InVirtualTime) -> None:
    """A transport takes shorter pieces, and what a link carries in a round trip is so many more of them."""
    rate, delay_s, names = 1e8, 0.02, [f"rank-{rank}" for rank in range(8)]
    there = NetworkAndModelSizes(racks=(), array_sizes=(), bandwidth_delay_bytes=int(2 * delay_s * rate))
    far = Network(paths=tuple(NetworkPath(source=a, target=b, delay_s=delay_s) for a, b in permutations(names, 2)))

    def seconds(segment: str) -> float:
        schedule = DoubleBinaryTree(segment=Bytes(segment)).resolve_auto_values(there).plan_transfers(8)
        done: Exchange = in_virtual_time(exchange(schedule, [np.ones(1_000_000)] * 8, rate, network=far))
        return done.seconds

    assert seconds("1MiB") == pytest.approx(seconds("64KiB"), rel=0.01)


def token_count(collective: Collective, ranks: int, messages: float) -> float:
    """Messages without a payload: one per turn of a serial sender, one per half of a swap that both wait for.

    And one per message of a parent in a tree but its last, and of the first leader to other leaders.
    """
    if isinstance(collective, PairwiseExchange):
        to_fold = ranks - 2 * fold(ranks) if fold(ranks) else 0
        return messages - 2 * fold(ranks) if collective.uses_rendezvous else to_fold
    if isinstance(collective, BinomialTree) and collective.uses_rendezvous:
        return (ranks - 1) // 2
    if isinstance(collective, HierarchicalCopyAllReduce) and collective.uses_rendezvous:
        return len(collective.rank_groups(ranks)) - 1
    return ranks - 1 if collective == ReduceToOne(senders="serial") else 0


@any_ranks
def test_nobody_in_a_ring_or_in_halving_and_doubling_sends_more_than_its_share(ranks: int) -> None:
    """Patarasuk and Yuan's bound: no all-reduce moves fewer bytes; halving and doubling meets it for powers of two."""
    size = 5040 * 16
    meeting = (
        [Ring(), HierarchicalAllReduce(), HalvingDoubling()] if not fold(ranks) else [Ring(), HierarchicalAllReduce()]
    )

    for collective in meeting:
        for rank in range(ranks):
            assert sent_by(collective, ranks, rank, size) == 4 * 2 * (ranks - 1) * size // ranks


@pytest.mark.parametrize(("racks", "size"), [(2, 2), (2, 4), (4, 2), (3, 3)])
def test_of_two_levels_a_rack_sends_others_what_a_rank_of_a_ring_would(racks: int, size: int) -> None:
    """2(G-1)/G of the vector, however many ranks it has: that is what the second level is for."""
    schedule = HierarchicalAllReduce(size=size).plan_transfers(racks * size)
    entries = 5040 * 16

    crossing = schedule.model_copy(
        update={"rounds": (tuple(t for t in schedule.transfers if t.source // size != t.target // size),)}
    )
    sent = crossing.payload_bytes_by_rank(racks * size, entries, lambda chunk: chunk)

    for rack in range(racks):
        assert sum(sent[rack * size : (rack + 1) * size]) == 2 * (racks - 1) * entries // racks


@every_collective
@any_ranks
def test_a_schedule_sums_every_chunk_once_and_tells_everybody_by_itself(collective: Collective, ranks: int) -> None:
    """Its rounds played with sets instead of numbers: who has whose summand, without the executor."""
    schedule = collective.plan_transfers(ranks)
    held = [[Counter({rank: 1}) for _ in range(len(schedule.chunk_ranges(1000)))] for rank in range(ranks)]
    everybody = Counter(range(ranks))

    for each in schedule.rounds:
        before = [list(chunks) for chunks in held]
        for source, target, first, last, does in each:
            for chunk in range(first, last):
                given = before[source][chunk]
                assert does != "copy" or given == everybody, "totals alone are copied"
                if does != "token":
                    held[target][chunk] = given + (held[target][chunk] if does == "reduce" else Counter())

    assert all(counts == everybody for chunks in held for counts in chunks)


@every_collective
@any_ranks
def test_a_message_is_named_once(collective: Collective, ranks: int) -> None:
    """The receiver tells messages of one sender apart by what they do and by their first chunk."""
    names = Counter((t.rank_pair, t.kind, t.first_chunk) for t in collective.plan_transfers(ranks).transfers)

    assert set(names.values()) <= {1}
    assert all(source != target for (source, target), _, _ in names)


TIMED = [member for member in EXAMPLES if getattr(member, "size", 2) == 2]  # groups of equal size


@pytest.mark.parametrize("collective", TIMED, ids=repr)
@pytest.mark.parametrize(("megabytes", "error"), [(1, 0.10), (10, 0.05)])
@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("rate", ["100mbit", "1gbit"])
def test_the_closed_form_is_the_time_on_the_virtual_fabric(
    collective: Collective, megabytes: int, error: float, ranks: int, rate: str, in_virtual_time: InVirtualTime
) -> None:
    """The prediction and the network of the simulation are two models; on equal links they must tell the same time."""
    size, bytes_per_s = megabytes * 250_000, goodput_bytes_per_s(Rate(rate))

    done = in_virtual_time(exchange(collective.plan_transfers(ranks), [np.ones(size, "float32")] * ranks, bytes_per_s))

    assert done.seconds == pytest.approx(
        collective.predict_run_time_s(ranks, 4 * size, 0.0, 1 / bytes_per_s), rel=error
    )


@every_collective
@pytest.mark.parametrize("ranks", [3, 5, 6, 7, 9, 16])
def test_the_closed_form_holds_for_other_numbers_of_ranks(
    collective: Collective, ranks: int, in_virtual_time: InVirtualTime
) -> None:
    """Unequal racks begin at different times and get in each other's way, which no formula counts."""
    size, rate = 500_000, 1e6

    done = in_virtual_time(exchange(collective.plan_transfers(ranks), [np.ones(size, "float32")] * ranks, rate))

    expected = collective.predict_run_time_s(ranks, 4 * size, 0.0, 1 / rate)
    assert done.seconds == pytest.approx(expected, rel=0.2 if uneven(collective, ranks) else 0.1)


def uneven(collective: Collective, ranks: int) -> bool:
    """Whether some ranks have nothing to do inside their rack, and begin before the others."""
    return bool(ranks % (getattr(collective, "size", None) or ranks))


def read(formula: str, **values: float) -> float:
    """What a formula comes to. Behind a semicolon stands what is added where n is no power of two."""
    main, _, folding = formula.split(", ", maxsplit=1)[0].partition("; ")
    text = main + (folding.split(" where")[0] if values["n"] != values["p"] else "")
    for said, meant in (("⌊lg n⌋", " f "), ("⌈lg n⌉", " c "), ("·", " "), ("α", " a "), ("β", " b ")):
        text = text.replace(said, meant)
    words = re.findall(r"[0-9]+|[a-zA-Z]|[-+/()]", text)
    times = ["*" if one not in "-+/(" and other not in "-+/)" else "" for one, other in pairwise((*words, ")"))]
    found: float = eval("".join(map("".join, zip(words, times, strict=True))), values)  # noqa: S307 - our own text
    return found


@pytest.mark.parametrize("ranks", [4, 6, 8, 12])
@pytest.mark.parametrize("rendezvous", [True, False])
@pytest.mark.parametrize(
    "kind", [RecursiveDoubling, HalvingDoubling, BinomialTree, HierarchicalAllReduce, HierarchicalCopyAllReduce]
)
def test_the_formula_says_what_the_number_beside_it_counts(
    kind: type[RendezvousCollective], rendezvous: bool, ranks: int
) -> None:
    """With tokens α counts more often than without, and a report prints both."""
    collective = kind(rendezvous=rendezvous, **({"size": 2} if issubclass(kind, RankGroupCollective) else {}))
    low = ranks.bit_length() - 1
    values = {"n": ranks, "p": 2**low, "f": low, "c": (ranks - 1).bit_length(), "g": 2, "l": 2, "G": ranks // 2}

    told = read(collective.run_time_formula, a=7.0, b=3.0, S=840.0, **values)

    assert told == pytest.approx(collective.predict_run_time_s(ranks, 840.0, 7.0, 3.0))


@every_collective
@any_ranks
def test_the_closed_form_counts_the_waits_of_the_longest_chain(collective: Collective, ranks: int) -> None:
    """α is of the formula and of the schedule: one of them alone could be wrong.

    Where ranks begin early, their first message is on its way meanwhile, and the formula counts it all the same.
    """
    schedule = collective.plan_transfers(ranks)

    waits_s = schedule.critical_path_latency_s(dict.fromkeys(schedule.rank_pairs, 2.5))

    formula_s = collective.predict_run_time_s(ranks, 0.0, 2.5, 1.0)
    assert waits_s <= formula_s if uneven(collective, ranks) else waits_s == pytest.approx(formula_s)


@every_collective
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_delays_take_as_long_as_the_formulas_alphas(
    collective: Collective, ranks: int, in_virtual_time: InVirtualTime
) -> None:
    """Of a pipeline, pieces hide some of them."""
    size, rate, delay_s = 250_000, 1e7, 0.05
    there = NetworkAndModelSizes(racks=(), array_sizes=(size,), bandwidth_delay_bytes=int(2 * delay_s * rate))
    settled = collective if hasattr(collective, "size") else collective.resolve_auto_values(there)
    vectors, schedule = [np.ones(size, "float32")] * ranks, settled.plan_transfers(ranks)
    names = [f"rank-{rank}" for rank in range(ranks)]
    far = Network(paths=tuple(NetworkPath(source=a, target=b, delay_s=delay_s) for a, b in permutations(names, 2)))

    near_s, far_s = (
        in_virtual_time(exchange(schedule, vectors, rate, network=each)).seconds for each in (Network(), far)
    )

    waits_s = collective.predict_run_time_s(ranks, 0.0, delay_s, 0.0)
    assert far_s - near_s <= waits_s * 1.001
    assert far_s - near_s == pytest.approx(waits_s, rel=0.02) or schedule.is_pipelined or uneven(collective, ranks)


@pytest.mark.parametrize(
    ("collective", "error"), [(Ring(), 0.01), (Ring(stride=3), 0.01), (DoubleBinaryTree(), 0.10)], ids=str
)
@pytest.mark.parametrize("ranks", [2, 4, 5, 8, 16])
@pytest.mark.parametrize("delay_s", [0.001, 0.02])
@pytest.mark.parametrize(("entries", "piece_bytes"), [(250_000, 64 << 10), (1_000_000, 64 << 10), (1_000_000, 1 << 20)])
def test_pieces_hide_of_delays_what_the_forms_say(
    collective: Collective,
    error: float,
    ranks: int,
    delay_s: float,
    entries: int,
    piece_bytes: int,
    in_virtual_time: InVirtualTime,
) -> None:
    """Links of 1 Gbit/s: from ways so short that links are never idle to such long ones that they nearly always are."""
    rate, names = 1.25e8, [f"rank-{rank}" for rank in range(ranks)]
    far = Network(paths=tuple(NetworkPath(source=a, target=b, delay_s=delay_s) for a, b in permutations(names, 2)))
    links = dict.fromkeys(names, 1 / rate)
    cost = CostModel(
        workers=tuple(names),
        entries=entries,
        dtype="float32",
        message_lengths=MessageSizeLimits(piece_bytes, MAX_FLUID_MESSAGE_BYTES),
        uplink_s_per_byte=links,
        downlink_s_per_byte=links,
        network=far,
        compute_s=0.0,
    )
    settled = collective.resolve_auto_values(
        NetworkAndModelSizes(racks=(), array_sizes=(entries,), bandwidth_delay_bytes=int(2 * delay_s * rate))
    )
    schedule, vectors = settled.plan_transfers(ranks), [np.ones(entries, "float32")] * ranks

    taken_s = in_virtual_time(exchange(schedule, vectors, rate, piece_bytes=piece_bytes, network=far)).seconds

    predicted = AllReduce(collective=settled).predict_step_time(cost)
    assert taken_s == pytest.approx(predicted.exchange_s, rel=error)
    hides = "less the part of α that pieces hide" in predicted.formula
    assert hides == (
        schedule.max_message_bytes(4 * entries, piece_bytes, MAX_FLUID_MESSAGE_BYTES) * schedule.chunk_count
        < 4 * entries
    )
    assert (predicted.exchange_s < collective.predict_run_time_s(ranks, 4 * entries, delay_s, 1 / rate)) == hides


@st.composite
def cut(draw: st.DrawFn) -> RankGroups:
    """Any ranks in any groups, of any sizes."""
    ranks = draw(st.permutations(range(draw(st.integers(2, 11)))))
    ends = sorted(draw(st.sets(st.integers(1, len(ranks) - 1), max_size=4)))
    return tuple(tuple(ranks[start:stop]) for start, stop in pairwise((0, *ends, len(ranks))))


@pytest.mark.parametrize("rendezvous", [True, False])
@pytest.mark.parametrize("kind", [HierarchicalAllReduce, HierarchicalCopyAllReduce])
@settings(deadline=None, max_examples=10)
@given(groups=cut(), entries=st.integers(1, 60))
def test_ranks_that_stand_anywhere_in_groups_of_any_size_sum_and_wait_as_the_schedule_says(
    kind: type[HierarchicalAllReduce | HierarchicalCopyAllReduce],
    rendezvous: bool,
    groups: RankGroups,
    entries: int,
    in_virtual_time: InVirtualTime,
) -> None:
    """Racks are seldom equal, and a plan takes its α from the schedule, not from the formula for equal ones."""
    ranks = sum(map(len, groups))
    names = [f"rank-{rank}" for rank in range(ranks)]
    far = Network(paths=tuple(NetworkPath(source=a, target=b, delay_s=0.5) for a, b in permutations(names, 2)))
    vectors, schedule = whole(ranks, 8 * entries), kind(groups=groups, rendezvous=rendezvous).plan_transfers(ranks)

    done = in_virtual_time(exchange(schedule, vectors, piece_bytes=256, network=far))

    assert replicas(done) == 1
    assert (done.vectors[0] == np.sum(vectors, axis=0)).all()
    assert done.seconds == pytest.approx(schedule.critical_path_latency_s(dict.fromkeys(schedule.rank_pairs, 0.5)))


@every_collective
@settings(deadline=None, max_examples=20)
@given(ranks=st.integers(1, 17), entries=st.integers(1, 10**7), alpha_s=st.floats(0, 1), beta_s=st.floats(1e-9, 1e-6))
def test_a_strategy_predicts_its_collectives_closed_form_on_equal_links(
    collective: Collective, ranks: int, entries: int, alpha_s: float, beta_s: float
) -> None:
    """What is computed from the schedule for any network is the textbook's formula on the textbook's network."""
    ranks = next(count for count in range(ranks, 33) if not uneven(collective, count))
    names = tuple(f"worker-{rank}" for rank in range(ranks))
    links = dict.fromkeys(names, beta_s)
    cost = CostModel(
        workers=names,
        entries=entries,
        dtype="float32",
        alpha_s=alpha_s,
        uplink_s_per_byte=links,
        downlink_s_per_byte=links,
        compute_s=0.0,
    )

    predicted = AllReduce(collective=collective).predict_step_time(cost)

    assert predicted.exchange_s == pytest.approx(collective.predict_run_time_s(ranks, 4 * entries, alpha_s, beta_s))


@every_collective
def test_one_rank_alone_exchanges_nothing_and_takes_no_time(
    collective: Collective, in_virtual_time: InVirtualTime
) -> None:
    """Speed-up is measured against one worker, which must not pay for an exchange with itself."""
    (vector,) = normal(1, 64, "float32")

    done = in_virtual_time(exchange(collective.plan_transfers(1), [vector], bytes_per_s=1.0, compressor=Fp16()))

    assert done.vectors[0].tobytes() == vector.tobytes()
    assert (done.traffic[0].messages, done.seconds, collective.predict_run_time_s(1, 1e6, 1.0, 1.0)) == (0, 0.0, 0.0)


@every_collective
def test_sixty_four_ranks_end_with_the_sum(collective: Collective, in_virtual_time: InVirtualTime) -> None:
    """Large clusters are what virtual time is for."""
    vectors = whole(64, 130, "float32")

    done = in_virtual_time(exchange(collective.plan_transfers(64), vectors))

    assert (done.vectors[0] == np.sum(vectors, axis=0)).all()
    assert replicas(done) == 1


def test_a_rings_slowest_link_sets_the_time(in_virtual_time: InVirtualTime) -> None:
    """Everything passes through every rank: a ring is as fast as its slowest member, which is why stragglers hurt."""

    async def with_a_slow_rank() -> float:
        names = [f"rank-{rank}" for rank in range(4)]
        uplinks, downlinks = ({name: RateLimiter(1e6) for name in names} for _ in range(2))
        uplinks["rank-2"] = RateLimiter(2.5e5)
        fabric = VirtualFabric(uplinks, downlinks, timeout_s=1e6)
        vectors = normal(4, 8 * MAX_FLUID_MESSAGE_BYTES // 4, "float32")
        await asyncio.gather(
            *(
                all_reduce(fabric.make_transport(name), names, rank, Ring().plan_transfers(4), 0, vectors[rank])
                for rank, name in enumerate(names)
            )
        )
        return asyncio.get_running_loop().time()

    seconds = in_virtual_time(with_a_slow_rank())

    slow = Ring().predict_run_time_s(4, 8 * MAX_FLUID_MESSAGE_BYTES, 0.0, 1 / 2.5e5)
    assert seconds == pytest.approx(slow) or slow < seconds <= 1.15 * slow  # no idle moment, but for rounding
