"""Tests of every all-gather: payloads of all ranks on each rank, and the predicted bytes, messages and seconds."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import permutations
from math import ceil, inf, log2
from typing import Any, TypeAlias, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from whole_vector_compressors import GatheredIdentity

from services.cluster.links.fluid_link import MAX_FLUID_MESSAGE_BYTES, RateLimiter
from services.cluster.links.message_lengths import MessageSizeLimits
from services.cluster.network import Network, NetworkPath
from services.collectives import TransferSchedule
from services.collectives.all_gather import AllGather, AnyAllGather, DirectAllGather, RingAllGather, TreeAllGather
from services.collectives.execution.executor import GroupMember
from services.collectives.execution.whole_payloads import gather_payloads
from services.runtime.transport import SentTraffic
from services.schema.arrays import HostArray
from services.strategies import AllReduce
from services.strategies.cost_model import CostModel
from services.transport.virtual import EMPTY_NETWORK, VirtualFabric

EXAMPLES: list[AllGather] = [RingAllGather(), TreeAllGather(), DirectAllGather()]
RANKS = (*range(1, 10), 16)
InVirtualTime: TypeAlias = Callable[[Any], Any]

every_gather = pytest.mark.parametrize("gather", EXAMPLES, ids=lambda gather: gather.kind)
any_ranks = pytest.mark.parametrize("ranks", RANKS)


async def run_all_gather(
    gather: AllGather,
    payloads: Sequence[HostArray],
    bytes_per_s: float = inf,
    *,
    piece_bytes: int = MAX_FLUID_MESSAGE_BYTES,
    network: Network = EMPTY_NETWORK,
) -> tuple[list[Sequence[HostArray]], list[SentTraffic], float]:
    """Gather the payloads of all ranks on links of equal rate; return the results and traffic by rank, and seconds."""
    names = [f"rank-{rank}" for rank in range(len(payloads))]
    links = [{name: RateLimiter(bytes_per_s) for name in names} for _ in range(2)]
    fabric = VirtualFabric(*links, timeout_s=1e6, network=network)
    transports = [fabric.make_transport(name) for name in names]
    for transport in transports:
        transport.max_piece_bytes = piece_bytes
    schedule = gather.plan_transfers(len(payloads))
    gathered = await asyncio.gather(
        *(
            gather_payloads(GroupMember(transport, names, rank), schedule, 0, payload)
            for rank, (transport, payload) in enumerate(zip(transports, payloads, strict=True))
        )
    )
    return list(gathered), [transport.traffic for transport in transports], asyncio.get_running_loop().time()


def random_payloads(ranks: int, size: int, seed: int = 0) -> list[HostArray]:
    """Return one payload of random bytes per rank."""
    return list(np.random.default_rng(seed).integers(0, 256, (ranks, size), np.uint8))


def delays_between_all(ranks: int, delay_s: float) -> Network:
    """Return a network in which messages between any two ranks arrive later."""
    names = [f"rank-{rank}" for rank in range(ranks)]
    return Network(paths=tuple(NetworkPath(source=a, target=b, delay_s=delay_s) for a, b in permutations(names, 2)))


def cost_of(ranks: int, payload_bytes: int, bytes_per_s: float, network: Network, piece_bytes: int) -> CostModel:
    """Return the cost model of equal ranks whose payloads, uncompressed fp32 vectors, have `payload_bytes` bytes."""
    links = dict.fromkeys([f"rank-{rank}" for rank in range(ranks)], 1 / bytes_per_s)
    return CostModel(
        workers=tuple(links),
        entries=payload_bytes // 4,
        dtype="float32",
        message_lengths=MessageSizeLimits(piece_bytes, MAX_FLUID_MESSAGE_BYTES),
        uplink_s_per_byte=links,
        downlink_s_per_byte=links,
        network=network,
    )


def gathering_strategy(gather: AllGather) -> AllReduce:
    """Return an all-reduce of uncompressed vectors with an all-gather."""
    return AllReduce().model_copy(update={"compress": GatheredIdentity(), "gather": gather})


def test_examples_table_contains_every_all_gather() -> None:
    """An all-gather that is not in the table is not tested."""
    union, _ = get_args(AnyAllGather)

    assert {type(gather) for gather in EXAMPLES} == set(get_args(union))


@every_gather
def test_all_gather_and_its_schedule_survive_a_json_round_trip(gather: AllGather) -> None:
    """The record of a run has both, and nodes read the schedule from it."""
    schedule = gather.plan_transfers(6)

    assert TypeAdapter(AnyAllGather).validate_json(gather.model_dump_json()) == gather
    assert TransferSchedule.model_validate_json(schedule.model_dump_json()) == schedule


@every_gather
@any_ranks
@settings(deadline=None, max_examples=6)
@given(size=st.integers(0, 200), piece_bytes=st.integers(1, 300), seed=st.integers(0, 99))
def test_every_rank_has_the_payloads_of_all_ranks(
    gather: AllGather, ranks: int, size: int, piece_bytes: int, seed: int, in_virtual_time: InVirtualTime
) -> None:
    """A payload that is missing or at another rank's place would give this rank another sum."""
    payloads = random_payloads(ranks, size, seed)

    gathered, _, _ = in_virtual_time(run_all_gather(gather, payloads, 1e4, piece_bytes=piece_bytes))

    for received in gathered:
        assert [payload.tobytes() for payload in received] == [payload.tobytes() for payload in payloads]


