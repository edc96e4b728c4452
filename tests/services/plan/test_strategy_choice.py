"""A plan chooses the strategy with the shortest predicted step that its quality guard permits."""

from typing import Any

import pytest
from simulated_trial import SimulatedTrial

from services.cluster.addresses import DummyAddresses
from services.compressors import (
    CompressorUnion,
    ErrorFeedback,
    Fp4,
    Fp16,
    Int8,
    LargeArraysOnly,
    OneBit,
    Qsgd,
    RandomK,
    Sign,
    SumQuality,
    TernGrad,
    TopK,
)
from services.node.simulate import simulate_trial
from services.parameter_server.synchronisers import Asp
from services.plan import StrategyChoice, TrainingPlan, decode_plan, make_plan, make_probe_plan
from services.plan.candidates.strategy_choice import CandidateRecord
from services.scenario.scenario import Scenario
from services.strategies import (
    AdPsgd,
    AllReduce,
    AnyCandidate,
    DiLoCo,
    DPsgd,
    Easgd,
    LocalSgd,
    NoLoCo,
    ParameterServer,
    PartialAllReduce,
    SinglePhaseStrategy,
    SingleWorker,
)
from services.strategies.auto import describe_candidate
from services.strategies.auto.quality import explain_unpermitted
from services.strategies.overlap import BucketOverlap
from services.strategies.vector_sums import PowerSgd

GUARDS = ["exact", "rounded", "lossy"]
RANK = {"exact": 0, "rounded": 1, "lossy": 2, "unguarded": 3}


