"""Tests of every collective: the sum, bitwise equal results, and the predicted bytes and seconds."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise, permutations
from math import inf
from typing import Any, TypeAlias, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from services.cluster.links.fluid_link import MAX_FLUID_MESSAGE_BYTES, RateLimiter, to_goodput_bytes_per_s
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
from services.collectives.execution.rank_schedule import RankSendOrReceive, build_rank_schedule
from services.collectives.folding import ranks_after_folding
from services.collectives.grouped import RankGroupCollective, RankGroups
from services.collectives.pairwise_exchange import PairwiseExchangeCollective
from services.collectives.rendezvous import OptionalRendezvousCollective
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
class AllReduceResult:
    """Result of one all-reduce."""

    vectors: list[HostArray]  # by rank, afterwards
    traffic: list[SentTraffic]  # by rank
    seconds: float


async def run_all_reduce(
    schedule: TransferSchedule,
    vectors: list[HostArray],
    bytes_per_s: float = inf,
    *,
    piece_bytes: int = MAX_FLUID_MESSAGE_BYTES,
    compressor: Compressor = UNCOMPRESSED,
    mailbox: type[Mailbox] = Mailbox,
    network: Network = EMPTY_NETWORK,
) -> AllReduceResult:
    """Run an all-reduce of all ranks on links of equal rate."""
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
    return AllReduceResult(results, [transport.traffic for transport in transports], asyncio.get_running_loop().time())


def normal_vectors(ranks: int, size: int, dtype: str, seed: int = 0) -> list[HostArray]:
    """Return one vector of normally distributed numbers per rank."""
    return list(np.random.default_rng(seed).standard_normal((ranks, size)).astype(dtype))


def integer_vectors(ranks: int, size: int, dtype: str = "float64", seed: int = 0) -> list[HostArray]:
    """Return one vector of small whole numbers per rank, whose sums are exact."""
    return [np.round(20 * vector) for vector in normal_vectors(ranks, size, dtype, seed)]


def count_distinct_results(result: AllReduceResult) -> int:
    """Return the number of bitwise different results."""
    return len({vector.tobytes() for vector in result.vectors})


def planned_bytes(collective: Collective, ranks: int, rank: int, size: int) -> int:
    """Return the bytes that a rank sends according to the plan, for a vector of `size` fp32 entries."""
    return AllReduce(collective=collective).sent_bytes_per_step(ranks, size, "float32").workers[rank]


def test_examples_table_contains_every_collective() -> None:
    """A collective that is not in the table is not tested; `auto` is resolved to another one in every plan."""
    union, _ = get_args(AnyCollective)

    assert {type(collective) for collective in EXAMPLES} == set(get_args(union)) - {AutoCollective}


@pytest.mark.parametrize("collective", [*EXAMPLES, AutoCollective()], ids=repr)
def test_collective_survives_a_json_round_trip(collective: Collective) -> None:
    """The record of a run has the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyCollective).validate_json(collective.model_dump_json()) == collective


@every_collective
def test_schedule_survives_a_json_round_trip(collective: Collective) -> None:
    """Nodes read it from their plan, and must find the same rounds there."""
    schedule = collective.plan_transfers(6)

    assert TransferSchedule.model_validate_json(schedule.model_dump_json()) == schedule


@every_collective
@any_ranks
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_rank_has_bitwise_the_same_sum(
    collective: Collective, ranks: int, dtype: str, in_virtual_time: InVirtualTime
) -> None:
    """Replicas that differ in one bit would drift apart."""
    for size in SIZES:
        vectors = normal_vectors(ranks, size, dtype)

        result = in_virtual_time(run_all_reduce(collective.plan_transfers(ranks), vectors))

        tolerance = ranks * np.finfo(dtype).eps * sum(abs(vector) for vector in vectors)
        assert (abs(result.vectors[0] - np.sum(vectors, axis=0, dtype="float64")) <= tolerance).all()
        assert count_distinct_results(result) == 1
        assert result.vectors[0].dtype == np.dtype(dtype)


