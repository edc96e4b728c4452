"""Closed forms of goodput under failures: each agrees with a simulation of the same process, and with its limits."""

from collections.abc import Callable

import numpy as np
import pytest

from analysis.laws.checkpoint_interval import FailureCosts, daly_interval_s, young_interval_s
from analysis.statistics.centre import Floats

STANDARD_ERRORS = 3.5  # of the mean of the simulated runs; the seeds are fixed
COSTS = FailureCosts(
    workers=8, detection_s=1.0, recovery_s=2.0, step_s=0.5, checkpoint_s=1.5, absence_s=12.0, join_s=1.0
)


def simulate_restore(costs: FailureCosts, interval_s: float, system_mtbf_s: float, rng: np.random.Generator) -> float:
    """Return the goodput of one run of 400 checkpoints: failures strike segments and restarts, one after the other."""
    elapsed_s = 0.0
    for _ in range(400):
        while (failure_s := rng.exponential(system_mtbf_s)) < interval_s + costs.checkpoint_s:
            elapsed_s += failure_s
            while (failure_s := rng.exponential(system_mtbf_s)) < costs.downtime_s:
                elapsed_s += failure_s
            elapsed_s += costs.downtime_s
        elapsed_s += interval_s + costs.checkpoint_s
    return 400 * interval_s / elapsed_s


def simulate_synchronous_steps(
    costs: FailureCosts, worker_mtbf_s: float, run_s: float, rng: np.random.Generator, *, rejoins: bool
) -> float:
    """Return the goodput of one run in which workers step together and go back at most to the begin of the step.

    Every failure or return of a worker breaks off the step in progress, and stops all workers.
    """
    events: list[tuple[float, int, float]] = []  # time, change in the number of workers, how long all workers stop
    for _ in range(costs.workers):
        time_s = rng.exponential(worker_mtbf_s)
        while time_s < run_s:
            events.append((time_s, -1, costs.downtime_s))
            if not rejoins:
                break
            time_s += costs.absence_s
            events.append((time_s, 1, costs.join_s))
            time_s += rng.exponential(worker_mtbf_s)
    counted_s, alive, ready_s = 0.0, costs.workers, 0.0
    for time_s, change, stopped_s in [*sorted(events), (run_s, 0, 0.0)]:
        if (until_s := min(time_s, run_s)) > ready_s:
            counted_s += alive * np.floor((until_s - ready_s) / costs.step_s) * costs.step_s
        alive, ready_s = alive + change, max(ready_s, time_s + stopped_s)
    return float(counted_s / (costs.workers * run_s))


def assert_mean_agrees(expected: Floats, draw: Callable[[np.random.Generator], float], runs: int = 300) -> None:
    samples = np.array([draw(np.random.default_rng(seed)) for seed in range(runs)])
    standard_error = samples.std(ddof=1) / np.sqrt(runs)
    assert abs(samples.mean() - float(expected)) < STANDARD_ERRORS * standard_error, (samples.mean(), standard_error)
    assert standard_error < 0.02 * samples.mean()  # or the comparison would mean nothing


@pytest.mark.parametrize(("interval_s", "system_mtbf_s"), [(10.0, 60.0), (3.0, 20.0), (40.0, 25.0)])
def test_restore_agrees_with_a_simulation(interval_s: float, system_mtbf_s: float) -> None:
    """Also where failures come faster than checkpoints, and Young's approximation does not hold."""
    expected = COSTS.restore_goodput(interval_s, np.array(system_mtbf_s * COSTS.workers))

    assert_mean_agrees(expected, lambda rng: simulate_restore(COSTS, interval_s, system_mtbf_s, rng), runs=100)


@pytest.mark.parametrize("worker_mtbf_s", [100.0, 400.0, 3000.0])
def test_continue_agrees_with_a_simulation(worker_mtbf_s: float) -> None:
    """From runs in which nearly all workers are lost to runs with a failure or two."""
    expected = COSTS.continue_goodput(np.array(worker_mtbf_s), 200.0)

    assert_mean_agrees(
        expected, lambda rng: simulate_synchronous_steps(COSTS, worker_mtbf_s, 200.0, rng, rejoins=False), runs=2000
    )


@pytest.mark.parametrize("worker_mtbf_s", [200.0, 1000.0])
def test_rejoin_agrees_with_a_simulation(worker_mtbf_s: float) -> None:
    """The run is so long that its begin with all workers does not matter."""
    expected = COSTS.rejoin_goodput(np.array(worker_mtbf_s))

    assert_mean_agrees(
        expected, lambda rng: simulate_synchronous_steps(COSTS, worker_mtbf_s, 20_000.0, rng, rejoins=True), runs=60
    )


@pytest.mark.parametrize("system_mtbf_s", [20.0, 100.0, 10_000.0])
def test_dalys_interval_is_close_to_the_best_one(system_mtbf_s: float) -> None:
    """The goodput of Daly's interval is within 0.2 % of the maximum, and Young's is nowhere better."""
    mtbf_s = np.array(system_mtbf_s * COSTS.workers)
    candidates = np.geomspace(0.1, 20 * system_mtbf_s, 4000)
    best = COSTS.restore_goodput(candidates, mtbf_s).max()
    daly, young = (
        float(COSTS.restore_goodput(interval(COSTS.checkpoint_s, np.array(system_mtbf_s)), mtbf_s))
        for interval in (daly_interval_s, young_interval_s)
    )

    assert 0.998 * best < daly <= best * (1 + 1e-6)  # the candidates are a grid
    assert young <= daly


def test_intervals_of_cheap_checkpoints_and_rare_failures() -> None:
    """C → 0: no interval is too short. M → ∞: both approach √(2 C M). C ≥ 2M: Daly's interval is M."""
    assert daly_interval_s(1e-12, np.array(100.0)) == pytest.approx(0.0, abs=1e-4)
    assert young_interval_s(0.0, np.array(100.0)) == 0
    rare = np.array(1e12)
    assert daly_interval_s(1.0, rare) == pytest.approx(float(young_interval_s(1.0, rare)), rel=1e-5)
    assert daly_interval_s(5.0, np.array([2.5, 1.0])).tolist() == [2.5, 1.0]


def test_without_failures_only_checkpoints_cost_time() -> None:
    never = np.array(1e12)

    assert COSTS.restore_goodput(8.5, never) == pytest.approx(8.5 / 10)
    assert COSTS.continue_goodput(never, 200.0) == pytest.approx(1.0)
    assert COSTS.rejoin_goodput(never) == pytest.approx(1.0)


def test_all_policies_lose_more_with_more_failures() -> None:
    mtbf_s = np.geomspace(20, 1e5, 50)

    for goodput in (
        COSTS.restore_goodput(5.0, mtbf_s),
        COSTS.continue_goodput(mtbf_s, 200.0),
        COSTS.rejoin_goodput(mtbf_s),
    ):
        assert (np.diff(goodput) > 0).all()
        assert ((goodput > 0) & (goodput <= 1)).all()


def test_free_checkpoints_lose_only_restarts_and_half_an_interval() -> None:
    """C → 0 and τ → 0: goodput is the probability that no failure struck in the last D + R."""
    costs = FailureCosts(workers=4, detection_s=1.0, recovery_s=1.0, step_s=0.0)

    assert costs.restore_goodput(1e-6, np.array(80.0)) == pytest.approx(np.exp(-2.0 / 20.0), rel=1e-6)