def plan_with(
    strategy: dict[str, Any], rate: str = "100mbit", throughput: str = "400/s", **workload: Any
) -> TrainingPlan:
    document = {
        "name": "chosen",
        "workload": {
            "dataset": {"kind": "synthetic_regression", "samples": 16 * 64 * 5 // 4, "features": 16, "outputs": 4},
            "model": {"kind": "mlp", "hidden": [64, 64]},
            "optimiser": {"kind": "sgd", "rate": 0.01},
            "batch": 64,
            "epochs": 4,
        }
        | workload,
        "cluster": {
            "workers": 4,
            "worker": {"throughput": throughput, "uplink": rate, "downlink": rate, "delay": "100us"},
            "server": {"uplink": rate, "downlink": rate, "delay": "100us"},
        },
        "strategies": {"it": strategy},
        "baseline": False,
    }
    (trial,) = Scenario.decode(document).trials()
    plan = make_plan(trial, "run", "simulated", DummyAddresses())
    assert isinstance(plan, TrainingPlan)
    return plan


def choice_of(strategy: dict[str, Any], rate: str = "100mbit", **other: Any) -> StrategyChoice:
    choice = plan_with({"kind": "auto", **strategy}, rate, **other).strategy_choice
    assert choice is not None
    return choice


@pytest.mark.parametrize(
    ("candidates", "on_slow_links", "on_fast_links"),
    [
        (
            [{"kind": "all_reduce"}, {"kind": "all_reduce", "compress": {"kind": "fp16"}}],
            "all_reduce (compress fp16)",
            "all_reduce",
        ),
        (
            [{"kind": "all_reduce", "collective": {"kind": kind}} for kind in ("ring", "recursive_doubling")],
            "all_reduce",
            "all_reduce (collective recursive_doubling)",
        ),
        (
            [{"kind": "all_reduce"}, {"kind": "local_sgd", "period": 4}],
            "local_sgd (period 4)",
            "all_reduce",
        ),
    ],
)
def test_the_choice_changes_where_links_become_faster(
    candidates: list[dict[str, Any]], on_slow_links: str, on_fast_links: str
) -> None:
    """Compression and local steps pay only on slow links, and few messages only where latency dominates."""
    strategy, slow_workers = {"quality": "lossy", "candidates": candidates}, {"throughput": "20/s"}
    throughput = {} if "recursive" in on_fast_links else slow_workers
    slow, fast = choice_of(strategy, "1mbit", **throughput), choice_of(strategy, "10gbit", **throughput)

    assert slow.chosen_candidate.name == on_slow_links
    assert fast.chosen_candidate.name == on_fast_links


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("rate", ["1mbit", "10gbit"])
def test_no_guard_is_exceeded(guard: str, rate: str) -> None:
    """Quality is never traded for speed beyond what the user permits."""
    choice = choice_of({"quality": guard, "servers": 2, "max_period": 8}, rate)

    assert {RANK[candidate.quality] for candidate in choice.candidates} == {*range(RANK[guard] + 1)}
    for candidate in choice.candidates:
        assert candidate.strategy.describe_quality().level == candidate.quality
        assert candidate.exchange_period <= 8


def test_each_guard_adds_candidates_and_never_makes_the_predicted_step_longer() -> None:
    choices = [choice_of({"quality": guard}, "1mbit") for guard in GUARDS]

    names = [{candidate.name for candidate in choice.candidates} for choice in choices]
    assert names[0] < names[1] < names[2]
    steps = [choice.chosen_candidate.predicted_step_s or 0.0 for choice in choices]
    assert steps[0] > steps[1] > steps[2] > 0


@pytest.mark.parametrize(
    ("candidate", "quality"),
    [
        (AllReduce(), "exact"),
        (AllReduce(overlap=BucketOverlap()), "exact"),
        (ParameterServer(), "exact"),
        (AllReduce(compress=Fp16()), "rounded"),
        (ParameterServer(compress_replies=Fp16()), "rounded"),
        (AllReduce(compress=Int8()), "lossy"),
        (AllReduce(compress=Int8(scale="shared")), "lossy"),
        (AllReduce(compress=Int8(rounding="nearest")), "unguarded"),
        (AllReduce(compress=ErrorFeedback(inner=Int8(rounding="nearest"))), "lossy"),
        (ParameterServer(compress_replies=Int8(rounding="nearest")), "unguarded"),
        (AllReduce(compress=Fp4()), "unguarded"),
        (AllReduce(compress=ErrorFeedback(inner=Fp4())), "lossy"),
        (AllReduce(compress=LargeArraysOnly(inner=Int8())), "lossy"),
        (AllReduce(compress=LargeArraysOnly(inner=Qsgd(norm="max"))), "lossy"),
        (AllReduce(compress=LargeArraysOnly(inner=TopK())), "unguarded"),
        (AllReduce(compress=LargeArraysOnly(inner=ErrorFeedback(inner=TopK()))), "lossy"),
        (AllReduce(compress=Qsgd(norm="max")), "lossy"),
        (AllReduce(compress=Qsgd(levels=1, norm="l2")), "unguarded"),
        (AllReduce(compress=ErrorFeedback(inner=TopK())), "lossy"),
        (AllReduce(compress=ErrorFeedback(inner=Sign())), "lossy"),
        (AllReduce(compress=ErrorFeedback(inner=Sign(scale="none"))), "unguarded"),
        (AllReduce(compress=LargeArraysOnly(inner=ErrorFeedback(inner=Sign(scale="none")))), "unguarded"),
        (AllReduce(compress=PowerSgd()), "lossy"),
        (LocalSgd(period=2), "lossy"),
        (LocalSgd(period=2, compress=RandomK()), "unguarded"),
        (DiLoCo(period=2), "lossy"),
        (AllReduce(compress=TopK()), "unguarded"),
        (AllReduce(compress=Sign()), "unguarded"),
        (AllReduce(compress=TernGrad()), "unguarded"),
        (ParameterServer(synchrony=Asp()), "unguarded"),
        (ParameterServer(compress=TopK(), compress_replies=Fp16()), "unguarded"),
        (SingleWorker(), "exact"),
        (DPsgd(), "unguarded"),
        (NoLoCo(period=2), "unguarded"),
        (PartialAllReduce(), "unguarded"),
        (AdPsgd(), "unguarded"),
        (Easgd(), "unguarded"),
    ],
    ids=repr,
)
def test_quality_of_candidates(candidate: AnyCandidate, quality: SumQuality) -> None:
    """What loses a part of each gradient permanently, or uses old gradients, is permitted by no guard."""
    assert candidate.describe_quality().level == quality


def test_a_strategy_that_states_no_quality_is_permitted_by_no_guard() -> None:
    """A new strategy must not be chosen before its author has stated a quality."""

    class NewStrategy(LocalSgd):
        describe_quality = SinglePhaseStrategy.describe_quality

    text = explain_unpermitted(NewStrategy(period=1), "lossy", 16)

    assert text == (
        "no value of quality permits this strategy, because its distance from synchronous training has no known "
        "limit; remove this candidate, or declare this local_sgd as a separate strategy"
    )


@pytest.mark.parametrize(
    ("compressor", "reason", "remedy", "changed"),
    [
        (Fp4(), "mean of zero", "wrap fp4", ErrorFeedback(inner=Fp4())),
        (Int8(rounding="nearest"), "mean of zero", "rounding: stochastic", Int8()),
        (Int8(rounding="nearest"), "nearest", "or wrap int8", ErrorFeedback(inner=Int8(rounding="nearest"))),
        (
            Int8(rounding="nearest", scale="shared"),
            "mean of zero",
            "rounding: stochastic, or declare",
            Int8(scale="shared"),
        ),
        (Qsgd(levels=1), "larger than the vector", "levels: 24", Qsgd(levels=24)),
        (Qsgd(levels=1), "larger than the vector", "norm: max", Qsgd(levels=1, norm="max")),
        (TernGrad(), "as large as the vector", "wrap terngrad", ErrorFeedback(inner=TernGrad())),
        (OneBit(), "mean of zero", "wrap one_bit", ErrorFeedback(inner=OneBit())),
        (Sign(), "mean of zero", "wrap sign", ErrorFeedback(inner=Sign())),
        (Sign(scale="none"), "no magnitudes", "scale: l1 and wrap sign", ErrorFeedback(inner=Sign())),
        (
            ErrorFeedback(inner=Sign(scale="none")),
            "grow without limit",
            "write scale: l1, or declare",
            ErrorFeedback(inner=Sign()),
        ),
        (TopK(), "permanently", "wrap top_k", ErrorFeedback(inner=TopK())),
        (RandomK(), "larger than the vector", "wrap random_k", ErrorFeedback(inner=RandomK())),
        (RandomK(unbiased=False), "permanently", "wrap random_k", ErrorFeedback(inner=RandomK())),
        (
            LargeArraysOnly(inner=TopK()),
            "because top_k loses",
            "wrap top_k",
            LargeArraysOnly(inner=ErrorFeedback(inner=TopK())),
        ),
    ],
    ids=repr,
)
def test_the_remedy_for_an_unguarded_compressor_is_accepted(
    compressor: CompressorUnion, reason: str, remedy: str, changed: CompressorUnion
) -> None:
    """Each compressor has a reason of its own, and its remedy must lead to a valid scenario."""
    text = explain_unpermitted(AllReduce(compress=compressor), "lossy", 16)
    assert reason in text
    assert remedy in text

    candidate = AllReduce(compress=changed)
    choice = choice_of({"quality": "lossy", "candidates": [candidate.model_dump(mode="json")]})

    assert explain_unpermitted(candidate, "lossy", 16) == ""
    assert choice.explain(0) == "chosen by prediction"


def test_the_plan_is_that_of_the_chosen_strategy() -> None:
    """Nodes, checks and predictions must not depend on how the strategy was chosen."""
    chosen = plan_with({"kind": "auto", "quality": "rounded"}, "1mbit")
    assert chosen.strategy_choice is not None

    declared = plan_with(chosen.strategy_choice.chosen_candidate.strategy.model_dump(mode="json"), "1mbit")

    assert chosen.model_copy(update={"strategy_choice": None}) == declared
    assert decode_plan(chosen.model_dump_json()) == chosen
    assert chosen.predicted_s / chosen.steps == chosen.strategy_choice.chosen_candidate.predicted_step_s


def test_servers_are_candidates_only_where_they_are_declared_and_exist_only_if_they_are_chosen() -> None:
    with_servers, without = choice_of({"servers": 4}), choice_of({})
    kinds = [{candidate.strategy.kind for candidate in choice.candidates} for choice in (with_servers, without)]
    assert kinds == [{"all_reduce", "parameter_server"}, {"all_reduce"}]

    all_reduce, server = {"kind": "all_reduce"}, {"kind": "parameter_server", "servers": 4}
    only_ring = plan_with({"kind": "auto", "candidates": [all_reduce, {**server, "servers": 1}]})
    only_server = plan_with({"kind": "auto", "candidates": [server]})
    assert (only_ring.strategy.kind, only_ring.servers) == ("all_reduce", 0)
    assert (only_server.strategy.kind, only_server.servers) == ("parameter_server", 4)


def test_an_impossible_candidate_is_recorded_with_the_reason() -> None:
    """A candidate that only some trials of a sweep can use must not make the others fail."""
    candidates = [{"kind": "all_reduce", "compress": {"kind": "dgc"}}, {"kind": "all_reduce"}]
    momentum = {"optimiser": {"kind": "momentum", "rate": 0.01}}

    choice = choice_of({"quality": "lossy", "candidates": candidates}, **momentum)

    assert choice.candidates[0].predicted_step_s is None
    assert "adds momentum" in choice.explain(0)
    assert (choice.chosen, choice.explain(1)) == (1, "chosen by prediction")
    assert choice.numbers_to_probe == []


def test_a_candidate_for_another_number_of_workers_is_never_chosen() -> None:
    """Without an exchange, workers have the fastest step, and train models of their own."""
    choice = choice_of({"candidates": [{"kind": "none"}, {"kind": "all_reduce"}]})

    assert "one worker" in choice.candidates[0].impossible_reason
    assert choice.chosen_candidate.strategy.kind == "all_reduce"


def test_the_first_of_equally_fast_candidates_is_chosen() -> None:
    """Better qualities are earlier in the default list, so nothing is lost for less than a percent."""
    candidates = [{"kind": "all_reduce", "collective": {"kind": "ring", "stride": stride}} for stride in (3, 1)]

    choice = choice_of({"candidates": candidates})

    assert (choice.chosen, choice.numbers_to_probe) == (0, [0, 1])


def records(*predicted_s: float | None, exchange_period: int = 1) -> tuple[CandidateRecord, ...]:
    return tuple(
        CandidateRecord(
            name=f"number {number}",
            strategy=AllReduce(),
            quality="exact",
            predicted_step_s=step_s,
            impossible_reason="" if step_s is not None else "too large",
            exchange_period=exchange_period,
        )
        for number, step_s in enumerate(predicted_s)
    )


def make_choice(*predicted_s: float | None, probes: int = 3, **other: int) -> StrategyChoice:
    return StrategyChoice.by_prediction("exact", probes, 20, 0.25, records(*predicted_s, **other))


def test_only_candidates_within_the_margin_are_probed() -> None:
    assert make_choice(1.2, None, 1.0, 1.24, 1.3).numbers_to_probe == [2, 0, 3]
    assert make_choice(1.2, 1.1, 1.0, 1.24, probes=2).numbers_to_probe == [2, 1]
    assert make_choice(1.0, 2.0).numbers_to_probe == []
    assert make_choice(1.0, 1.0, probes=0).numbers_to_probe == []
    assert make_choice(1.009, 1.005, 1.0, 1.002, probes=2).numbers_to_probe == [0, 2]  # with the predicted choice


def test_the_measured_step_decides_among_probed_candidates() -> None:
    choice = make_choice(1.0, 1.1, 1.2, 9.0).add_probe(0, 2.0, "").add_probe(1, 1.51, "").add_probe(2, 1.5, "")

    final = choice.finish()

    assert (choice.chosen, final.chosen, final.is_final) == (0, 1, True)
    assert [final.explain(number) for number in range(4)] == [
        "probed, 32% slower",
        "chosen",
        "probed, at most 1% different, later in the list",
        "predicted 718% slower",
    ]


def test_an_earlier_candidate_is_not_said_to_be_later() -> None:
    """A candidate that is slower than the least by more than a percent may be close to the chosen one."""
    choice = make_choice(1.015, 1.008, 1.0)

    assert (choice.chosen, choice.model_copy(update={"is_final": True}).explain(0)) == (1, "predicted 0.7% slower")


def test_failed_probes_leave_the_choice_to_the_others_or_to_the_prediction() -> None:
    choice = make_choice(1.0, 1.1).add_probe(0, None, "worker-0 ended")

    assert choice.finish().chosen == 0
    assert choice.finish().explain(0) == "chosen by prediction; its probe failed: worker-0 ended"
    assert choice.add_probe(1, 7.0, "").finish().chosen == 1
    assert choice.add_probe(1, 7.0, "").finish().explain(0) == "probe failed: worker-0 ended"


@pytest.mark.parametrize(("exchange_period", "steps"), [(1, 20), (4, 20), (6, 24), (16, 48)])
def test_a_probe_has_whole_periods(exchange_period: int, steps: int) -> None:
    """A part of a period would contain too few or too many exchanges."""
    assert make_choice(1.0, exchange_period=exchange_period).count_probe_steps(0) == steps


def test_a_probe_of_changing_shares_has_whole_periods_after_the_first_one() -> None:
    """The steps of the first period have equal shares, so they do not count."""
    choice = make_choice(1.0)
    candidate = choice.candidates[0]

    for period, steps in ((10, 40), (25, 100), (4, 24)):
        changed = candidate.model_copy(update={"resize_period": period})
        assert choice.model_copy(update={"candidates": (changed,)}).count_probe_steps(0) == steps


@pytest.mark.parametrize(("step_count", "steps", "epochs"), [(5, 5, 1), (15, 15, 1), (16, 30, 2)])
def test_a_probe_trains_whole_batches_of_the_same_workload(step_count: int, steps: int, epochs: int) -> None:
    """A smaller last batch would make the steps of a short probe seem shorter."""
    target = {"metric": "loss", "at_most": 1e-9}
    dataset = {"kind": "synthetic_regression", "samples": 1240, "features": 16, "outputs": 4}  # 15.5 batches to train
    plan = plan_with({"kind": "all_reduce"}, dataset=dataset, target=target)

    probe = make_probe_plan(plan, "probe", step_count)

    assert (probe.steps, probe.epochs) == (steps, epochs)
    assert {probe.data_order.batch_size(step) for step in range(probe.steps)} == {64}
    assert probe.evaluation_schedule.evaluation_count == 1
    assert (probe.target, probe.events) == (None, ())
    assert (probe.nodes, probe.strategy, probe.model) == (plan.nodes, plan.strategy, plan.model)


DGC_WITH_WARM_UP = {"kind": "dgc", "ratio": 0.001, "momentum": 0, "warm_up_steps": 40}


@pytest.mark.parametrize(
    "compress",
    [DGC_WITH_WARM_UP, {"kind": "large_arrays_only", "inner": DGC_WITH_WARM_UP}],
    ids=lambda compress: compress["kind"],
)
def test_a_probe_measures_the_steps_after_the_warm_up(compress: dict[str, Any]) -> None:
    """The first 20 of 800 steps send 25 % of the entries, so they are much longer than the mean step of the trial."""
    declared = {"kind": "all_reduce", "compress": compress}
    constant = {"kind": "all_reduce", "compress": without_warm_up(compress)}
    plan, later = (plan_with(strategy, "1mbit", epochs=50) for strategy in (declared, constant))
    probe, expected = make_probe_plan(plan, "probe", 20), make_probe_plan(later, "probe", 20)
    choice = choice_of({"quality": "lossy", "candidates": [declared, constant]}, "1mbit", epochs=50)

    measured_s = [measure_step_s(each) for each in (probe, expected)]
    probed = choice.add_probe(0, measured_s[0], "").add_probe(1, measured_s[1], "")

    assert len(plan.format_stages) == 4
    assert measured_s[0] == measured_s[1]
    assert (plan.predicted_s - later.predicted_s) / plan.steps == pytest.approx(probed.candidates[0].warm_up_step_s)
    for candidate in probed.candidates:
        assert candidate.probe_step_s == pytest.approx(candidate.predicted_step_s, rel=0.02)
    assert (probed.candidates[0].probe_step_s or 0) > 1.02 * (probed.candidates[1].probe_step_s or 0)


def without_warm_up(compress: dict[str, Any]) -> dict[str, Any]:
    if "inner" in compress:
        return compress | {"inner": without_warm_up(compress["inner"])}
    return compress | {"warm_up_steps": 0}


def measure_step_s(plan: TrainingPlan) -> float:
    """Return the mean step of a probe in virtual time."""
    simulated = SimulatedTrial(plan)
    simulate_trial(plan, lambda node: simulated.lines[node].append)
    starts_s = [row["start_s"] for row in simulated.rows(simulated.workers[0], "node_steps")]
    return float(starts_s[-1] - starts_s[0]) / (len(starts_s) - 1)


@pytest.mark.parametrize(
    "strategy",
    [
        {"kind": "all_reduce", "overlap": {"kind": "buckets", "bucket_size": "2KiB"}},
        {"kind": "parameter_server", "servers": 2},
        {"kind": "local_sgd", "period": 8},
        {"kind": "diloco", "period": 8, "fragments": 4, "overlap_steps": 1},
    ],
    ids=lambda strategy: strategy["kind"],
)
@pytest.mark.parametrize(
    "partition", [{"kind": "iid"}, {"kind": "dirichlet", "alpha": 0.5}], ids=lambda part: part["kind"]
)
def test_every_worker_trains_the_steps_of_a_probe(strategy: dict[str, Any], partition: dict[str, Any]) -> None:
    """Probes have the parts of the data that workers own, and end by themselves."""
    trained = {"dataset": {"kind": "digits"}, "partition": partition, "epochs": 1}
    plan = make_probe_plan(plan_with(strategy, **trained), "probe", 24)
    simulated = SimulatedTrial(plan)

    simulate_trial(plan, lambda node: simulated.lines[node].append)

    steps = [len(simulated.rows(worker, "node_steps")) for worker in simulated.workers]
    assert steps == [plan.steps] * 4
    assert 24 <= plan.steps <= 44


def test_candidates_are_described_by_the_keys_that_differ_from_the_defaults() -> None:
    assert describe_candidate(AllReduce()) == "all_reduce"
    compressed = AllReduce(compress=ErrorFeedback(inner=TopK(ratio=0.02)))
    assert describe_candidate(compressed) == "all_reduce (compress error_feedback (inner top_k (ratio 0.02)))"
    assert describe_candidate(LocalSgd(period=4)) == "local_sgd (period 4)"
