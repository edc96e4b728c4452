"""Sums of levels that all workers count in the same steps: bounds, mean, bytes, times and replicas."""

from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from services.compressors import Int8
from services.compressors.encoding.levels import compute_steps
from services.schema.arrays import HostArray
from services.strategies.vector_sums.shared_scale_sum import MAX_RANKS, SharedScaleSum

Simulate = Callable[..., Any]
RING = {"kind": "all_reduce"}
SGD = {"kind": "sgd", "rate": 0.05}
COLLECTIVES = ["ring", "halving_doubling", "tree", "recursive_doubling", "double_tree"]
BUCKET = 16


def shared(**keys: Any) -> dict[str, Any]:
    return RING | {"compress": {"kind": "int8", "scale": "shared", "bucket": BUCKET} | keys}


class RecordedSums:
    """Weighted vectors of all workers, and their sums, by number of the sum."""

    def __init__(self) -> None:
        self.summands: dict[int, list[HostArray]] = {}
        self.totals: dict[int, HostArray] = {}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> RecordedSums:
    """Record all sums of a trial."""
    sums, add_vectors = RecordedSums(), SharedScaleSum.add_vectors

    async def add_and_record(self: Any, member: Any, schedule: Any, number: int, summand: Any, *rest: Any) -> Any:
        total, state = await add_vectors(self, member, schedule, number, summand, *rest)
        sums.summands.setdefault(number, []).append(summand.vector * summand.vector.dtype.type(summand.weight))
        sums.totals[number] = total
        return total, state

    monkeypatch.setattr(SharedScaleSum, "add_vectors", add_and_record)
    return sums


def steps_of_entries(summands: list[HostArray]) -> HostArray:
    """Return the step of each entry: the largest magnitude of its bucket among all workers, divided by 127."""
    peaks = np.abs(summands).max(axis=0)
    starts = range(0, peaks.size, BUCKET)
    steps = compute_steps(np.array([peaks[start : start + BUCKET].max() for start in starts], "float32"), 127)
    return np.repeat(steps, BUCKET)[: peaks.size].astype("float64")


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize(("rounding", "limit"), [("stochastic", 1.0), ("nearest", 0.5001)])
def test_error_of_a_sum_is_below_one_step_of_each_worker(
    simulate: Simulate, recorded: RecordedSums, collective: str, workers: int, rounding: str, limit: float
) -> None:
    """Only the rounding of each worker's own vector adds an error: partial sums are exact on every route."""
    simulate(shared(rounding=rounding) | {"collective": {"kind": collective}}, workers, optimiser=SGD)

    assert len(recorded.totals) == 21
    for number, summands in recorded.summands.items():
        assert len(summands) == workers
        errors = recorded.totals[number] - np.sum(summands, axis=0, dtype="float64")
        assert (abs(errors) <= workers * limit * steps_of_entries(summands) * (1 + 1e-4) + 1e-9).all()
        assert abs(errors).max() > 0


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_route_gives_the_same_bits(simulate: Simulate, collective: str) -> None:
    """Whole numbers have no rounding errors, so their order does not matter."""
    trial = simulate(shared() | {"collective": {"kind": collective}}, 4, optimiser=SGD)

    assert trial.params.tobytes() == simulate(shared(), 4, optimiser=SGD).params.tobytes()


