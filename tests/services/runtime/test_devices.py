"""Devices whose speed varies as much as declared, with the same factor whenever a step is computed again."""

from math import log
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cluster.cluster import WorkerGroup, WorkerSpec
from services.cluster.compute_speed import SampleOperations
from services.cluster.device_profiles import (
    PEAK_FLOP_PER_S,
    RELATIVE_THROUGHPUT,
    DeviceName,
    LognormalVariation,
    OnOffVariation,
)
from services.schema.units import Duration, Rate, Throughput


@given(seed=st.integers(0, 9), rank=st.integers(0, 31), step=st.integers(0, 10**6))
def test_the_duration_factor_of_a_step_is_always_the_same(seed: int, rank: int, step: int) -> None:
    """The variation has no state: a worker that joins late and a report that is written later get the same factor."""
    for variation in (LognormalVariation(sigma=0.3), OnOffVariation(slowdown=2.0)):
        assert variation.duration_factor(seed, rank, step) == variation.duration_factor(seed, rank, step) > 0


def test_lognormal_steps_have_the_declared_mean_and_spread() -> None:
    """The mean of the factors is 1, so that variation alone makes no device slower."""
    factors = [LognormalVariation(sigma=0.2).duration_factor(1, 0, step) for step in range(20_000)]

    assert fmean(factors) == pytest.approx(1.0, abs=0.005)
    assert stdev(map(log, factors)) == pytest.approx(0.2, rel=0.02)


def test_a_straggler_is_slow_for_one_interval_in_every_period() -> None:
    """Every hundred steps contain ten slow steps in a row; the seed determines their position."""
    factors = [
        OnOffVariation(slowdown=3.0, slow_steps=10, fast_steps=90).duration_factor(1, 4, step) for step in range(1000)
    ]

    for period in range(10):
        slow = [step for step in range(100) if factors[100 * period + step] == 3.0]
        assert slow == list(range(slow[0], slow[0] + 10))


def test_workers_are_slow_at_different_times() -> None:
    """The slowness of one worker would hide that of another at the same time."""
    variation = OnOffVariation(slowdown=2.0)

    patterns = {tuple(variation.duration_factor(1, rank, step) for step in range(300)) for rank in range(8)}

    assert len(patterns) == 8


def test_a_profile_multiplies_the_throughput_of_the_reference() -> None:
    """The throughput declared with a profile is that of an A100; `speed` is a further factor."""
    worker = WorkerSpec(throughput=Throughput("1000/s"), profile="v100", speed=0.5)

    speed = worker.compute_speed()
    assert speed is not None
    assert speed.samples_per_s == pytest.approx(1000 * RELATIVE_THROUGHPUT["v100"] * 0.5)
    assert speed.derivation == "throughput 1000/s x 0.45 (v100 relative to a100) x speed 0.5"
    assert RELATIVE_THROUGHPUT["a100"] == 1.0
    assert sorted(RELATIVE_THROUGHPUT, key=RELATIVE_THROUGHPUT.__getitem__)[-3:] == ["h100", "h200", "b200"]


@pytest.mark.parametrize(("device", "peak_flop_per_s"), [("h100", 989e12), ("a100", 312e12), ("v100", 125e12)])
def test_a_utilisation_is_a_share_of_the_peak_of_the_device(device: DeviceName, peak_flop_per_s: float) -> None:
    """24.5 GFLOP per sample at 40 % of 989 TFLOP/s are 16,147 samples/s."""
    worker = WorkerSpec(profile=device, utilisation=0.4, speed=0.5)

    speed = worker.compute_speed(SampleOperations(24.5e9, "declared"))

    assert speed is not None
    assert speed.samples_per_s == pytest.approx(0.4 * peak_flop_per_s * 0.5 / 24.5e9)
    peak = f"{peak_flop_per_s / 1e12:g} TFLOP/s ({device})"
    assert speed.derivation == f"utilisation 0.4 x {peak} x speed 0.5 / 24.5 GFLOP per sample (declared)"


def test_every_device_has_a_peak_and_a_relative_throughput() -> None:
    """A user may declare the speed of any known device in both ways."""
    assert PEAK_FLOP_PER_S.keys() == RELATIVE_THROUGHPUT.keys()


def test_a_group_replaces_the_source_of_the_speed() -> None:
    """A group that inherits both sources would conflict with itself; other keys are inherited."""
    by_utilisation = WorkerSpec(profile="h100", utilisation=0.4, speed=2.0)
    by_throughput = WorkerSpec(profile="h100", throughput=Throughput("100/s"))

    slow = WorkerGroup(name="slow", ranks=(1,), throughput=Throughput("5/s")).override_spec(by_utilisation)
    fast = WorkerGroup(name="fast", ranks=(1,), utilisation=0.5).override_spec(by_throughput)

    assert (slow.throughput, slow.utilisation, slow.profile, slow.speed) == (5.0, None, "h100", 2.0)
    assert (fast.throughput, fast.utilisation, fast.profile) == (None, 0.5, "h100")


def test_a_group_inherits_the_keys_that_it_does_not_declare() -> None:
    """This includes the variation of the speed, the delay of a link and its rate."""
    worker = WorkerSpec(
        throughput=Throughput("100/s"),
        variation=LognormalVariation(sigma=0.1),
        uplink=Rate("1gbit"),
        delay=Duration("1ms"),
    )

    slow = WorkerGroup(name="slow", ranks=(1,), speed=0.5, delay=Duration("9ms")).override_spec(worker)

    assert slow == worker.model_copy(update={"speed": 0.5, "delay": Duration("9ms")})


def test_a_named_link_of_a_group_replaces_the_whole_link_of_the_worker() -> None:
    """A phone among wired machines has the rate of its own link, whatever the rate of the worker's link."""
    worker = WorkerSpec(uplink=Rate("1gbit"), delay=Duration("1ms"), buffer=None)

    phone = (
        WorkerGroup(name="phone", ranks=(1,), link="4g", downlink=Rate("20mbit"))
        .override_spec(worker)
        .with_link_profile_values
    )

    assert (phone.uplink, phone.downlink, phone.delay) == (9e6, 2e7, 0.085)
