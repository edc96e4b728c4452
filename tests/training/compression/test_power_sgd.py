"""Trials and sums with PowerSGD, whose workers sum two factors of low rank instead of each matrix."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pytest

from services.cluster.links.fluid_link import RateLimiter
from services.collectives import Ring, TransferSchedule
from services.collectives.execution.executor import GroupMember, run_transfers
from services.compressors import CompressorSeed, IdentityCompressor
from services.runtime.device import CpuDevice
from services.schema.arrays import HostArray, Vector
from services.schema.errors import ProtocolError
from services.strategies.vector_sums import PowerSgd, Summand, low_rank_sum
from services.strategies.vector_sums.low_rank_factors import LowRankLayout, draw_right_factor
from services.strategies.vector_sums.low_rank_sum import LowRankState, LowRankSum
from services.transport.virtual import VirtualFabric

Simulate = Callable[..., Any]
RING = {"kind": "all_reduce"}
SGD = {"kind": "sgd", "rate": 0.05}
SHAPES = ((12, 9), (9,), (9, 4), (4,))
ENTRIES = 157  # 12·9 + 9 + 9·4 + 4


def power_sgd(**keys: Any) -> dict[str, Any]:
    """Return an all-reduce with PowerSGD; arrays are compressed even if their factors are longer."""
    return RING | {"compress": {"kind": "power_sgd", "min_ratio": 0, **keys}}


class LowRankGroup:
    """Workers that sum vectors again and again in virtual time."""

    def __init__(self, in_virtual_time: Callable[[Any], Any], workers: int, seed: int = 1, **keys: Any) -> None:
        compress = PowerSgd(min_ratio=0, **keys).fit_to_model(SHAPES)
        self.sum = LowRankSum(IdentityCompressor(), Ring(), compress)
        self.states = [self.sum.init_state(np.zeros(ENTRIES), CompressorSeed(seed, rank)) for rank in range(workers)]
        self._in_virtual_time = in_virtual_time
        self._number = 0

    def add(self, vectors: Sequence[HostArray], weights: Sequence[float] = ()) -> list[Vector]:
        """Return the sum at each rank."""
        return self._in_virtual_time(self._add(vectors, weights or [1 / len(vectors)] * len(vectors)))

    async def _add(self, vectors: Sequence[HostArray], weights: Sequence[float]) -> list[Vector]:
        names = [f"worker-{rank}" for rank in range(len(vectors))]
        links = [{name: RateLimiter(np.inf) for name in names} for _ in range(2)]
        fabric = VirtualFabric(*links, timeout_s=1e6)
        schedule = self.sum.plan_transfers(len(names))
        results = await asyncio.gather(
            *(
                self.sum.add_vectors(
                    GroupMember(fabric.make_transport(name), names, rank),
                    schedule,
                    self._number,
                    Summand(vectors[rank], weights[rank]),
                    self.states[rank],
                    CpuDevice("", ""),
                )
                for rank, name in enumerate(names)
            )
        )
        self._number += 1
        self.states = [state for _, state in results]
        return [total for total, _ in results]


@pytest.mark.parametrize(
    ("compress", "reason"),
    [
        (PowerSgd(), "has not been fitted to the arrays of a model"),
        (PowerSgd().fit_to_model(SHAPES), "a model with 157 entries, but a vector has 156 entries"),
    ],
    ids=["no arrays", "another length"],
)
def test_power_sgd_that_does_not_know_the_arrays_of_a_vector_is_an_error(compress: PowerSgd, reason: str) -> None:
    """It would otherwise sum matrices without compression, or cut the vector at wrong places."""
    with pytest.raises(ProtocolError, match=reason):
        compress.layout_of_vector(ENTRIES - 1)


@pytest.fixture
def group(in_virtual_time: Callable[[Any], Any]) -> Callable[..., LowRankGroup]:
    """Return a function that makes a group of workers: `group(workers, rank=2)`."""

    def make(workers: int, **keys: Any) -> LowRankGroup:
        return LowRankGroup(in_virtual_time, workers, **keys)

    return make


def vector_of_rank(rank: int, dtype: str = "float64") -> HostArray:
    """Return a gradient whose matrices have this rank."""
    rng = np.random.default_rng(3)
    arrays = (
        rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))
        if len(shape) > 1
        else rng.standard_normal(shape)
        for shape in SHAPES
    )
    return np.concatenate([array.ravel() for array in arrays]).astype(dtype)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("workers", [2, 3])
def test_gradient_of_low_rank_is_recovered_in_one_step(
    group: Callable[..., LowRankGroup], rank: int, workers: int
) -> None:
    """The left factor spans all columns of the matrix, so the projection on it loses nothing."""
    gradient, workers_of_trial = vector_of_rank(rank), group(workers, rank=rank)

    totals = workers_of_trial.add([gradient] * workers)

    for total, state in zip(totals, workers_of_trial.states, strict=True):
        np.testing.assert_allclose(total, gradient, rtol=0, atol=1e-12)
        np.testing.assert_allclose(state.residual, 0, atol=1e-12)


def test_gradient_of_a_higher_rank_is_not_recovered_in_one_step(group: Callable[..., LowRankGroup]) -> None:
    """The test above would not notice a sum without compression."""
    gradient = vector_of_rank(4)

    (total, _) = group(2, rank=2).add([gradient] * 2)

    assert np.linalg.norm(total - gradient) > 0.1 * np.linalg.norm(gradient)


def test_arrays_with_one_axis_are_summed_uncompressed(group: Callable[..., LowRankGroup]) -> None:
    """They have no matrix; their messages are those of the left factors."""
    vectors = np.random.default_rng(0).standard_normal((3, ENTRIES))

    totals = group(3, rank=1).add(list(vectors))

    for stop, size in ((117, 9), (ENTRIES, 4)):
        np.testing.assert_allclose(totals[0][stop - size : stop], vectors.mean(0)[stop - size : stop], rtol=1e-12)


@pytest.mark.parametrize("warm_start", [True, False])
@pytest.mark.parametrize("rank", [1, 2])
def test_repeated_gradient_arrives_completely(group: Callable[..., LowRankGroup], rank: int, warm_start: bool) -> None:
    """Error feedback: with a constant gradient, the mean of all updates tends to the gradient."""
    gradient, workers = vector_of_rank(4), group(2, rank=rank, warm_start=warm_start)

    mean = np.mean([workers.add([gradient] * 2)[0] for _ in range(200)], 0)

    assert np.linalg.norm(mean - gradient) < 0.05 * np.linalg.norm(gradient)


def test_warm_start_finds_the_largest_part_of_a_constant_gradient(group: Callable[..., LowRankGroup]) -> None:
    """Each step is one step of the power method, so the factors tend to the largest singular vectors."""
    gradient = vector_of_rank(4)
    matrix = gradient[:108].reshape(12, 9)
    left, _, _ = np.linalg.svd(matrix)
    shares = {}
    for warm_start in (True, False):
        workers = group(2, rank=1, warm_start=warm_start)
        for _ in range(12):
            workers.states = [state._replace(residual=None) for state in workers.states]
            total = workers.add([gradient] * 2)[0][:108].reshape(12, 9)
        shares[warm_start] = np.linalg.norm(left[:, 0] @ total) / np.linalg.norm(total)

    assert shares[True] > 0.999
    assert shares[False] < 0.99


@pytest.mark.parametrize("warm_start", [True, False])
def test_gradient_of_zeros_gives_zeros_and_later_gradients_arrive(
    group: Callable[..., LowRankGroup], warm_start: bool
) -> None:
    """Orthonormal columns of zeros must not divide by 0, and a factor of zeros must not stay 0 for ever."""
    gradient, workers = vector_of_rank(2), group(3, rank=2, warm_start=warm_start)

    zeros = workers.add([np.zeros(ENTRIES)] * 3)
    totals = workers.add([gradient] * 3)

    np.testing.assert_array_equal(zeros, 0)
    np.testing.assert_allclose(totals[0], gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12])
def test_update_is_proportional_to_the_gradient(group: Callable[..., LowRankGroup], scale: float) -> None:
    """No constant in a denominator makes small gradients smaller, and fp32 factors do not underflow in later steps."""
    gradient, workers = vector_of_rank(2, "float32"), group(2, rank=2)

    for _ in range(4):
        totals = workers.add([gradient * np.float32(scale)] * 2)

    np.testing.assert_allclose(totals[0] / scale, gradient, rtol=0, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_value_that_is_not_finite_stays_visible(group: Callable[..., LowRankGroup], value: float) -> None:
    """The trial must end as diverged, not go on without an array."""
    gradient = vector_of_rank(2)
    gradient[5] = value

    totals = group(2, rank=2).add([gradient, vector_of_rank(2)])

    assert not np.isfinite(totals[0][:108]).all()
    assert not np.isfinite(totals[1][:108]).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)])
@pytest.mark.parametrize("rank", [1, 3])
def test_updates_and_mean_residual_are_the_mean_of_all_gradients(
    group: Callable[..., LowRankGroup], dtype: str, tolerance: float, rank: int
) -> None:
    """Error feedback delays parts of gradients but loses none, also if the weights by samples change in each step."""
    rng, workers = np.random.default_rng(5), group(3, rank=rank)
    wanted = arrived = np.zeros(ENTRIES)
    for step in range(50):
        vectors = rng.standard_normal((3, ENTRIES)).astype(dtype)
        weights = [0.0, 0.4, 0.6] if step % 5 == 0 else [0.5, 0.3, 0.2]
        wanted = wanted + np.average(vectors.astype("float64"), 0, weights)
        arrived = arrived + workers.add(list(vectors), weights)[0]

    residual = np.sum([state.residual for state in workers.states], 0, dtype="float64")
    assert abs(arrived + residual - wanted).max() < tolerance * abs(wanted).max()
    assert abs(residual).max() > 0.1
    assert abs(arrived - wanted).max() > 100 * tolerance * abs(wanted).max()


def test_residual_with_equal_weights_is_the_one_of_the_paper(group: Callable[..., LowRankGroup]) -> None:
    """The paper computes E = M - update from M = G + E, where the residual here contains the weight 1/n."""
    vectors, workers = np.random.default_rng(5).standard_normal((2, ENTRIES)), group(2, rank=1)
    residuals = np.zeros((2, ENTRIES))
    for _ in range(3):
        total = workers.add(list(vectors))[0]
        residuals = vectors + residuals - total

    matrices = np.r_[0:108, 117:153]
    for residual, state in zip(residuals, workers.states, strict=True):
        np.testing.assert_allclose(2 * state.residual[matrices], residual[matrices], atol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_steps_are_those_of_the_published_algorithm(group: Callable[..., LowRankGroup], rank: int) -> None:
    """The paper does not make Q orthonormal, which gives the same P in exact arithmetic."""
    workers, rng = group(3, rank=rank), np.random.default_rng(8)
    (first, second) = LowRankLayout.of(SHAPES, rank, 0).factored
    queries = [draw_right_factor(array, index, 1, 0) for index, array in enumerate((first, second))]
    errors = [np.zeros((3, array.rows, array.columns)) for array in (first, second)]

    for _ in range(6):
        vectors = rng.standard_normal((3, ENTRIES))
        total = workers.add(list(vectors))[0]

        for index, array in enumerate((first, second)):
            matrices = np.stack([array.matrix(vector) for vector in vectors]) + errors[index]
            left, _ = np.linalg.qr((matrices @ queries[index]).mean(0))
            queries[index] = (matrices.transpose(0, 2, 1) @ left).mean(0)
            update = left @ queries[index].T
            errors[index] = matrices - update
            np.testing.assert_allclose(array.matrix(total), update, rtol=0, atol=1e-10)


def test_first_factor_is_a_function_of_the_trial_seed(group: Callable[..., LowRankGroup]) -> None:
    """Repetitions with other seeds are independent; ranks of one trial must start alike."""
    gradient = vector_of_rank(4)

    first, again, other = (group(2, seed=seed, rank=1).add([gradient] * 2)[0] for seed in (1, 1, 2))

    assert first.tobytes() == again.tobytes()
    assert abs(first - other).max() > 1e-3


class RecordedSum(NamedTuple):
    """One worker's result of one collective."""

    rank: int
    step: int
    channel: int  # 0: left factors and uncompressed ranges; 1: right factors
    total: bytes


