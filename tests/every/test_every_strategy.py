"""Tests of every strategy: predictions before a run, and a simulated run of 64 workers.

Detailed tests with few workers are in `tests/training`.
"""

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
from guarded_arrays import GuardedDevice
from hypothesis import given, settings
from hypothesis import strategies as st
from message_faults import inject_message_faults
from pydantic import TypeAdapter, ValidationError
from simulated_trial import SimulatedTrial
from stored_states import store_servers_between_updates, store_state_before_each_step
from strategy_contexts import fits
from user_code import perceptron, torch_net

from services.compressors import Int8, OneBit, fit_to_model
from services.learning.optimisers import Momentum, Sgd
from services.parameter_server.compensation import AdaptiveDcAsgd
from services.parameter_server.placement import ColocatedPlacement, PromotedWorkerPlacement, SpareNodePlacement
from services.parameter_server.synchronisers import Asp, BackupWorkers, Bsp, Gba, Ssp
from services.parameter_server.update_rules import ElasticAveragingRule, WorkerContribution, elastic_averaging_move
from services.plan import COORDINATOR
from services.schema.units import Bytes
from services.strategies import (
    AdPsgd,
    AllReduce,
    AnyStrategy,
    DiLoCo,
    DPsgd,
    Easgd,
    LocalSgd,
    NoLoCo,
    ParameterServer,
    PartialAllReduce,
    PostLocalSgd,
    SinglePhaseStrategy,
    SingleWorker,
    Strategy,
    StrategySwitch,
    SyncSwitch,
    TrainingStrategy,
)
from services.strategies.cost_model import CostModel
from services.strategies.gossip.topologies import CompleteGossip, ExponentialGossip
from services.strategies.overlap import BucketOverlap, PriorityOverlap
from services.strategies.switching.rules import AtStepRule
from services.strategies.vector_sums import PowerSgd

RANK_OF_ONE = PowerSgd(rank=1, min_ratio=0, warm_start=False)
EXAMPLES: list[Strategy] = [
    SingleWorker(),
    AllReduce(),
    AllReduce(compress=PowerSgd(rank=4, min_ratio=0)),  # the full rank of the model's matrices
    AllReduce(compress=RANK_OF_ONE),
    AllReduce(overlap=BucketOverlap(bucket_size=Bytes("100B"))),
    AllReduce(overlap=PriorityOverlap(partition_size=Bytes("100B"))),
    ParameterServer(),
    ParameterServer(servers=3, synchrony=Bsp()),
    ParameterServer(synchrony=Asp()),
    ParameterServer(servers=2, synchrony=Asp(), rate="as_given"),
    ParameterServer(servers=2, synchrony=Ssp(staleness=2)),
    ParameterServer(synchrony=BackupWorkers(backups=0)),
    ParameterServer(synchrony=Gba()),
    ParameterServer(placement=ColocatedPlacement()),
    ParameterServer(placement=ColocatedPlacement(), synchrony=Asp()),
    ParameterServer(servers=1, placement=SpareNodePlacement()),
    LocalSgd(period=1),
    LocalSgd(period=1, average_optimiser_state=True),
    DiLoCo(period=1, outer=Momentum(rate=0.7, momentum=0.3, nesterov=True)),
    DiLoCo(period=2, fragments=2, overlap_steps=1, merge_weight=0.5, outer=Sgd(rate=0.7)),
    DPsgd(),
    DPsgd(topology=ExponentialGossip(), order="update_first"),
    DPsgd(topology=CompleteGossip(), order="update_first"),
    NoLoCo(period=1),
    NoLoCo(period=2, rate=1, momentum=0, pull=1),
    PartialAllReduce(group_size=2),
    PartialAllReduce(group_size=4, connect_within=30),
    AdPsgd(),
    Easgd(period=1),
    Easgd(period=1, synchrony=Asp(), servers=3),
    StrategySwitch(),
    StrategySwitch(before=ParameterServer(synchrony=Asp()), after=AllReduce(), when=AtStepRule(fraction=0.5)),
    StrategySwitch(after=ParameterServer(placement=ColocatedPlacement(), synchrony=Asp())),
    StrategySwitch(
        after=ParameterServer(placement=PromotedWorkerPlacement(workers=2), synchrony=Asp()),
        when=AtStepRule(fraction=0.5),
    ),
    SyncSwitch(servers=2),
    SyncSwitch(stragglers="elastic"),
    SyncSwitch(stragglers="greedy"),
    PostLocalSgd(period=2),
    StrategySwitch(after=LocalSgd(period=2), when=AtStepRule(fraction=0.5)),
    StrategySwitch(
        before=ParameterServer(synchrony=Asp()),
        after=DiLoCo(period=2, fragments=2, overlap_steps=1),
        when=AtStepRule(fraction=0.5),
    ),
]