def test_sum_is_unbiased_and_its_variance_is_bounded(simulate: Simulate, recorded: RecordedSums) -> None:
    """With a learning rate near 0, all steps of all epochs round the same gradients again, with other numbers."""
    still = {"kind": "sgd", "rate": 1e-12}
    simulate(shared(), 3, optimiser=still, batch=80, epochs=600, evaluate_every=80 * 600)

    errors = np.array(
        [
            (recorded.totals[number] - np.sum(summands, axis=0, dtype="float64")) / steps_of_entries(summands)
            for number, summands in recorded.summands.items()
        ]
    )
    assert len(errors) == 600
    deviations = abs(errors.mean(axis=0)) / (errors.std(axis=0) / len(errors) ** 0.5 + 1e-6)
    assert deviations.max() < 5
    assert (errors**2).mean(axis=0).max() <= 1.25 * 3 / 4  # three workers, with a variance of at most a quarter each


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("collective", ["ring", "tree"])
def test_every_worker_sends_the_bytes_of_the_plan_and_replicas_are_equal(
    simulate: Simulate, workers: int, precision: str, collective: str
) -> None:
    """Bytes are compared with interface counters; replicas that differ would drift apart."""
    trial = simulate(
        shared() | {"collective": {"kind": collective}}, workers, precision=precision, epochs=1, hash_every_step=True
    )

    for rank in range(workers):
        sent = trial.value(f"worker-{rank}", "node_stop")["payload_bytes_sent"]
        assert sent == 7 * trial.plan.bytes_per_step[f"worker-{rank}"]
    events = [event for rank in range(workers) for event in trial.events(f"worker-{rank}", "node_hash")]
    in_order = sorted(events, key=lambda event: event["metadata"]["step"])
    digests = [{event["value"] for event in each} for _, each in groupby(in_order, lambda e: e["metadata"]["step"])]
    assert len(digests) == 7
    assert {len(each) for each in digests} == {1}
    assert trial.plan.sums_per_exchange == 2


def test_bytes_are_two_per_entry_and_those_of_the_largest_magnitudes(simulate: Simulate) -> None:
    """Two workers send each vector of a ring once: 37 levels, and three scales."""
    plan = simulate(shared(), 2, epochs=1).plan

    assert plan.parameters == 37
    assert plan.bytes_per_step["worker-0"] == 2 * 37 + 4 * 3


@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("delay", [{}, {"delay": "20ms"}], ids=["near", "far"])
def test_step_time_is_that_of_the_closed_form(simulate: Simulate, workers: int, delay: dict[str, str]) -> None:
    """The plan predicts what a step will take before it is run: the time of two all-reduces."""
    cluster = {"worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "1mbit", **delay}}
    data = {"kind": "synthetic_regression", "samples": 25 * workers, "features": 40, "outputs": 2}
    model = {"kind": "mlp", "hidden": [300], "activation": "tanh"}
    trial = simulate(shared(), workers, cluster=cluster, dataset=data, batch=2 * workers, epochs=1, model=model)

    steps_s = [row["step_s"] for row in trial.steps(0)]
    assert np.mean(steps_s) == pytest.approx(trial.plan.predicted.step_s, rel=0.02)
    assert trial.plan.predicted.inapplicable_reason == ""


def test_one_worker_trains_without_compression(simulate: Simulate) -> None:
    """It sends nothing."""
    assert simulate(shared(), 1).params.tobytes() == simulate(RING, 1).params.tobytes()


def test_entries_of_zeros_stay_zero(simulate: Simulate, recorded: RecordedSums) -> None:
    """A bucket of zeros on all workers has the step 0, for which levels have no meaning."""
    digits = {"dataset": {"kind": "digits"}, "model": {"kind": "mlp", "hidden": [16]}}  # some pixels are always 0
    simulate(shared(), 3, optimiser=SGD, batch=300, epochs=1, **digits)

    zeros = 0
    for number, summands in recorded.summands.items():
        is_zero = (np.abs(summands) == 0).all(axis=0)
        zeros += int(is_zero.sum())
        assert (recorded.totals[number][is_zero] == 0).all()
    assert zeros > BUCKET


def test_value_that_is_not_finite_on_one_worker_is_nan_on_all(simulate: Simulate) -> None:
    """The trial must end as diverged."""
    trial = simulate(shared(), 3, optimiser={"kind": "sgd", "rate": 1e30})

    (stop,) = trial.events("coordinator", "run_stop")
    assert stop["metadata"]["diverged"]


def test_sums_of_the_largest_levels_fit_into_the_numbers_on_the_wire() -> None:
    """A sum that overflows would change its sign."""
    assert MAX_RANKS * 127 <= np.iinfo("int16").max < (MAX_RANKS + 1) * 127
    assert Int8(scale="shared").aggregation == "shared_scale"