@pytest.fixture
def recorded_sums(monkeypatch: pytest.MonkeyPatch) -> list[RecordedSum]:
    """Record the results of all collectives of a trial."""
    records: list[RecordedSum] = []

    async def record(member: GroupMember, schedule: TransferSchedule, step: int, vector: HostArray) -> None:
        await run_transfers(member, schedule, step, vector)
        records.append(RecordedSum(member.rank, step, member.channel, vector.tobytes()))

    monkeypatch.setattr(low_rank_sum, "run_transfers", record)
    return records


@pytest.mark.parametrize("workers", [2, 3, 4, 5])
@pytest.mark.parametrize("collective", ["ring", "halving_doubling", "double_tree"])
@pytest.mark.parametrize("warm_start", [True, False])
def test_factors_and_replicas_are_bitwise_equal_on_all_ranks(
    simulate: Simulate, recorded_sums: list[RecordedSum], workers: int, collective: str, warm_start: bool
) -> None:
    """Factors that differ by one bit would let the replicas drift apart without any error."""
    strategy = power_sgd(rank=2, warm_start=warm_start) | {"collective": {"kind": collective}}

    trial = simulate(strategy, workers, hash_every_step=True, epochs=2, batch=13)

    by_collective = defaultdict(list)
    for record in recorded_sums:
        by_collective[record.step, record.channel].append(record)
    steps = len(trial.steps(0))
    assert sorted(by_collective) == [(step, channel) for step in range(steps) for channel in (0, 1)]
    for records in by_collective.values():
        assert {record.rank for record in records} == set(range(workers))
        assert len({record.total for record in records}) == 1
    events = [event for rank in range(workers) for event in trial.events(f"worker-{rank}", "node_hash")]
    step_of = lambda event: event["metadata"]["step"]  # noqa: E731
    digests = [{e["value"] for e in each} for _, each in groupby(sorted(events, key=step_of), key=step_of)]
    assert len(digests) == steps
    assert {len(each) for each in digests} == {1}


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 2e-5), ("fp64", 1e-10)])
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_full_rank_trains_as_an_uncompressed_sum(
    simulate: Simulate, workers: int, precision: str, tolerance: float
) -> None:
    """With orthonormal columns that span all rows or columns, the product of the factors is the sum itself."""
    trial = simulate(power_sgd(rank=5), workers, precision=precision)

    ring = simulate(RING, workers, precision=precision)
    np.testing.assert_allclose(trial.params, ring.params, rtol=tolerance, atol=tolerance)