MANY_WORKERS = 24
MEAN_GRADIENT = {  # kinds that update with the mean gradient of the batch: if synchronous, they equal serial training
    "all_reduce",
    "easgd",
    "local_sgd",
    "none",
    "parameter_server",
    "strategy_switch",
    "sync_switch",
}


def updates_with_mean_gradient(strategy: Strategy) -> bool:
    """Return whether a strategy, if it is synchronous, updates with the whole mean gradient of the batch."""
    is_approximate = isinstance(strategy, AllReduce) and strategy.compress == RANK_OF_ONE
    return strategy.kind in MEAN_GRADIENT and not is_approximate


every_strategy = pytest.mark.parametrize("strategy", EXAMPLES, ids=repr)
workers_and_entries = given(workers=st.integers(1, 17), entries=st.integers(1, 5000))


def allowed_workers(strategy: Strategy, workers: int) -> int:
    """Return this number of workers, or one if the strategy does not allow it."""
    return workers if fits(strategy, workers) else 1


def has_idle_servers(strategy: Strategy) -> bool:
    """Return whether the servers are idle until a switch."""
    phases = strategy.training_phases()
    return phases.first_phase_with_servers is not phases.first


def test_examples_table_contains_every_strategy() -> None:
    """A strategy that is not in the table is not tested."""

    trained = set(get_args(TrainingStrategy))  # the strategy of commands trains nothing: tests/commands has its tests
    assert {type(strategy) for strategy in EXAMPLES} == trained


