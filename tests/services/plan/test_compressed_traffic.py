"""The traffic of a compressed all-reduce relative to a ring, and the sentence that compression does not pay."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from whole_vector_compressors import DrawnEntries, GatheredIdentity, LargestEntries

from analysis.checks.verdict import VerdictLevel
from analysis.report.summary_text import summary_sentences
from analysis.report.wording import describe_compressed_traffic
from analysis.results.summary import SUMMARY_SCHEMA, CompressedTraffic, RunSummary
from ensayo.terminal.tables import compressed_traffic_lines
from services.collectives import BinomialTree, Collective, RecursiveDoubling, Ring
from services.collectives.all_gather import AllGather, DirectAllGather, RingAllGather, TreeAllGather
from services.compressors import Fp16
from services.plan.training.compressed_traffic import compressed_traffic_ratio
from services.strategies import AllReduce, LocalSgd, ParameterServer, SinglePhaseStrategy, SingleWorker

NOT_PAYING = "so compression does not pay"


def with_parts(strategy: SinglePhaseStrategy, **parts: Any) -> SinglePhaseStrategy:
    return strategy.model_copy(update=parts)


def ratio_of(strategy: SinglePhaseStrategy, workers: int) -> float | None:
    return compressed_traffic_ratio(strategy, workers, 1000, "float32")


@pytest.mark.parametrize("gather", [RingAllGather(), TreeAllGather(), DirectAllGather()], ids=lambda each: each.kind)
@pytest.mark.parametrize("share", [0.05, 0.1, 0.125, 0.2, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("workers", range(2, 17))
def test_sparse_payloads_pay_only_for_shares_below_one_over_n(gather: AllGather, share: float, workers: int) -> None:
    """Every entry costs 8 bytes and is sent n-1 times, against 2(n-1)/n times 4 bytes per entry of the vector."""
    ratio = ratio_of(with_parts(AllReduce(), compress=LargestEntries(share=share), gather=gather), workers)

    assert ratio == pytest.approx(share * workers)
    assert (NOT_PAYING in describe_compressed_traffic("sparse", workers, ratio)) == (share >= 1 / workers)


@pytest.mark.parametrize("workers", range(2, 9))
def test_gathering_a_c_fold_shorter_format_pays_only_below_2c_workers(workers: int) -> None:
    """Uncompressed (c = 1), it pays for no number of workers: two workers send as much as a ring."""
    ratio = ratio_of(with_parts(AllReduce(), compress=GatheredIdentity()), workers)

    assert ratio == pytest.approx(workers / 2)
    assert NOT_PAYING in describe_compressed_traffic("dense", workers, ratio)


@pytest.mark.parametrize("collective", [Ring(), BinomialTree()], ids=lambda each: each.kind)
@pytest.mark.parametrize("workers", range(2, 9))
def test_half_precision_pays_for_any_number_of_workers(collective: Collective, workers: int) -> None:
    """Sums of payloads at every hop do not grow with the number of workers."""
    for strategy in (
        AllReduce(collective=collective, compress=Fp16()),
        LocalSgd(period=5, collective=collective, compress=Fp16()),
    ):
        ratio = ratio_of(strategy, workers)

        assert ratio == pytest.approx(0.5)
        assert NOT_PAYING not in describe_compressed_traffic("half", workers, ratio)


def test_a_collective_that_sends_more_than_a_ring_may_not_pay_with_a_compressor() -> None:
    """Eight ranks swap three whole vectors each: half of that is 12/14 of a ring; of sixteen ranks, it is 32/30."""
    swapped = AllReduce(collective=RecursiveDoubling(), compress=Fp16())

    assert ratio_of(swapped, 8) == pytest.approx(12 / 14)
    assert ratio_of(swapped, 16) == pytest.approx(32 / 30)


@pytest.mark.parametrize("workers", [2, 8])
def test_added_payloads_pay_by_their_share_of_the_entries(workers: int) -> None:
    """A quarter of the entries, and the checksum of which entries they are: two numbers."""
    ratio = ratio_of(with_parts(AllReduce(), compress=DrawnEntries(share=0.25)), workers)

    assert ratio == pytest.approx((250 + 2) / 1000)


@pytest.mark.parametrize(
    ("strategy", "workers"),
    [
        (AllReduce(), 4),
        (AllReduce(collective=RecursiveDoubling()), 8),
        (AllReduce(compress=Fp16()), 1),
        (SingleWorker(), 1),
        (ParameterServer(compress=Fp16()), 4),
    ],
)
def test_no_ratio_without_a_compressor_or_without_a_collective(strategy: SinglePhaseStrategy, workers: int) -> None:
    """A sentence about compression would make no sense there."""
    assert ratio_of(strategy, workers) is None


class PlannedPhase(NamedTuple):
    """Fields of a plan that the lines use."""

    label: str
    workers: int
    compressed_traffic_ratio: float | None
    second_phase: Any = None
    labels: Mapping[str, object] = {}


def lines_of(*phases: PlannedPhase) -> Sequence[str]:
    return list(compressed_traffic_lines(phases))  # type: ignore[arg-type]


def test_plan_has_one_line_for_each_compressed_strategy_and_number_of_workers() -> None:
    """Repeats and swept links send the same bytes."""
    after = PlannedPhase("", 4, 2.0)
    lines = lines_of(
        PlannedPhase("ring", 4, None),
        PlannedPhase("sparse", 4, 0.4),
        PlannedPhase("sparse", 4, 0.4),
        PlannedPhase("sparse", 16, 1.6),
        PlannedPhase("switching", 4, None, after),
    )

    assert lines == [
        "sparse on 4 workers sends 0.400 times the bytes of a ring all-reduce without compression",
        "sparse on 16 workers sends 1.60 times the bytes of a ring all-reduce without compression, " + NOT_PAYING,
        "switching after the switch on 4 workers sends 2.00 times the bytes of a ring all-reduce without compression, "
        + NOT_PAYING,
    ]


def test_summary_names_only_strategies_whose_compression_does_not_pay() -> None:
    """Where compression saves bytes, the time of the strategy says how much that is worth."""
    traffic = [CompressedTraffic("sparse", 4, 0.4), CompressedTraffic("sparse", 16, 1.6)]
    kinds: tuple[Any, ...] = (VerdictLevel.VALID, "success", [], [], [], "run", "", {}, [])

    sentences = summary_sentences(RunSummary(SUMMARY_SCHEMA, "s", "simulated", 1.0, *kinds, compressed_traffic=traffic))

    assert [sentence for sentence in sentences if "compression" in sentence] == [
        "Sparse on 16 workers sends 1.60 times the bytes of a ring all-reduce without compression, " + NOT_PAYING
    ]


def test_plan_names_the_swept_values_if_the_traffic_differs() -> None:
    """Otherwise two lines would contradict each other."""
    lines = lines_of(
        *(PlannedPhase("ring", 4, ratio, labels={"scheme": scheme}) for scheme, ratio in (("int8", 0.5), ("dgc", 0.1)))
    )

    assert [line.partition(" sends ")[0] for line in lines] == [
        "ring (scheme int8) on 4 workers",
        "ring (scheme dgc) on 4 workers",
    ]