@every_collective
@settings(deadline=None, max_examples=30)
@given(ranks=st.sampled_from(RANKS), size=st.integers(0, 300), entries=st.integers(1, 80), seed=st.integers(0, 99))
def test_integers_are_summed_exactly_in_pieces_of_any_size(
    collective: Collective, ranks: int, size: int, entries: int, seed: int, in_virtual_time: InVirtualTime
) -> None:
    """Without rounding, a chunk that is added twice or left out is visible."""
    vectors = integer_vectors(ranks, size, seed=seed)

    result = in_virtual_time(run_all_reduce(collective.plan_transfers(ranks), vectors, piece_bytes=8 * entries))

    for vector in result.vectors:
        assert (vector == np.sum(vectors, axis=0)).all()


@every_collective
@settings(deadline=None, max_examples=20)
@given(ranks=st.sampled_from(RANKS), size=st.integers(1, 300), seed=st.integers(0, 99), late_s=st.floats(0, 0.1))
def test_every_summand_counts_once_with_duplicate_and_reordered_messages(
    collective: Collective, ranks: int, size: int, seed: int, late_s: float, in_virtual_time: InVirtualTime
) -> None:
    """A network may duplicate and reorder messages; the order of additions, and so the bits, must not change."""
    vectors, schedule = normal_vectors(ranks, size, "float32", seed), collective.plan_transfers(ranks)

    expected = in_virtual_time(run_all_reduce(schedule, vectors, 1e4, piece_bytes=64))
    unreliable = make_unreliable_mailbox(late_s)
    result = in_virtual_time(run_all_reduce(schedule, vectors, 1e4, piece_bytes=64, mailbox=unreliable))

    assert [vector.tobytes() for vector in result.vectors] == [vector.tobytes() for vector in expected.vectors]


def make_unreliable_mailbox(late_s: float) -> type[Mailbox]:
    """Return a mailbox class whose messages arrive up to `late_s` late, and three times."""

    class UnreliableMailbox(Mailbox):
        def deliver(self, source: str, message: Message) -> None:
            chance = random.Random(repr((source, message.tag)))
            for delay in (late_s * chance.random(), chance.random(), chance.random()):
                asyncio.get_running_loop().call_later(delay, super().deliver, source, message)

    return UnreliableMailbox


@every_collective
@any_ranks
def test_replicas_are_bitwise_equal_with_lossy_compression(
    collective: Collective, ranks: int, in_virtual_time: InVirtualTime
) -> None:
    """A rank that keeps a value which it also sent must keep the rounded value that the others received."""
    vectors = normal_vectors(ranks, 501, "float32")

    schedule = collective.plan_transfers(ranks)
    result = in_virtual_time(run_all_reduce(schedule, vectors, piece_bytes=128, compressor=Fp16()))

    hops = 2 * ranks  # maximum number of roundings of a sum
    tolerance = hops * 2.0**-11 * sum(abs(vector) for vector in vectors)
    assert (abs(result.vectors[0] - np.sum(vectors, axis=0)) <= tolerance).all()
    assert count_distinct_results(result) == 1