@every_strategy
def test_strategy_survives_a_json_round_trip(strategy: Strategy) -> None:
    """The record of a run has the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyStrategy).validate_json(strategy.model_dump_json()) == strategy


@every_strategy
def test_every_strategy_allows_one_worker(strategy: Strategy) -> None:
    """Speedup is measured from one worker."""
    assert fits(strategy, 1)


def test_single_worker_strategy_rejects_two_workers() -> None:
    """Two workers that never exchange gradients would train two models."""
    assert not fits(SingleWorker(), 2)
    assert "one worker" in SingleWorker().explain_worker_count_conflict(2)


def first_phase(strategy: Strategy, entries: int) -> SinglePhaseStrategy:
    """Return the first training phase, for a model with a matrix of five columns and an array of the other entries."""
    phase = strategy.training_phases().first
    if not isinstance(phase, AllReduce):
        return phase
    shapes = ((entries // 5, 5), (entries % 5,))
    return phase.model_copy(update={"compress": fit_to_model(phase.compress, shapes)})


@every_strategy
@workers_and_entries
def test_bytes_are_predicted_for_every_node_and_double_with_fp64(
    strategy: Strategy, workers: int, entries: int
) -> None:
    """The prediction counts payload only: fp64 needs exactly twice as many bytes as fp32."""
    workers = allowed_workers(strategy, workers)

    fp32, fp64 = (
        first_phase(strategy, entries).sent_bytes_per_step(workers, entries, dtype) for dtype in ("float32", "float64")
    )

    assert (len(fp32.workers), len(fp32.servers)) == (
        workers,
        strategy.training_phases().server_count if not has_idle_servers(strategy) else 0,
    )
    assert fp64.workers == tuple(2 * count for count in fp32.workers)
    assert fp64.servers == tuple(2 * count for count in fp32.servers)


@pytest.mark.parametrize("kind", [DiLoCo, Easgd, LocalSgd, NoLoCo])
@given(period=st.integers(1, 2000), workers=st.integers(1, 17), entries=st.integers(1, 5000))
def test_bytes_of_a_period_add_up_to_one_exchange(
    kind: type[DiLoCo | Easgd | LocalSgd | NoLoCo], period: int, workers: int, entries: int
) -> None:
    """Over many steps a rounded value would add up to an error, and the check of sent bytes would fail."""
    with_period, every_step = (
        kind(period=steps).sent_bytes_per_step(workers, entries, "float32") for steps in (period, 1)
    )

    for name in ("workers", "servers", "replies"):
        bytes_of_period = [count * period for count in getattr(with_period, name)]
        assert bytes_of_period == pytest.approx(getattr(every_step, name), rel=1e-12)


@every_strategy
@workers_and_entries
def test_servers_reply_with_as_many_bytes_as_they_receive(strategy: Strategy, workers: int, entries: int) -> None:
    """The reply to a pushed gradient has parameters of the same size."""
    workers = allowed_workers(strategy, workers)

    phase = first_phase(strategy, entries)
    sent, algorithm = phase.sent_bytes_per_step(workers, entries, "float32"), phase.server_algorithm()

    if algorithm and algorithm.dedicated_server_count:
        pushed = sum(sent.workers) - sum(sent.replies)
        local_bytes = 4 * entries * workers - pushed  # between a worker and the server on the same node
        assert sum(sent.servers) + sum(sent.replies) == pushed
        assert local_bytes == 0 or isinstance(algorithm.placement, SpareNodePlacement)


@every_strategy
@settings(max_examples=20)
@given(workers=st.integers(1, 16), slower=st.floats(1, 10))
def test_slower_network_or_worker_never_makes_a_predicted_step_shorter(
    strategy: Strategy, workers: int, slower: float
) -> None:
    """Holds for the formula of every strategy."""
    workers = allowed_workers(strategy, workers)
    names = tuple(f"worker-{rank}" for rank in range(workers))
    servers = tuple(f"server-{rank}" for rank in range(strategy.training_phases().server_count))
    links = dict.fromkeys((*names, *servers), 1e-7)
    base = CostModel(
        workers=names,
        servers=servers,
        entries=250_000,
        dtype="float32",
        alpha_s=1e-4,
        uplink_s_per_byte=links,
        downlink_s_per_byte=links,
        compute_s=0.1,
    )

    phase = first_phase(strategy, base.entries)
    before = phase.predict_step_time(base)

    assert before.exchange_s >= 0
    for field in ("alpha_s", "uplink_s_per_byte", "downlink_s_per_byte", "compute_s"):
        value = getattr(base, field)
        slow = value * slower if isinstance(value, float) else {name: time * slower for name, time in value.items()}
        changed = base.model_copy(update={field: slow})
        assert phase.predict_step_time(changed).step_s >= before.step_s * (1 - 1e-12)  # except for rounding


@every_strategy
@given(workers=st.integers(1, 16))
def test_strategy_changes_only_the_rate_of_an_optimiser(strategy: Strategy, workers: int) -> None:
    """A strategy may scale the rate by the number of gradients per update; all other settings are the user's."""
    optimiser = Momentum(rate=0.1, momentum=0.7, nesterov=True)

    scaled = strategy.training_phases().first.scale_learning_rate(optimiser, workers)

    assert scaled.model_copy(update={"rate": 0.1}) == optimiser
    assert scaled.rate == pytest.approx(0.1) or scaled.rate == pytest.approx(0.1 / workers)


