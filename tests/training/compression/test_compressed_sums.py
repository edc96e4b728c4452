"""Trials in which workers sum compressed vectors that cannot be added at every hop, also with a compressor's state."""

from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pytest
from whole_vector_compressors import DrawnEntries, GatheredIdentity, LargestEntries

from services.collectives.all_gather import AllGather, DirectAllGather, RingAllGather, TreeAllGather
from services.collectives.base import TransferSchedule
from services.collectives.execution.executor import GroupMember
from services.compressors import Compressor, CompressorSeed, Dgc, ErrorFeedback, Int8, OneBit, RandomK
from services.runtime.device import ComputeDevice
from services.schema.arrays import Vector
from services.schema.errors import ProtocolError, first_error_in_group
from services.strategies.vector_sums import Summand, VectorSum
from services.strategies.vector_sums.added_payloads import AddedPayloads
from services.strategies.vector_sums.gathered_payloads import GatheredPayloads

# plan.json of these trials has compressors that no scenario can name.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")

Simulate = Callable[..., Any]
RING = {"kind": "all_reduce"}
ASP = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}
HALF_RING = RING | {"compress": {"kind": "fp16"}}
SGD = {"kind": "sgd", "rate": 0.05}
ALL_GATHER_EXAMPLES: list[AllGather] = [RingAllGather(), TreeAllGather(), DirectAllGather()]
STRATEGIES = [RING, {"kind": "local_sgd", "period": 7}]

every_gather = pytest.mark.parametrize("gather", ALL_GATHER_EXAMPLES, ids=attrgetter("kind"))
every_worker_count = pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy["kind"])
stateful = pytest.mark.parametrize("compressor", [LargestEntries(), DrawnEntries()], ids=attrgetter("kind"))


@pytest.fixture
def simulate_whole(simulate: Simulate) -> Simulate:
    """Simulate an all-reduce or local SGD: `simulate_whole(strategy, workers, compressor, gather)`."""

    def run(
        strategy: dict[str, Any],
        workers: int,
        compressor: Compressor | None = None,
        gather: AllGather | None = None,
        **settings: Any,
    ) -> Any:
        parts = {"compress": compressor, "gather": gather}
        return simulate(
            strategy, workers, parts={key: part for key, part in parts.items() if part is not None}, **settings
        )

    return run


def replica_digests(trial: Any) -> dict[int, set[str]]:
    """Return the digests of the parameters of all workers, by step."""
    events = [event for rank in range(trial.plan.workers) for event in trial.events(f"worker-{rank}", "node_hash")]
    in_order = sorted(events, key=lambda event: event["metadata"]["step"])
    by_step = groupby(in_order, key=lambda event: event["metadata"]["step"])
    return {step: {event["value"] for event in events} for step, events in by_step}


REGISTERED = [Dgc(ratio=0.1), ErrorFeedback(inner=RandomK(ratio=0.1)), Int8(bucket=16), OneBit(bucket=16)]


@pytest.mark.parametrize(
    "compressor",
    [LargestEntries(), DrawnEntries(), GatheredIdentity(), *REGISTERED],
    ids=attrgetter("kind"),
)
@every_gather
@every_worker_count
def test_replicas_are_bitwise_equal_after_every_step(
    simulate_whole: Simulate, compressor: Compressor, gather: AllGather, workers: int
) -> None:
    """All workers add the same payloads in the same order, although they receive them in different orders."""
    trial = simulate_whole(RING, workers, compressor, gather, hash_every_step=True, epochs=1)

    digests = replica_digests(trial)
    assert len(digests) == 7
    assert {len(each) for each in digests.values()} == {1}


@every_gather
@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
def test_gathered_identity_trains_as_the_ring(simulate_whole: Simulate, gather: AllGather, workers: int) -> None:
    """The sum is the same up to rounding, whatever the path of the summands."""
    trial = simulate_whole(RING, workers, GatheredIdentity(), gather)

    ring = simulate_whole(RING, workers)
    np.testing.assert_allclose(trial.params, ring.params, rtol=1e-6, atol=1e-6)


