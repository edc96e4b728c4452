"""Properties of the division of batches, and of the decisions of dynamic load balancing."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.learning.batch_balance import DynamicBalance, ProportionalBalance
from services.learning.batch_balance.division import divide_batch, ideal_shares
from services.learning.models import Mlp, ResNet
from services.learning.models.base import Model
from services.learning.models.own.torch_model import TorchModel

positive = st.floats(1e-6, 1e9)


@given(speeds=st.lists(positive, min_size=1, max_size=12).map(tuple), data=st.data())
def test_shares_are_within_their_limits_and_less_than_a_sample_from_the_ideal(
    speeds: tuple[float, ...], data: st.DataObject
) -> None:
    """A share beyond the limit would not fit into the worker's memory."""
    batch = data.draw(st.integers(len(speeds), 1000))
    limit = data.draw(st.none() | st.integers(-(-batch // len(speeds)), batch))

    shares, ideal = divide_batch(batch, speeds, limit), ideal_shares(batch, speeds, limit)

    assert sum(shares) == sum(ideal) == batch
    assert min(shares) >= 1
    assert max(shares) <= (limit or batch)
    assert all(abs(share - target) < 1 for share, target in zip(shares, ideal, strict=True))


@given(speeds=st.lists(positive, min_size=2, max_size=8).map(tuple), batch=st.integers(8, 500))
def test_workers_without_a_limit_finish_together(speeds: tuple[float, ...], batch: int) -> None:
    """Only a worker with its smallest share may finish later than others."""
    ideal = ideal_shares(batch, speeds)

    times = [share / speed for share, speed in zip(ideal, speeds, strict=True) if share > 1]

    assert not times or max(times) == pytest.approx(min(times), rel=1e-9)


def test_one_of_eight_workers_at_half_speed_gets_half_of_the_others_share() -> None:
    """The example of the literature: 512 samples become 7 x 68.3 and 34.1, a step 64 / 34.1 = 1.88 times as fast."""
    speeds = (1.0,) * 7 + (0.5,)

    shares = divide_batch(512, speeds)

    assert shares == (69, 69, 68, 68, 68, 68, 68, 34)
    assert 64 / 0.5 / max(share / speed for share, speed in zip(shares, speeds, strict=True)) > 0.98 * 64 / 34.1333


@pytest.mark.parametrize(("batch", "limit"), [(3, None), (41, 10)])
def test_division_rejects_a_batch_outside_of_its_limits(batch: int, limit: int | None) -> None:
    """Scenarios are checked before; no rounding may hide a wrong caller."""
    with pytest.raises(ValueError, match=f"{batch} samples"):
        divide_batch(batch, (1.0,) * 4, limit)


def adjustments(balance: DynamicBalance, batch: int, measured: Sequence[tuple[float, ...]]) -> list[tuple[int, ...]]:
    """Return the different shares in their order, given the exchanged speeds."""
    shares = [balance.initial_shares(batch, (None,) * len(measured[0]))]
    for speeds in measured:
        if (changed := balance.resize_shares(shares[-1], speeds)) != shares[-1]:
            shares.append(changed)
    return shares


def test_noise_within_the_dead_band_changes_nothing() -> None:
    """Speeds that differ by up to 4 % are equal within the dead band of 5 %; without it, shares would oscillate."""
    random = Random(1)
    measured = [tuple(random.uniform(0.98, 1.02) for _ in range(8)) for _ in range(200)]

    assert len(adjustments(DynamicBalance(), 1024, measured)) == 1
    assert len(adjustments(DynamicBalance(dead_band=0), 1024, measured)) > 100


def test_a_quota_between_two_whole_samples_does_not_oscillate() -> None:
    """Small shares: 8.49 and 8.51 samples round to 8 and 9, a change of 12 %, although nothing has changed."""
    low, high = (8.49, 8.49, 15.02), (8.51, 8.51, 14.98)

    assert len(adjustments(DynamicBalance(), 32, [low, high] * 50)) == 2  # the initial shares and one change


def test_oscillating_worker_is_followed_only_as_far_as_the_smoothed_speed() -> None:
    """A worker that is slow in every second step has a constant mean speed: the shares settle."""
    balance, speeds, shares, history = DynamicBalance(period=1), [0.0, 0.0], (50, 50), []
    for step in range(400):
        seconds = (shares[0] / 100, shares[1] / (100 if step % 2 else 50))
        speeds = [balance.smooth_speed(*values) for values in zip(speeds, shares, seconds, strict=True)]
        shares = balance.resize_shares(shares, tuple(speeds))
        history.append(shares)

    assert len(set(history[100:])) <= 2
    assert max(shares[0] for shares in history[100:]) - min(shares[0] for shares in history[100:]) <= 5


def test_shares_wait_until_every_worker_has_measured_its_speed() -> None:
    """A speed of 0 would leave the worker without samples, which then never measures a speed."""
    assert DynamicBalance().resize_shares((8, 8), (0.0, 1.0)) == (8, 8)


def test_steps_without_samples_or_duration_do_not_change_the_speed() -> None:
    """The last batch of an epoch may have fewer samples than there are workers."""
    balance = DynamicBalance(smoothing=0.5)

    assert balance.smooth_speed(7.0, 0, 0.0) == 7.0
    assert balance.smooth_speed(7.0, 3, 0.0) == 7.0
    assert balance.smooth_speed(0.0, 30, 2.0) == 15.0
    assert balance.smooth_speed(5.0, 30, 2.0) == 10.0


def test_weights_replace_declared_speeds() -> None:
    """A user may know better than the declared speeds, or declare none."""
    assert ProportionalBalance(weights=(3, 1)).initial_shares(8, (None, None)) == (6, 2)
    assert ProportionalBalance().initial_shares(8, (1.0, 3.0)) == (2, 6)


@pytest.mark.parametrize(
    ("model", "depends"),
    [
        (Mlp(hidden=(4,)), False),
        (ResNet(norm="group"), False),
        (ResNet(norm="batch"), True),
        (TorchModel.model_construct(buffers="refuse"), False),
        (TorchModel.model_construct(buffers="recompute"), True),
    ],
    ids=repr,
)
def test_only_models_with_batch_normalisation_depend_on_the_shares(model: Model, *, depends: bool) -> None:
    """Their gradient is not the mean over samples, so weights by samples do not make the shares irrelevant."""
    assert bool(model.explain_share_dependence()) == depends