@given(
    params=st.lists(st.floats(-100, 100), min_size=1, max_size=6),
    alpha=st.floats(0, 0.15),
    at_once=st.booleans(),
)
def test_elastic_averaging_keeps_the_sum_of_workers_and_centre(
    params: list[float], alpha: float, at_once: bool
) -> None:
    """Without gradients, the centre receives as much as the workers lose, and all move closer to it."""
    workers, centre = [np.array([value]) for value in params], np.array([1.0])
    rule = ElasticAveragingRule(centre, alpha)
    rounds = [range(len(workers))] if at_once else [[rank] for rank in range(len(workers))]

    for ranks in rounds:
        rule.update_shard_params([WorkerContribution(rank, 1, 0, workers[rank]) for rank in ranks], 0)
        for rank in ranks:
            workers[rank] = workers[rank] - elastic_averaging_move(
                alpha, workers[rank], rule.make_push_reply_vector(rank)
            )

    assert sum(workers) + rule.params == pytest.approx(sum(params) + 1.0, abs=1e-9)


@every_strategy
def test_many_workers_use_the_budget_and_send_the_planned_bytes(strategy: Strategy) -> None:
    """Virtual time needs no processes, so 24 workers take a second; synchronous ones have the loss of one worker."""
    phases = strategy.training_phases()
    is_alike = phases.first.describe_worker_exchange().is_synchronous and not phases.switch
    steps = max(1 if is_alike else 2, getattr(strategy, "period", 1))  # all synchronous steps are alike
    trial = SimulatedTrial.of(strategy, steps, allowed_workers(strategy, MANY_WORKERS), MANY_WORKERS)
    serial = SimulatedTrial.of(SingleWorker(), steps, 1, MANY_WORKERS)

    plan, steps_by_worker = trial.plan, {name: trial.rows(name, "node_steps") for name in trial.workers}
    is_synchronous = plan.is_synchronous and (plan.second_phase is None or plan.second_phase.is_synchronous)
    budget, used = plan.epochs * plan.train_samples, trial.stop["samples_count"]
    assert len(steps_by_worker) == allowed_workers(strategy, MANY_WORKERS)
    assert trial.stop["reason"] == "budget used"
    assert budget <= used <= budget + (0 if is_synchronous else plan.batch)
    assert sum(row["samples"] for rows in steps_by_worker.values() for row in rows) == used
    assert len({len(rows) for rows in steps_by_worker.values()}) == 1 or not is_synchronous
    assert len(trial.events(COORDINATOR, "switch_committed")) == (phases.switch is not None)
    assert (
        trial.loss == pytest.approx(serial.loss, rel=1e-9)
        or not is_synchronous
        or not updates_with_mean_gradient(strategy)
    )
    if plan.second_phase is None:
        stops = [event["value"] for name in plan.bytes_per_step for event in trial.events(name, "node_stop")]
        sent = sum(stop["payload_bytes_sent"] for stop in stops)
        steps_per_worker = sum(map(len, steps_by_worker.values())) / len(steps_by_worker)  # a server replies to all
        evaluation_bytes = sum(plan.evaluation_bytes.values()) * len(trial.events(COORDINATOR, "eval_metrics"))
        assert sent == pytest.approx(sum(plan.bytes_per_step.values()) * steps_per_worker + evaluation_bytes)


@every_strategy
def test_replicas_are_equal_after_every_step_if_the_strategy_declares_it(strategy: Strategy) -> None:
    """A strategy switch trusts the declaration, and would report equal replicas as broken or move a wrong model."""
    phases = strategy.training_phases()
    if phases.switch or not phases.first.describe_worker_exchange().has_equal_replicas:
        pytest.skip("the replicas of this strategy may differ")

    trial = SimulatedTrial.of(strategy, 5, allowed_workers(strategy, 4), 8, hash_every_step=True)

    digests: dict[int, set[str]] = {}
    for event in (event for name in trial.workers for event in trial.events(name, "node_hash")):
        digests.setdefault(event["metadata"]["step"], set()).add(event["value"])
    assert {step: len(values) for step, values in digests.items()} == dict.fromkeys(range(1, 6), 1)