@every_gather
def test_gathered_identity_averages_parameters_as_the_ring(simulate_whole: Simulate, gather: AllGather) -> None:
    """The mean of differences to common parameters, added to these parameters, is the mean of the parameters."""
    strategy = {"kind": "local_sgd", "period": 7}

    trial, ring = simulate_whole(strategy, 3, GatheredIdentity(), gather), simulate_whole(strategy, 3)

    np.testing.assert_allclose(trial.params, ring.params, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("compressor", [LargestEntries(), DrawnEntries(), GatheredIdentity()], ids=attrgetter("kind"))
@every_gather
@every_strategy
@every_worker_count
@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_every_worker_sends_the_bytes_of_the_plan(
    simulate_whole: Simulate,
    compressor: Compressor,
    gather: AllGather,
    strategy: dict[str, Any],
    workers: int,
    precision: str,
) -> None:
    """Bytes are compared with interface counters: an inexact prediction would make differences meaningless."""
    trial = simulate_whole(strategy, workers, compressor, gather, epochs=1, precision=precision)

    for rank in range(workers):
        sent = trial.value(f"worker-{rank}", "node_stop")["payload_bytes_sent"]
        assert sent == pytest.approx(7 * trial.plan.bytes_per_step[f"worker-{rank}"])
    assert trial.plan.bytes_per_step["worker-0"] > 0 or workers == 1


def test_gathered_sparse_payloads_are_values_and_indices(simulate_whole: Simulate) -> None:
    """37 parameters, of which 9 are sent with their indices to each of three other workers."""
    trial = simulate_whole(RING, 4, LargestEntries(), RingAllGather())

    assert trial.plan.parameters == 37
    assert trial.plan.bytes_per_step["worker-0"] == 3 * 9 * (4 + 4)


@every_gather
@pytest.mark.parametrize("strategy", [RING, {"kind": "local_sgd", "period": 5}], ids=lambda strategy: strategy["kind"])
@pytest.mark.parametrize("workers", [2, 3, 4, 7, 8])
@pytest.mark.parametrize("delay", [{}, {"delay": "20ms"}], ids=["near", "far"])
def test_step_time_is_that_of_the_closed_form(
    simulate_whole: Simulate, gather: AllGather, strategy: dict[str, Any], workers: int, delay: dict[str, str]
) -> None:
    """The plan predicts what a step will take before it is run."""
    cluster = {"worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "1mbit", **delay}}
    data = {"kind": "synthetic_regression", "samples": 25 * workers, "features": 4, "outputs": 2}  # 10 steps
    model = {"kind": "mlp", "hidden": [200], "activation": "tanh"}
    work = {"dataset": data, "batch": 2 * workers, "epochs": 1, "model": model}

    trial = simulate_whole(strategy, workers, LargestEntries(), gather, cluster=cluster, **work)

    steps_s = [row["step_s"] for row in trial.steps(0)]
    assert np.mean(steps_s[:5]) == pytest.approx(trial.plan.predicted.step_s, rel=0.02)
    assert trial.plan.predicted.inapplicable_reason == ""


class RecordedSum(NamedTuple):
    """One worker's part of a sum."""

    rank: int
    number: int
    summand: Vector  # with its weight
    total: Vector
    residual: Vector  # afterwards


@pytest.fixture
def recorded_sums(monkeypatch: pytest.MonkeyPatch) -> list[RecordedSum]:
    """Record all sums of a trial."""
    records: list[RecordedSum] = []
    for kind in (AddedPayloads, GatheredPayloads):
        monkeypatch.setattr(kind, "add_vectors", recording(kind.add_vectors, records))
    return records


def recording(add_vectors: Callable[..., Any], records: list[RecordedSum]) -> Callable[..., Any]:
    """Return the function with which workers add vectors, with a record of each call."""

    async def add_and_record(
        self: VectorSum,
        member: GroupMember,
        schedule: TransferSchedule,
        number: int,
        summand: Summand,
        state: Any,
        device: ComputeDevice,
    ) -> tuple[Vector, Any]:
        total, after = await add_vectors(self, member, schedule, number, summand, state, device)
        records.append(
            RecordedSum(member.rank, number, summand.vector * summand.weight, total, getattr(after, "residual", after))
        )
        return total, after

    return add_and_record


def unsent_and_sent(records: list[RecordedSum]) -> tuple[Vector, Vector, Vector]:
    """Return the sums over all steps and workers of what was to be sent, of what arrived, and of the last residuals."""
    last = {record.rank: record.residual for record in records}
    totals = {record.number: record.total for record in records}
    return np.sum([each.summand for each in records], 0), np.sum(list(totals.values()), 0), sum(last.values())


@stateful
@every_strategy
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_what_arrives_and_the_residuals_are_together_all_gradients(
    simulate_whole: Simulate,
    recorded_sums: list[RecordedSum],
    compressor: Compressor,
    strategy: dict[str, Any],
    workers: int,
) -> None:
    """Error feedback delays entries but loses none; the workers train with nothing else than what has arrived."""
    trial = simulate_whole(strategy, workers, compressor, precision="fp64", optimiser=SGD)

    wanted, arrived, residuals = unsent_and_sent(recorded_sums)
    np.testing.assert_allclose(arrived + residuals, wanted, rtol=1e-9, atol=1e-12)
    assert abs(residuals).max() > 1e-6
    initial = trial.plan.model.init_parameters(trial.plan.dataset.load("float64").task, trial.plan.seed, "float64")
    rate = -SGD["rate"] if strategy == RING else 1
    np.testing.assert_allclose(trial.params, initial + rate * arrived, rtol=1e-9, atol=1e-12)


@stateful
@every_strategy
def test_a_lost_state_is_noticed(
    simulate_whole: Simulate,
    recorded_sums: list[RecordedSum],
    compressor: Compressor,
    strategy: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test above would fail if a worker forgot its residual between two steps."""
    for kind in (AddedPayloads, GatheredPayloads):
        monkeypatch.setattr(kind, "add_vectors", without_state(kind.add_vectors, compressor))

    simulate_whole(strategy, 3, compressor, precision="fp64", optimiser=SGD)

    wanted, arrived, residuals = unsent_and_sent(recorded_sums)
    assert abs(arrived + residuals - wanted).max() > 1e-3 * abs(wanted).max()


def without_state(add_vectors: Callable[..., Any], compressor: Compressor) -> Callable[..., Any]:
    """Return the function with which workers add vectors, always with the initial state of the compressor."""

    async def add_with_initial_state(
        self: VectorSum,
        member: GroupMember,
        schedule: TransferSchedule,
        number: int,
        summand: Summand,
        state: Any,
        device: ComputeDevice,
    ) -> tuple[Vector, Any]:
        initial = compressor.init_state(summand.vector.size, CompressorSeed())
        return await add_vectors(self, member, schedule, number, summand, initial, device)

    return add_with_initial_state


def test_sparse_local_sgd_trains(simulate_whole: Simulate) -> None:
    """Sparse parameters instead of sparse differences would set most parameters to zero."""
    trial = simulate_whole({"kind": "local_sgd", "period": 7}, 3, LargestEntries(), epochs=12, optimiser=SGD)

    losses = [event["value"]["loss"] for event in trial.events("coordinator", "eval_metrics")]
    assert losses[-1] < 0.7 * losses[0]
    assert np.count_nonzero(trial.params) > 0.9 * trial.params.size


def test_workers_that_encode_different_entries_end_the_trial(simulate_whole: Simulate) -> None:
    """Their sum would be meaningless: each entry would come from another place of the vector."""
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - an exception group
        simulate_whole(RING, 3, DrawnEntries(draws_by_sender=True))

    error = first_error_in_group(raised.value)
    assert isinstance(error, ProtocolError)
    assert "compresses other entries than another rank" in str(error)


@pytest.mark.parametrize(
    ("compressor", "has_state"),
    [
        ({"kind": "error_feedback", "inner": {"kind": "top_k", "ratio": 0.1}}, True),
        ({"kind": "top_k", "ratio": 0.1}, False),
        ({"kind": "identity"}, False),
    ],
    ids=["residual", "without", "identity"],
)
@pytest.mark.parametrize("after", ["parameter_server", "all_reduce"])
def test_switch_drops_residuals_and_the_plan_records_it(
    simulate: Simulate, compressor: dict[str, Any], has_state: bool, after: str
) -> None:
    """A residual belongs to the ranges of one phase. All nodes have the same parameters at the switch nevertheless."""
    strategy = {
        "kind": "strategy_switch",
        "before": RING | {"compress": compressor},
        "after": {"parameter_server": ASP | {"compress": compressor}, "all_reduce": HALF_RING}[after],
        "when": {"kind": "at", "step": 7},
    }

    trial = simulate(strategy, 3, optimiser=SGD)

    assert trial.plan.second_phase.drops_compressor_state == has_state
    (committed,) = trial.events("coordinator", "switch_committed")
    assert committed["value"]["step"] == 7
    switches = [trial.value(f"worker-{rank}", "node_switch")["verb"] for rank in range(3)]
    assert switches == ["commit"] * 3
