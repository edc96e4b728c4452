"""Density up to which a sparse compressor shortens a step, and the lines of `ensayo plan` about it."""

from typing import Any

import pytest

from ensayo.terminal.tables import break_even_density_lines, describe_break_even_density
from services.cluster.addresses import DummyAddresses
from services.compressors import Dgc, ErrorFeedback, Fp16, LargeArraysOnly, RandomK, TopK
from services.plan import Plan, make_plan
from services.plan.training.break_even_density import find_break_even_density
from services.scenario.scenario import Scenario
from services.strategies import AllReduce, LocalSgd, ParameterServer, SinglePhaseStrategy
from services.strategies.cost_model import CostModel

NOT_PAYING = "so they do not pay"


def cost_model(workers: int, alpha_s: float = 0.0, entries: int = 100_000, rate_bps: float = 1e8) -> CostModel:
    """Return a cluster of equal links."""
    names = [f"worker-{rank}" for rank in range(workers)]
    beta = dict.fromkeys([*names, "server-0"], 8 / rate_bps)
    return CostModel(
        workers=tuple(names),
        servers=("server-0",),
        entries=entries,
        dtype="float32",
        alpha_s=alpha_s,
        uplink_s_per_byte=beta,
        downlink_s_per_byte=beta,
    )


@pytest.mark.parametrize("workers", [2, 4, 8, 16])
def test_gathered_sparse_payloads_pay_up_to_a_density_of_one_over_n(workers: int) -> None:
    """An all-gather sends 8 bytes per entry n-1 times, a ring 2(n-1)/n times 4 bytes per entry of the vector."""
    for compressor in (TopK(), Dgc(warm_up_steps=8), ErrorFeedback(inner=TopK())):
        for strategy in (AllReduce(compress=compressor), LocalSgd(period=5, compress=compressor)):
            density = find_break_even_density(strategy, cost_model(workers))
            assert density == pytest.approx(1 / workers, rel=0.005)


def test_pushes_with_positions_pay_up_to_half_of_the_entries() -> None:
    """A position takes as many bytes as a value."""
    strategy = ParameterServer(compress=TopK())

    assert find_break_even_density(strategy, cost_model(4)) == pytest.approx(0.5, rel=0.005)


def test_latency_of_fewer_rounds_allows_a_higher_density() -> None:
    """A ring all-reduce has twice the rounds of a ring all-gather, so the difference may be spent on bytes."""
    strategy = AllReduce(compress=TopK())

    near, far = (find_break_even_density(strategy, cost_model(4, alpha_s)) for alpha_s in (0.0, 0.01))

    assert near is not None
    assert far is not None
    assert far > 1.1 * near


def test_density_is_where_predicted_steps_are_equal() -> None:
    """Just below it, the step is shorter than without compression; just above it, it is longer."""
    cluster = cost_model(4, 0.003)
    density = find_break_even_density(AllReduce(compress=TopK()), cluster)
    assert density is not None
    dense_s = AllReduce().predict_step_time(cluster).step_s

    below, above = (
        AllReduce(compress=TopK(ratio=factor * density)).predict_step_time(cluster).step_s for factor in (0.99, 1.01)
    )

    assert below < dense_s < above


def test_values_whose_positions_are_not_sent_pay_at_almost_every_density() -> None:
    """The sum of all payloads has a checksum of the positions, two numbers."""
    density = find_break_even_density(AllReduce(compress=RandomK()), cost_model(4))

    assert density is not None
    assert density > 0.99


def test_uncompressed_small_arrays_leave_fewer_bytes_for_the_others() -> None:
    """Two fifths of the entries are gathered uncompressed by each of eight workers, more than a ring sends."""
    compress = LargeArraysOnly(inner=TopK(), min_entries=60_000).fit_to_model(((60_000,), (40_000,)))

    assert find_break_even_density(AllReduce(compress=compress), cost_model(8)) == 0


@pytest.mark.parametrize(
    "strategy", [AllReduce(), AllReduce(compress=Fp16()), ParameterServer()], ids=["ring", "fp16", "ps"]
)
def test_strategies_without_a_sparse_compressor_have_no_density(strategy: SinglePhaseStrategy) -> None:
    """There is nothing to state."""
    assert find_break_even_density(strategy, cost_model(4)) is None


def test_no_density_is_stated_where_the_exchange_takes_no_time() -> None:
    """Without link rates and latency, compression cannot shorten the step."""
    unlimited = cost_model(4).model_copy(update={"uplink_s_per_byte": dict.fromkeys(cost_model(4).workers, 0.0)})
    unlimited = unlimited.model_copy(update={"downlink_s_per_byte": unlimited.uplink_s_per_byte})

    assert find_break_even_density(AllReduce(compress=TopK()), unlimited) is None


@pytest.mark.parametrize(("density", "pays"), [(0.01, True), (0.24, True), (0.25, True), (0.26, False), (1.0, False)])
def test_text_says_that_sparse_messages_do_not_pay_only_above_the_density(density: float, pays: bool) -> None:
    """The sentence is a claim about the declared density."""
    assert (NOT_PAYING in describe_break_even_density(density, 0.25)) != pays


def plans_of(link_rates: list[str]) -> list[Plan]:
    document: dict[str, Any] = {
        "name": "sparse",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "mlp", "hidden": [32]},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch": 64,
        },
        "cluster": {"workers": 4, "worker": {"throughput": "1000/s"}},
        "strategies": {
            "ring": {"kind": "all_reduce"},
            "sparse": {"kind": "all_reduce", "compress": {"kind": "top_k", "ratio": 0.01}},
            "dense": {"kind": "all_reduce", "compress": {"kind": "top_k", "ratio": 0.5}},
        },
        "sweep": {"link": {"paths": ["cluster.worker.uplink", "cluster.worker.downlink"], "values": link_rates}},
        "baseline": False,
        "repeats": 2,
    }
    trials = Scenario.decode(document).trials()
    plans = [make_plan(trial, "run", "simulated", DummyAddresses()) for trial in trials]
    return [plan for plan in plans if isinstance(plan, Plan)]


def test_plan_has_one_line_for_each_sparse_strategy_if_links_do_not_matter() -> None:
    """Without latency, bytes alone decide; repeats have equal plans."""
    lines = list(break_even_density_lines(plans_of(["10mbit", "100mbit"])))

    assert [line.split(":")[0] for line in lines] == ["sparse on 4 workers", "dense on 4 workers"]
    assert "up to a density of 25.0 % (declared: 1.00 %)" in lines[0]
    assert NOT_PAYING not in lines[0]
    assert NOT_PAYING in lines[1]