@every_strategy
def test_micro_batches_change_neither_losses_nor_bytes_nor_times(strategy: Strategy) -> None:
    """K micro-batches of b samples equal a batch of K·b, whatever is exchanged afterwards.

    An exchange that overlaps with the backward pass is rejected: it would begin in the last micro-batch.
    """
    workers = allowed_workers(strategy, 4)
    if isinstance(getattr(strategy, "overlap", None), BucketOverlap | PriorityOverlap):
        with pytest.raises(ValidationError, match="last of 3 micro-batches"):
            SimulatedTrial.of(strategy, 6, workers, 16, micro_batches=3)
        return

    whole, divided = (SimulatedTrial.of(strategy, 6, workers, 16, micro_batches=count) for count in (1, 3))

    assert divided.stop["reason"] == whole.stop["reason"] == "budget used"
    losses = [[row["loss"] for row in trial.rows(whole.workers[0], "node_steps")] for trial in (divided, whole)]
    has_other_rounding = losses[0] != losses[1] or divided.params_sha256 != whole.params_sha256
    assert has_other_rounding, "the order of the sums differs"
    assert divided.loss == pytest.approx(whole.loss, rel=1e-7)
    for name in whole.workers:
        rows, expected = (trial.rows(name, "node_steps") for trial in (divided, whole))
        assert [row["loss"] for row in rows] == pytest.approx([row["loss"] for row in expected], rel=1e-7)
        for key in ("step_s", "samples", "bytes_sent"):
            assert [row[key] for row in rows] == [row[key] for row in expected]


@every_strategy
def test_every_strategy_trains_the_model_of_a_user(strategy: Strategy) -> None:
    """The contract of models is all that a strategy needs; here, the smallest trial with an exchange."""
    workers, model = allowed_workers(strategy, 4), perceptron(hidden=9).model_dump(mode="json")
    trial = SimulatedTrial.of(strategy, 24, workers, 8, model=model, optimiser={"kind": "sgd", "rate": 0.05})

    losses = [row["loss"] for row in trial.rows(trial.workers[0], "node_steps")]
    assert trial.stop["reason"] == "budget used"
    assert sum(losses[-6:]) < sum(losses[:6])


@every_strategy
def test_trial_on_a_device_that_refuses_what_a_gpu_refuses_gives_the_bits_of_the_cpu(
    strategy: Strategy, use_guarded_device: Callable[[], None]
) -> None:
    """The exchange, the updates and a switch must copy between device and host where a GPU needs it."""
    workers = allowed_workers(strategy, 4)
    on_cpu = SimulatedTrial.of(strategy, 6, workers, 8)

    use_guarded_device()
    guarded = SimulatedTrial.of(strategy, 6, workers, 8)

    assert [guarded.device_of(name) for name in guarded.workers] == [GuardedDevice.name] * workers
    assert guarded.params_sha256 == on_cpu.params_sha256
    assert len(guarded.events(COORDINATOR, "switch_committed")) == (strategy.training_phases().switch is not None)


@pytest.mark.torch
@every_strategy
def test_every_strategy_trains_a_module_of_pytorch(strategy: Strategy) -> None:
    """All workers of a simulation share one module in memory; each must compute with its own parameters."""
    pytest.importorskip("torch")
    workers, model = allowed_workers(strategy, 4), torch_net("Values").model_dump(mode="json")
    trial = SimulatedTrial.of(strategy, 24, workers, 8, model=model, optimiser={"kind": "sgd", "rate": 0.05})

    losses = [row["loss"] for row in trial.rows(trial.workers[0], "node_steps")]
    assert trial.stop["reason"] == "budget used"
    assert len(trial.events(COORDINATOR, "switch_committed")) == (strategy.training_phases().switch is not None)
    assert sum(losses[-6:]) < sum(losses[:6])