def test_low_rank_trains_otherwise_than_an_uncompressed_sum(simulate: Simulate) -> None:
    """The test above would not notice a strategy that ignores the rank."""
    trial, ring = simulate(power_sgd(rank=1), 3), simulate(RING, 3)

    assert abs(trial.params - ring.params).max() > 1e-3


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("min_ratio", [0, 1, 1.5])
def test_every_worker_sends_the_bytes_of_the_plan(
    simulate: Simulate, workers: int, precision: str, min_ratio: float
) -> None:
    """Bytes are compared with interface counters: an inexact prediction would make differences meaningless."""
    trial = simulate(power_sgd(rank=1, min_ratio=min_ratio), workers, epochs=1, precision=precision)

    for rank in range(workers):
        sent = trial.value(f"worker-{rank}", "node_stop")["payload_bytes_sent"]
        assert sent == 7 * trial.plan.bytes_per_step[f"worker-{rank}"]
    assert trial.plan.sums_per_exchange == 2


def test_bytes_are_those_of_the_factors_and_of_short_arrays(simulate: Simulate) -> None:
    """Two workers send each vector of a ring once: P of 4 and 5 rows, Q of 5 and 2 columns, and 7 biases."""
    both, first_only = (
        simulate(power_sgd(rank=1, min_ratio=min_ratio), 2, epochs=1).plan.bytes_per_step["worker-0"]
        for min_ratio in (0, 2)
    )

    assert both == 4 * (4 + 5 + 7 + 5 + 2)
    assert first_only == 4 * (4 + 10 + 7 + 5)