@every_gather
@any_ranks
def test_every_rank_sends_n_minus_one_payloads(gather: AllGather, ranks: int, in_virtual_time: InVirtualTime) -> None:
    """No all-gather can send fewer bytes, and the plan predicts them."""
    schedule, strategy = gather.plan_transfers(ranks), gathering_strategy(gather)

    _, traffic, _ = in_virtual_time(run_all_gather(gather, random_payloads(ranks, 1000)))

    assert strategy.sent_bytes_per_step(ranks, 250, "float32").workers == (1000 * (ranks - 1),) * ranks
    for rank, sent in enumerate(traffic):
        assert sent.payload_bytes == 1000 * (ranks - 1)
        assert sent.messages == schedule.count_transfers_from(rank)


@pytest.mark.parametrize(
    ("gather", "messages"),
    [
        (RingAllGather(), lambda n: n - 1),
        (TreeAllGather(), lambda n: ceil(log2(max(1, 2 * n / 3)))),
        (DirectAllGather(), lambda n: min(1, n - 1)),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
@any_ranks
def test_latency_counts_once_per_message_of_the_longest_chain(
    gather: AllGather, messages: Callable[[int], int], ranks: int
) -> None:
    """The formula and the schedule each determine how often α counts: one of them alone could be wrong."""
    schedule = gather.plan_transfers(ranks)

    assert gather.all_gather_time_s(ranks, 0.0, 2.5, 1.0) == 2.5 * messages(ranks)
    assert schedule.critical_path_latency_s(dict.fromkeys(schedule.sending_rank_pairs, 2.5)) == 2.5 * messages(ranks)


@every_gather
@pytest.mark.parametrize("ranks", range(2, 9))
@pytest.mark.parametrize("payload_bytes", [4_000, 40_000, 400_000])
@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.05])
def test_run_time_is_that_of_the_closed_form(
    gather: AllGather, ranks: int, payload_bytes: int, delay_s: float, in_virtual_time: InVirtualTime
) -> None:
    """Links of 100 Mbit/s: from payloads of one message to pipelines that hide a part of the delay."""
    rate, network = 1.25e7, delays_between_all(ranks, delay_s)
    cost = cost_of(ranks, payload_bytes, rate, network, MAX_FLUID_MESSAGE_BYTES)
    payloads = [np.zeros(payload_bytes, np.uint8)] * ranks

    _, _, seconds = in_virtual_time(run_all_gather(gather, payloads, rate, network=network))

    predicted = gathering_strategy(gather).predict_step_time(cost)
    assert seconds == pytest.approx(predicted.exchange_s, rel=0.02)
    assert gather.closed_form in predicted.formula
    if "less the part of α that pieces hide" not in predicted.formula:
        assert predicted.exchange_s == pytest.approx(
            gather.all_gather_time_s(ranks, payload_bytes, delay_s, 1 / rate), rel=1e-9
        )