@pytest.mark.torch
@every_strategy
def test_synchronous_strategies_train_a_module_of_pytorch_as_one_worker_does(strategy: Strategy) -> None:
    """The mean gradient of all workers is that of the whole batch, whatever computes it."""
    pytest.importorskip("torch")
    phases, steps = strategy.training_phases(), getattr(strategy, "period", 1)
    is_synchronous = phases.first.describe_worker_exchange().is_synchronous
    if phases.switch or not is_synchronous or not updates_with_mean_gradient(strategy):
        pytest.skip("the strategy does not update with the mean gradient of the batch")
    model = torch_net("Values").model_dump(mode="json")

    trial = SimulatedTrial.of(strategy, steps, allowed_workers(strategy, 4), 8, model=model)

    assert trial.loss == pytest.approx(SimulatedTrial.of(SingleWorker(), steps, 1, 8, model=model).loss, rel=1e-9)


@every_strategy
@pytest.mark.parametrize("is_guarded", [False, True], ids=["cpu", "guarded"])
def test_workers_that_read_their_state_from_a_checkpoint_before_each_step_get_the_same_bits(
    strategy: Strategy, is_guarded: bool, monkeypatch: pytest.MonkeyPatch, use_guarded_device: Callable[[], None]
) -> None:
    """A restored worker must continue as if it had never stopped, so a checkpoint has every bit of its state."""
    workers = allowed_workers(strategy, 4)
    if is_guarded:
        use_guarded_device()
    trial = SimulatedTrial.of(strategy, 7, workers, 8)

    stored = store_state_before_each_step(monkeypatch)
    restored = SimulatedTrial.of(strategy, 7, workers, 8)

    assert restored.params_sha256 == trial.params_sha256
    assert stored.count >= workers
    overlaps = "overlap_steps=1" in repr(strategy)
    assert bool(stored.unstorable) == overlaps, "only an exchange that is still running can't be stored"
    assert all("running" in message for message in stored.unstorable)


@pytest.mark.parametrize(
    "strategy",
    [
        *(strategy for strategy in EXAMPLES if strategy.training_phases().first_phase_with_servers),
        ParameterServer(synchrony=Asp(), compensation=AdaptiveDcAsgd()),
        ParameterServer(servers=2, compress_replies=Int8()),
        ParameterServer(servers=2, synchrony=Ssp(staleness=2), compress_replies=OneBit()),
    ],
    ids=repr,
)
def test_servers_that_read_their_state_from_a_checkpoint_between_updates_get_the_same_bits(
    strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimiser of a model on servers, and what replies have left out, exist nowhere else."""
    trial = SimulatedTrial.of(strategy, 8, 4, 8)

    stored = store_servers_between_updates(monkeypatch)
    restored = SimulatedTrial.of(strategy, 8, 4, 8)

    assert restored.params_sha256 == trial.params_sha256
    assert stored.count >= 8


@pytest.mark.parametrize("seed", [1, 2])
@every_strategy
def test_every_message_counts_once_although_messages_are_late_out_of_order_and_repeated(
    strategy: Strategy, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that are opened again send messages twice; no sample and no push may be lost or count twice."""
    workers = allowed_workers(strategy, 4)
    undisturbed = SimulatedTrial.of(strategy, 12, workers, 8)

    faults = inject_message_faults(monkeypatch, seed)
    trial = SimulatedTrial.of(strategy, 12, workers, 8)

    plan, steps_by_worker = trial.plan, {name: trial.rows(name, "node_steps") for name in trial.workers}
    is_synchronous = plan.is_synchronous and (plan.second_phase is None or plan.second_phase.is_synchronous)
    budget, used = plan.epochs * plan.train_samples, trial.stop["samples_count"]
    assert trial.stop["reason"] == "budget used"
    assert workers == 1 or min(faults.counts[kind] for kind in ("delayed", "overtaken", "repeated")) > 0
    assert sum(row["samples"] for rows in steps_by_worker.values() for row in rows) == used
    if is_synchronous:
        assert used == budget
        assert trial.params_sha256 == undisturbed.params_sha256
    for owner in plan.shard_owners:
        pushes = [row for key in ("shard_updates", "shard_drops") for row in trial.rows(owner, key)]
        assert len({(row["worker"], row["push_step"]) for row in pushes}) == len(pushes)
        if not plan.second_phase:
            assert len(pushes) == sum(map(len, steps_by_worker.values())) // getattr(strategy, "period", 1)