@pytest.mark.parametrize("collective", ["ring", "halving_doubling", "tree", "recursive_doubling"])
@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("delay", [{}, {"delay": "20ms"}], ids=["near", "far"])
def test_step_time_is_that_of_the_closed_form(
    simulate: Simulate, collective: str, workers: int, delay: dict[str, str]
) -> None:
    """The plan predicts what a step will take before it is run: the time of two all-reduces."""
    trial = simulate_long_sums(simulate, collective, workers, delay)

    steps_s = [np.mean([row["step_s"] for row in trial.steps(rank)]) for rank in range(workers)]
    assert max(steps_s) == pytest.approx(trial.plan.predicted.step_s, rel=0.02)
    assert trial.plan.predicted.formula.startswith("t_c + ΣT(S_j) over 2 sums, with T = ")


@pytest.mark.parametrize("collective", ["ring", "halving_doubling", "tree", "recursive_doubling"])
def test_closed_form_applies_where_it_does_for_one_sum(simulate: Simulate, collective: str) -> None:
    """The check of predicted step times is skipped where a plan states a reason."""
    assert simulate_long_sums(simulate, collective, 4, {}).plan.predicted.inapplicable_reason == ""


def test_plan_states_that_factors_are_too_short_for_a_double_tree(simulate: Simulate) -> None:
    """Factors are shorter than the model, so the pipeline of a collective may be empty even for a long vector."""
    plan = simulate_long_sums(simulate, "double_tree", 4, {}).plan

    reason = "a vector of 1 messages is too short to fill the pipeline of a double tree"
    assert plan.predicted.inapplicable_reason == reason