@every_collective
@any_ranks
@pytest.mark.parametrize("size", [0, *SIZES, 3 * MAX_FLUID_MESSAGE_BYTES // 4 + 5])
def test_bytes_and_messages_equal_those_of_the_schedule(
    collective: Collective, ranks: int, size: int, in_virtual_time: InVirtualTime
) -> None:
    """Bytes per node are predicted before a run and compared with its network interface afterwards."""
    schedule = collective.plan_transfers(ranks)

    length = schedule.max_message_bytes(4 * size, MAX_FLUID_MESSAGE_BYTES, MAX_FLUID_MESSAGE_BYTES) // 4

    result = in_virtual_time(run_all_reduce(schedule, normal_vectors(ranks, size, "float32")))

    for rank, traffic in enumerate(result.traffic):
        assert traffic.payload_bytes == planned_bytes(collective, ranks, rank, size)
        assert traffic.messages == sum(
            operation.is_send for operation in build_rank_schedule(schedule, rank, size, length, 4).operations
        )
        assert traffic.messages == schedule.count_transfers_from(rank) or not 64 <= size <= 1001, (
            "no message had to be split or omitted"
        )
        assert {int(name.removeprefix("rank-")) for name in traffic.payload_bytes_by_peer} <= schedule.target_ranks(
            rank
        )


def lg(ranks: int) -> int:
    """Return ⌊lg n⌋."""
    return ranks.bit_length() - 1


def folded_count(ranks: int) -> int:
    """Return the number of ranks beyond a power of two."""
    return ranks - (1 << lg(ranks))


FORMULAS: dict[str, tuple[Callable[[int], float], Callable[[int], float]]] = {
    # kind -> by n: vectors that all ranks together send; messages that they send for it
    "ring": (lambda n: 2 * (n - 1), lambda n: 2 * n * (n - 1)),
    "reduce_to_one": (lambda n: 2 * (n - 1), lambda n: 2 * (n - 1)),
    "hierarchical_copy": (lambda n: 2 * (n - 1), lambda n: 2 * (n - 1)),
    "tree": (lambda n: 2 * (n - 1), lambda n: 2 * (n - 1)),
    "double_tree": (lambda n: 2 * (n - 1), lambda n: 4 * (n - 1)),
    "recursive_doubling": (
        lambda n: (n - folded_count(n)) * lg(n) + 2 * folded_count(n),
        lambda n: (n - folded_count(n)) * lg(n) + 2 * folded_count(n),
    ),
    "halving_doubling": (
        lambda n: 2 * (n - folded_count(n) - 1) + 2 * folded_count(n),
        lambda n: 2 * (n - folded_count(n)) * lg(n) + 2 * folded_count(n),
    ),
}


@pytest.mark.parametrize("collective", [member for member in EXAMPLES if member.kind in FORMULAS], ids=repr)
@any_ranks
def test_bytes_and_messages_equal_those_of_the_literature(collective: Collective, ranks: int) -> None:
    """A schedule that moves more bytes than its algorithm needs is a different algorithm."""
    size, schedule = 5040 * 16, collective.plan_transfers(ranks)  # divisible by every number of ranks
    vectors, messages = (formula(ranks) for formula in FORMULAS[collective.kind])
    tokens = sum(transfer.kind == "token" for transfer in schedule.transfers_of_all_rounds)

    assert tokens == token_count(collective, ranks, messages)
    assert sum(planned_bytes(collective, ranks, rank, size) for rank in range(ranks)) == 4 * size * vectors
    assert sum(schedule.count_transfers_from(rank) for rank in range(ranks)) == messages + tokens


@pytest.mark.parametrize("collective", [RecursiveDoubling(), HalvingDoubling()], ids=repr)
@pytest.mark.parametrize("ranks", [2, 4, 7, 8])
def test_partners_swap_only_when_both_are_ready(collective: Collective, ranks: int) -> None:
    """Otherwise an early rank would use the link of a late one, and delays would amplify each other."""
    for rank in ranks_after_folding(ranks):
        operations = build_rank_schedule(collective.plan_transfers(ranks), rank, 64 * ranks, 64, 4).operations
        folded_partners = {rank - 1, rank + 1} - set(ranks_after_folding(ranks))
        for number, operation in enumerate(operations):
            if operation.is_send and operation.kind == "token":
                receives = {k for k, earlier in enumerate(operations[:number]) if not earlier.is_send}
                assert receives <= all_prerequisites(operations, number)
            elif operation.is_send and operation.peer_rank not in folded_partners:
                assert any(
                    operations[k].kind == "token" and operations[k].peer_rank == operation.peer_rank
                    for k in operation.prerequisites
                )


@pytest.mark.parametrize("ranks", [4, 6, 7, 9])
@pytest.mark.parametrize("size", [2, 3])
def test_hierarchical_rank_sends_to_a_new_peer_only_when_that_peer_has_received_everything_before(
    ranks: int, size: int
) -> None:
    """A group that is ahead would otherwise use a downlink through which members of the other group still send."""
    schedule = HierarchicalAllReduce(size=size).plan_transfers(ranks)
    for rank in range(ranks):
        operations = build_rank_schedule(schedule, rank, 64 * ranks, 64, 4).operations
        last_peers, last_send = {transfer.target for transfer in schedule.rounds[0] if transfer.source == rank}, -1
        for is_data_send, numbers in groupby(range(len(operations)), partial(is_send_of_data, operations)):
            for number in (group := list(numbers)):
                operation, earlier = operations[number], all_prerequisites(operations, number)
                if operation.is_send and operation.kind == "token":
                    assert {k for k in range(number) if not operations[k].is_send} <= earlier
                elif is_data_send and operation.peer_rank not in last_peers:
                    later_receives = (operations[k] for k in earlier if k > last_send and not operations[k].is_send)
                    assert any(k.kind == "token" and k.peer_rank == operation.peer_rank for k in later_receives)
            if is_data_send:
                last_peers, last_send = {operations[k].peer_rank for k in group}, group[-1]


@pytest.mark.parametrize(
    "collective", [BinomialTree(), HierarchicalCopyAllReduce(size=2), HierarchicalAllReduce(size=2)], ids=repr
)
@pytest.mark.parametrize("ranks", [4, 7, 8])
def test_rank_sends_to_the_next_peer_after_the_previous_one_has_received_all(
    collective: Collective, ranks: int
) -> None:
    """The peer that is served first, because most ranks depend on it, would else share the link with the next one.

    Other chunks that arrive in the meantime may have been sent earlier and confirm nothing.
    """
    peer_changes = 0
    for rank in range(ranks):
        operations = build_rank_schedule(collective.plan_transfers(ranks), rank, 64 * ranks, 64, 4).operations
        for number, operation in enumerate(operations):
            if operation.is_send and operation.kind != "token":
                finished = all_prerequisites(operations, number)
                sends = [k for k in sorted(finished) if operations[k].is_send and operations[k].kind != "token"]
                last_sends = {operations[k].peer_rank: k for k in sends}
                previous = {peer: k for peer, k in last_sends.items() if peer != operation.peer_rank}
                peer_changes += len(previous)
                for peer, sent in previous.items():
                    later = {k for k in finished if k > sent and operations[k].peer_rank == peer}
                    received = {k for k in later if not operations[k].is_send}
                    assert any(operations[k].first_chunk == operations[sent].first_chunk for k in received)
    assert peer_changes


def all_prerequisites(operations: Sequence[RankSendOrReceive], number: int) -> set[int]:
    """Return the numbers of all operations that are finished when this one begins."""
    finished: set[int] = set()
    awaited = set(operations[number].prerequisites)
    while awaited:
        finished |= awaited
        awaited = {k for earlier in awaited for k in operations[earlier].prerequisites} - finished
    return finished


def is_send_of_data(operations: Sequence[RankSendOrReceive], number: int) -> bool:
    """Return whether an operation sends a message that is not a token."""
    return operations[number].is_send and operations[number].kind != "token"


@pytest.mark.parametrize("round_trip", [None, "1000B"])
@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 9])
def test_sends_of_two_trees_stay_within_a_window_of_the_received_totals(ranks: int, round_trip: str | None) -> None:
    """A leaf has no inputs to wait for: unlimited, its partial sums would fill the port that other messages need."""
    schedule = DoubleBinaryTree(round_trip=round_trip and Bytes(round_trip)).plan_transfers(ranks)
    window = schedule.max_pieces_in_flight(256)
    assert window == 4 * (ranks.bit_length() - 1) + (-(-1000 * (ranks.bit_length() - 1) // 256) if round_trip else 0)
    for rank in range(ranks):
        operations = build_rank_schedule(schedule, rank, 40_000, 64, 4).operations
        late_sends = [
            operation
            for operation in operations
            if operation.is_send and operation.kind == "reduce" and operation.message_number >= window
        ]
        awaited = [
            {
                (k.peer_rank, k.message_number)
                for k in map(operations.__getitem__, operation.prerequisites)
                if k.kind == "copy"
            }
            for operation in late_sends
        ]
        assert all(
            (operation.peer_rank, operation.message_number - window) in copies
            for operation, copies in zip(late_sends, awaited, strict=True)
        )
        assert bool(late_sends) == any(operation.is_send and operation.kind == "reduce" for operation in operations)


def test_large_segment_does_not_slow_down_two_trees(in_virtual_time: InVirtualTime) -> None:
    """A transport uses shorter pieces, so a link carries more of them in a round trip."""
    rate, delay_s, names = 1e8, 0.02, [f"rank-{rank}" for rank in range(8)]
    sizes = NetworkAndModelSizes(racks=(), array_sizes=(), bandwidth_delay_bytes=int(2 * delay_s * rate))
    far = Network(paths=tuple(NetworkPath(source=a, target=b, delay_s=delay_s) for a, b in permutations(names, 2)))

    def seconds(segment: str) -> float:
        schedule = DoubleBinaryTree(segment=Bytes(segment)).fill_in_unset_fields(sizes).plan_transfers(8)
        result: AllReduceResult = in_virtual_time(run_all_reduce(schedule, [np.ones(1_000_000)] * 8, rate, network=far))
        return result.seconds

    assert seconds("1MiB") == pytest.approx(seconds("64KiB"), rel=0.01)


def token_count(collective: Collective, ranks: int, messages: float) -> float:
    """Return the messages without a payload: one per turn of a serial sender, one per half of a swap with rendezvous.

    In a tree also one per message of a parent but its last, and in a hierarchy those of the first leader to the others.
    """
    if isinstance(collective, PairwiseExchangeCollective):
        to_fold = ranks - 2 * folded_count(ranks) if folded_count(ranks) else 0
        return messages - 2 * folded_count(ranks) if collective.ranks_wait_for_tokens else to_fold
    if isinstance(collective, BinomialTree) and collective.ranks_wait_for_tokens:
        return (ranks - 1) // 2
    if isinstance(collective, HierarchicalCopyAllReduce) and collective.ranks_wait_for_tokens:
        return len(collective.rank_groups(ranks)) - 1
    return ranks - 1 if collective == ReduceToOne(senders="serial") else 0


@any_ranks
def test_ring_and_halving_doubling_send_the_minimum_of_bytes(ranks: int) -> None:
    """Patarasuk and Yuan's bound: no all-reduce sends fewer bytes; halving and doubling meets it for powers of two."""
    size = 5040 * 16
    optimal = (
        [Ring(), HierarchicalAllReduce(), HalvingDoubling()]
        if not folded_count(ranks)
        else [Ring(), HierarchicalAllReduce()]
    )

    for collective in optimal:
        for rank in range(ranks):
            assert planned_bytes(collective, ranks, rank, size) == 4 * 2 * (ranks - 1) * size // ranks


@pytest.mark.parametrize(("racks", "size"), [(2, 2), (2, 4), (4, 2), (3, 3)])
def test_rack_in_a_hierarchy_sends_as_many_bytes_as_a_rank_of_a_ring(racks: int, size: int) -> None:
    """2(G-1)/G of the vector, however many ranks the rack has: this is the purpose of the second level."""
    schedule = HierarchicalAllReduce(size=size).plan_transfers(racks * size)
    entries = 5040 * 16

    inter_rack_schedule = schedule.model_copy(
        update={"rounds": (tuple(t for t in schedule.transfers_of_all_rounds if t.source // size != t.target // size),)}
    )
    sent = inter_rack_schedule.payload_bytes_by_rank(racks * size, entries, lambda chunk: chunk)

    for rack in range(racks):
        assert sum(sent[rack * size : (rack + 1) * size]) == 2 * (racks - 1) * entries // racks


@every_collective
@any_ranks
def test_schedule_sums_every_chunk_once_and_distributes_it_to_all_ranks(collective: Collective, ranks: int) -> None:
    """Runs the rounds on sets of summands instead of numbers, without the executor."""
    schedule = collective.plan_transfers(ranks)
    summands = [[Counter({rank: 1}) for _ in range(len(schedule.chunk_ranges(1000)))] for rank in range(ranks)]
    complete = Counter(range(ranks))

    for transfers in schedule.rounds:
        before = [list(chunks) for chunks in summands]
        for source, target, first, last, kind in transfers:
            for chunk in range(first, last):
                sent = before[source][chunk]
                assert kind != "copy" or sent == complete, "only complete sums are copied"
                if kind != "token":
                    summands[target][chunk] = sent + (summands[target][chunk] if kind == "reduce" else Counter())

    assert all(counts == complete for chunks in summands for counts in chunks)


@every_collective
@any_ranks
def test_every_message_of_a_rank_pair_has_a_unique_key(collective: Collective, ranks: int) -> None:
    """The receiver identifies the messages of a sender by their kind, first chunk and number."""
    schedule = collective.plan_transfers(ranks)
    for rank in range(ranks):
        keys = Counter(
            (operation.is_send, operation.peer_rank, operation.kind, operation.first_chunk, operation.message_number)
            for operation in build_rank_schedule(schedule, rank, 64 * ranks, 64, 4).operations
        )
        assert set(keys.values()) <= {1}
    assert all(source != target for source, target in schedule.sending_rank_pairs)


TIMED = [member for member in EXAMPLES if getattr(member, "size", 2) == 2]  # groups of equal size


@pytest.mark.parametrize("collective", TIMED, ids=repr)
@pytest.mark.parametrize(("megabytes", "error"), [(1, 0.10), (10, 0.05)])
@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("rate", ["100mbit", "1gbit"])
def test_closed_form_equals_the_time_on_the_virtual_fabric(
    collective: Collective, megabytes: int, error: float, ranks: int, rate: str, in_virtual_time: InVirtualTime
) -> None:
    """The prediction and the simulated network are two models; on equal links they must give the same time."""
    size, bytes_per_s = megabytes * 250_000, to_goodput_bytes_per_s(Rate(rate))

    result = in_virtual_time(
        run_all_reduce(collective.plan_transfers(ranks), [np.ones(size, "float32")] * ranks, bytes_per_s)
    )

    assert result.seconds == pytest.approx(
        collective.all_reduce_time_s(ranks, 4 * size, 0.0, 1 / bytes_per_s), rel=error
    )


@every_collective
@pytest.mark.parametrize("ranks", [3, 5, 6, 7, 9, 16])
def test_closed_form_holds_for_other_numbers_of_ranks(
    collective: Collective, ranks: int, in_virtual_time: InVirtualTime
) -> None:
    """Racks of unequal size begin at different times and delay each other, which no formula counts."""
    size, rate = 500_000, 1e6

    result = in_virtual_time(run_all_reduce(collective.plan_transfers(ranks), [np.ones(size, "float32")] * ranks, rate))

    expected = collective.all_reduce_time_s(ranks, 4 * size, 0.0, 1 / rate)
    assert result.seconds == pytest.approx(expected, rel=0.2 if has_unequal_groups(collective, ranks) else 0.1)


def has_unequal_groups(collective: Collective, ranks: int) -> bool:
    """Return whether some ranks have no transfers inside their rack, and begin before the others."""
    return bool(ranks % (getattr(collective, "size", None) or ranks))


def evaluate_formula(formula: str, **values: float) -> float:
    """Return the value of a formula. The part after a semicolon is added if n is no power of two."""
    main, _, folding = formula.split(", ", maxsplit=1)[0].partition("; ")
    text = main + (folding.split(" where")[0] if values["n"] != values["p"] else "")
    for symbol, name in (("⌊lg n⌋", " f "), ("⌈lg n⌉", " c "), ("·", " "), ("α", " a "), ("β", " b ")):
        text = text.replace(symbol, name)
    words = re.findall(r"[0-9]+|[a-zA-Z]|[-+/()]", text)
    times = ["*" if word not in "-+/(" and after not in "-+/)" else "" for word, after in pairwise((*words, ")"))]
    value: float = eval("".join(map("".join, zip(words, times, strict=True))), values)  # noqa: S307 - our own text
    return value


@pytest.mark.parametrize("ranks", [4, 6, 8, 12])
@pytest.mark.parametrize("rendezvous", [True, False])
@pytest.mark.parametrize(
    "kind", [RecursiveDoubling, HalvingDoubling, BinomialTree, HierarchicalAllReduce, HierarchicalCopyAllReduce]
)
def test_printed_formula_has_the_value_of_the_prediction(
    kind: type[OptionalRendezvousCollective], rendezvous: bool, ranks: int
) -> None:
    """With rendezvous tokens α counts more often than without, and a report prints both the formula and its value."""
    collective = kind(rendezvous=rendezvous, **({"size": 2} if issubclass(kind, RankGroupCollective) else {}))
    low = ranks.bit_length() - 1
    values = {"n": ranks, "p": 2**low, "f": low, "c": (ranks - 1).bit_length(), "g": 2, "l": 2, "G": ranks // 2}

    value = evaluate_formula(collective.all_reduce_time_formula, a=7.0, b=3.0, S=840.0, **values)

    assert value == pytest.approx(collective.all_reduce_time_s(ranks, 840.0, 7.0, 3.0))


@every_collective
@any_ranks
def test_closed_form_counts_the_latency_of_the_longest_chain(collective: Collective, ranks: int) -> None:
    """The formula and the schedule each determine how often α counts: one of them alone could be wrong.

    Where ranks begin early, their first message is sent in the meantime; the formula counts it nevertheless.
    """
    schedule = collective.plan_transfers(ranks)

    latency_s = schedule.critical_path_latency_s(dict.fromkeys(schedule.sending_rank_pairs, 2.5))

    formula_s = collective.all_reduce_time_s(ranks, 0.0, 2.5, 1.0)
    assert latency_s <= formula_s if has_unequal_groups(collective, ranks) else latency_s == pytest.approx(formula_s)


@every_collective
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_link_delays_take_as_long_as_the_latency_terms_of_the_formula(
    collective: Collective, ranks: int, in_virtual_time: InVirtualTime
) -> None:
    """In a pipeline, pieces hide some of the delays."""
    size, rate, delay_s = 250_000, 1e7, 0.05
    sizes = NetworkAndModelSizes(racks=(), array_sizes=(size,), bandwidth_delay_bytes=int(2 * delay_s * rate))
    resolved = collective if hasattr(collective, "size") else collective.fill_in_unset_fields(sizes)
    vectors, schedule = [np.ones(size, "float32")] * ranks, resolved.plan_transfers(ranks)
    names = [f"rank-{rank}" for rank in range(ranks)]
    far = Network(paths=tuple(NetworkPath(source=a, target=b, delay_s=delay_s) for a, b in permutations(names, 2)))

    near_s, far_s = (
        in_virtual_time(run_all_reduce(schedule, vectors, rate, network=network)).seconds
        for network in (Network(), far)
    )

    latency_s = collective.all_reduce_time_s(ranks, 0.0, delay_s, 0.0)
    assert far_s - near_s <= latency_s * 1.001
    is_inexact = schedule.is_pipelined or has_unequal_groups(collective, ranks)
    assert far_s - near_s == pytest.approx(latency_s, rel=0.02) or is_inexact


@pytest.mark.parametrize(
    ("collective", "error"), [(Ring(), 0.01), (Ring(stride=3), 0.01), (DoubleBinaryTree(), 0.10)], ids=str
)
@pytest.mark.parametrize("ranks", [2, 4, 5, 8, 16])
@pytest.mark.parametrize("delay_s", [0.001, 0.02])
@pytest.mark.parametrize(("entries", "piece_bytes"), [(250_000, 64 << 10), (1_000_000, 64 << 10), (1_000_000, 1 << 20)])
def test_pieces_hide_as_much_delay_as_the_closed_forms_predict(
    collective: Collective,
    error: float,
    ranks: int,
    delay_s: float,
    entries: int,
    piece_bytes: int,
    in_virtual_time: InVirtualTime,
) -> None:
    """Links of 1 Gbit/s: from delays so short that links are never idle to delays that leave them mostly idle."""
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
    resolved = collective.fill_in_unset_fields(
        NetworkAndModelSizes(racks=(), array_sizes=(entries,), bandwidth_delay_bytes=int(2 * delay_s * rate))
    )
    schedule, vectors = resolved.plan_transfers(ranks), [np.ones(entries, "float32")] * ranks

    actual_s = in_virtual_time(run_all_reduce(schedule, vectors, rate, piece_bytes=piece_bytes, network=far)).seconds

    predicted = AllReduce(collective=resolved).predict_step_time(cost)
    assert actual_s == pytest.approx(predicted.exchange_s, rel=error)
    hides_delay = "less the part of α that pieces hide" in predicted.formula
    assert hides_delay == (
        schedule.max_message_bytes(4 * entries, piece_bytes, MAX_FLUID_MESSAGE_BYTES) * schedule.chunk_count
        < 4 * entries
    )
    assert (predicted.exchange_s < collective.all_reduce_time_s(ranks, 4 * entries, delay_s, 1 / rate)) == hides_delay


@st.composite
def rank_groups(draw: st.DrawFn) -> RankGroups:
    """Draw groups of any sizes, with the ranks in any order."""
    ranks = draw(st.permutations(range(draw(st.integers(2, 11)))))
    ends = sorted(draw(st.sets(st.integers(1, len(ranks) - 1), max_size=4)))
    return tuple(tuple(ranks[start:stop]) for start, stop in pairwise((0, *ends, len(ranks))))


@pytest.mark.parametrize("rendezvous", [True, False])
@pytest.mark.parametrize("kind", [HierarchicalAllReduce, HierarchicalCopyAllReduce])
@settings(deadline=None, max_examples=10)
@given(groups=rank_groups(), entries=st.integers(1, 60))
def test_sum_and_latency_are_right_for_groups_of_any_size_and_order(
    kind: type[HierarchicalAllReduce | HierarchicalCopyAllReduce],
    rendezvous: bool,
    groups: RankGroups,
    entries: int,
    in_virtual_time: InVirtualTime,
) -> None:
    """Racks are seldom equal, and a plan takes α from the schedule, not from the formula for equal racks."""
    ranks = sum(map(len, groups))
    names = [f"rank-{rank}" for rank in range(ranks)]
    far = Network(paths=tuple(NetworkPath(source=a, target=b, delay_s=0.5) for a, b in permutations(names, 2)))
    schedule = kind(groups=groups, rendezvous=rendezvous).plan_transfers(ranks)
    vectors = integer_vectors(ranks, 8 * entries)

    result = in_virtual_time(run_all_reduce(schedule, vectors, piece_bytes=256, network=far))

    assert count_distinct_results(result) == 1
    assert (result.vectors[0] == np.sum(vectors, axis=0)).all()
    assert result.seconds == pytest.approx(
        schedule.critical_path_latency_s(dict.fromkeys(schedule.sending_rank_pairs, 0.5))
    )


@every_collective
@settings(deadline=None, max_examples=20)
@given(ranks=st.integers(1, 17), entries=st.integers(1, 10**7), alpha_s=st.floats(0, 1), beta_s=st.floats(1e-9, 1e-6))
def test_strategy_predicts_the_closed_form_of_its_collective_on_equal_links(
    collective: Collective, ranks: int, entries: int, alpha_s: float, beta_s: float
) -> None:
    """The prediction from the schedule holds for any network; on equal links it equals the formula of the textbook."""
    ranks = next(count for count in range(ranks, 33) if not has_unequal_groups(collective, count))
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

    assert predicted.exchange_s == pytest.approx(collective.all_reduce_time_s(ranks, 4 * entries, alpha_s, beta_s))


@every_collective
def test_single_rank_sends_nothing_and_takes_no_time(collective: Collective, in_virtual_time: InVirtualTime) -> None:
    """Speedup is measured against one worker, whose exchange must not take time."""
    (vector,) = normal_vectors(1, 64, "float32")

    result = in_virtual_time(run_all_reduce(collective.plan_transfers(1), [vector], bytes_per_s=1.0, compressor=Fp16()))

    assert result.vectors[0].tobytes() == vector.tobytes()
    predicted_s = collective.all_reduce_time_s(1, 1e6, 1.0, 1.0)
    assert (result.traffic[0].messages, result.seconds, predicted_s) == (0, 0.0, 0.0)


@every_collective
def test_sixty_four_ranks_compute_the_sum(collective: Collective, in_virtual_time: InVirtualTime) -> None:
    """Large clusters are the purpose of virtual time."""
    vectors = integer_vectors(64, 130, "float32")

    result = in_virtual_time(run_all_reduce(collective.plan_transfers(64), vectors))

    assert (result.vectors[0] == np.sum(vectors, axis=0)).all()
    assert count_distinct_results(result) == 1


def test_slowest_link_of_a_ring_determines_its_time(in_virtual_time: InVirtualTime) -> None:
    """All data passes every rank: a ring is as fast as its slowest member, which is why stragglers matter."""

    async def with_a_slow_rank() -> float:
        names = [f"rank-{rank}" for rank in range(4)]
        uplinks, downlinks = ({name: RateLimiter(1e6) for name in names} for _ in range(2))
        uplinks["rank-2"] = RateLimiter(2.5e5)
        fabric = VirtualFabric(uplinks, downlinks, timeout_s=1e6)
        vectors = normal_vectors(4, 8 * MAX_FLUID_MESSAGE_BYTES // 4, "float32")
        await asyncio.gather(
            *(
                all_reduce(fabric.make_transport(name), names, rank, Ring().plan_transfers(4), 0, vectors[rank])
                for rank, name in enumerate(names)
            )
        )
        return asyncio.get_running_loop().time()

    seconds = in_virtual_time(with_a_slow_rank())

    slow = Ring().all_reduce_time_s(4, 8 * MAX_FLUID_MESSAGE_BYTES, 0.0, 1 / 2.5e5)
    assert seconds == pytest.approx(slow) or slow < seconds <= 1.15 * slow  # no idle time, except for rounding