def simulate_long_sums(simulate: Simulate, collective: str, workers: int, link: dict[str, str]) -> Any:
    """Simulate ten steps in which factors of 3 to 10 kB take most of the time."""
    cluster = {"worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "1mbit", **link}}
    data = {"kind": "synthetic_regression", "samples": 25 * workers, "features": 40, "outputs": 2}
    model = {"kind": "mlp", "hidden": [300, 200], "activation": "tanh"}
    strategy = power_sgd(rank=4) | {"collective": {"kind": collective}}
    return simulate(strategy, workers, cluster=cluster, dataset=data, batch=2 * workers, epochs=1, model=model)


def test_auto_chooses_the_collective_with_the_shortest_sum_of_both_factors(simulate: Simulate) -> None:
    """Factors are short, so latency decides where a ring of whole vectors would be fastest."""
    cluster = {"worker": {"throughput": "1000/s", "uplink": "10mbit", "downlink": "10mbit", "delay": "5ms"}}
    model = {"kind": "mlp", "hidden": [300, 200], "activation": "tanh"}
    auto = {"collective": {"kind": "auto"}}

    low_rank, whole = (
        simulate(strategy | auto, 8, cluster=cluster, model=model, epochs=1).plan
        for strategy in (power_sgd(rank=1), RING)
    )

    assert min(low_rank.exchange_s_by_choice.values()) == pytest.approx(low_rank.predicted.exchange_s)
    assert low_rank.predicted.exchange_s < 0.5 * whole.predicted.exchange_s
    assert low_rank.compressed_traffic_ratio < 0.2


@pytest.mark.parametrize(
    ("after", "sums"),
    [({"kind": "parameter_server", "synchrony": {"kind": "asp"}}, 1), (RING, 1), (power_sgd(rank=2), 2)],
    ids=["servers", "ring", "power_sgd"],
)
def test_switch_drops_the_residuals_and_the_plan_records_it(
    simulate: Simulate, after: dict[str, Any], sums: int
) -> None:
    """A residual belongs to one phase. All nodes have the same parameters at the switch nevertheless."""
    when = {"kind": "at", "step": 7}
    strategy = {"kind": "strategy_switch", "before": power_sgd(rank=1), "after": after, "when": when}

    trial = simulate(strategy, 3, optimiser=SGD)

    assert trial.plan.second_phase.drops_compressor_state
    assert trial.plan.second_phase.sums_per_exchange == sums
    (committed,) = trial.events("coordinator", "switch_committed")
    assert committed["value"]["step"] == 7


def test_switch_starts_power_sgd_with_a_new_state(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sum of a phase has no residual and no factors of the phase before."""
    states: dict[int, LowRankState] = {}
    add_vectors = LowRankSum.add_vectors

    async def record(
        self: LowRankSum, member: GroupMember, schedule: Any, number: int, summand: Summand, state: Any, device: Any
    ) -> Any:
        states[number] = state
        return await add_vectors(self, member, schedule, number, summand, state, device)

    monkeypatch.setattr(LowRankSum, "add_vectors", record)
    strategy = {
        "kind": "strategy_switch",
        "before": power_sgd(rank=1),
        "after": power_sgd(rank=2),
        "when": {"kind": "at", "step": 7},
    }

    simulate(strategy, 3, optimiser=SGD)

    without_state = [number for number, state in states.items() if state.residual is None]
    assert without_state == [0, 7]
    assert [states[number].right_factors for number in without_state] == [(), ()]


@pytest.mark.parametrize("keys", [{"rank": 1}, {"rank": 2}, {"rank": 2, "warm_start": False}], ids=repr)
def test_digits_are_learned_almost_as_with_whole_gradients(simulate: Simulate, keys: dict[str, Any]) -> None:
    """Error feedback and the warm start make a low rank sufficient."""
    work = {
        "dataset": {"kind": "digits"},
        "model": {"kind": "mlp", "hidden": [32]},
        "optimiser": {"kind": "sgd", "rate": 0.2},
        "batch": 64,
        "epochs": 8,
    }
    dense, low_rank = (simulate(strategy, 4, **work) for strategy in (RING, power_sgd(**keys)))

    losses = [trial.events("coordinator", "eval_metrics")[-1]["value"]["loss"] for trial in (dense, low_rank)]
    assert losses[1] < 1.2 * losses[0]
    sent = [trial.plan.bytes_per_step["worker-0"] for trial in (dense, low_rank)]
    assert sent[1] < 0.2 * sent[0]
