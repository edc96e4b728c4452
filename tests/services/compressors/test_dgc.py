"""Deep gradient compression: its two identities, conservation, clipping, and values that are not finite."""

from collections.abc import Iterator

import numpy as np
import pytest

from services.compressors import CompressorSeed, Dgc
from services.compressors.sparsification.dgc import DgcState
from services.learning.optimisers import Momentum, Optimiser, Sgd
from services.schema.arrays import HostArray

GRADIENTS = np.random.default_rng(1).standard_normal((20, 50)).astype("float32")


def send_all(compressor: Dgc, gradients: HostArray = GRADIENTS) -> Iterator[tuple[HostArray, DgcState]]:
    """Yield the decompressed vector and the state after each gradient."""
    state = compressor.init_state(gradients.shape[1], CompressorSeed())
    for gradient in gradients:
        payload, state = compressor.compress(gradient, state)
        yield compressor.decompress(payload), state


def train(optimiser: Optimiser, gradients: list[HostArray]) -> bytes:
    """Return the parameters after updates by these gradients."""
    params = np.ones(50, "float32")
    state = optimiser.init_state(params)
    for gradient in gradients:
        params, state = optimiser.update_params(params, gradient, state)
    return params.tobytes()


@pytest.mark.parametrize(
    ("masking", "equal"), [(False, Momentum(rate=0.1, momentum=0.7)), (True, Sgd(rate=0.1))], ids=["kept", "masked"]
)
def test_sending_all_entries_equals_momentum_without_masking_and_plain_sgd_with_it(
    masking: bool, equal: Optimiser
) -> None:
    """Masking sets the velocity of all sent entries to zero, so nothing is left of the momentum."""
    sent = [vector for vector, _ in send_all(Dgc(ratio=1, momentum=0.7, masking=masking))]

    assert train(Sgd(rate=0.1), sent) == train(equal, list(GRADIENTS))


def test_sent_vectors_and_unsent_velocities_add_up_to_all_velocities() -> None:
    """Without masking, no velocity is lost."""
    *_, (_, state) = results = list(send_all(Dgc(ratio=0.1, momentum=0.7, masking=False)))
    velocity, velocities = np.zeros(50), np.zeros(50)
    for gradient in GRADIENTS:
        velocity = 0.7 * velocity + gradient
        velocities += velocity

    total = sum(vector for vector, _ in results) + state.unsent
    assert np.linalg.norm(total - velocities) <= 1e-5 * np.linalg.norm(velocities)


def test_masking_sets_the_velocity_of_sent_entries_to_zero() -> None:
    """Their momentum would otherwise act on gradients that have been used already."""
    for sent, state in send_all(Dgc(ratio=0.1)):
        assert np.count_nonzero(sent) == 5
        assert (state.velocity[sent != 0] == 0).all()
        assert np.count_nonzero(state.velocity) == 45


@pytest.mark.parametrize(("workers", "norm"), [(None, 0.5), (4, 0.25)])
def test_gradient_is_clipped_before_it_is_added(workers: int | None, norm: float) -> None:
    """Each of n workers clips its own gradient, so the limit is divided by √n."""
    (sent, _), *_ = send_all(Dgc(ratio=1, clip_norm=0.5, workers=workers))
    (unchanged, _), *_ = send_all(Dgc(ratio=1, clip_norm=1e6, workers=workers))

    assert np.linalg.norm(sent) == pytest.approx(norm)
    assert sent == pytest.approx(unchanged * norm / np.linalg.norm(unchanged))
    assert np.array_equal(unchanged, GRADIENTS[0])


@pytest.mark.parametrize("masking", [True, False])
def test_values_that_are_not_finite_are_sent_and_then_reset_and_counted(masking: bool) -> None:
    """They would otherwise stay in the velocity for ever."""
    gradients = GRADIENTS.copy()
    gradients[2, :8] = np.nan  # more than the five entries that are sent

    (*_, (before, _), (sent, state), (after, last)) = list(send_all(Dgc(ratio=0.1, masking=masking), gradients[:4]))

    assert np.isfinite(before).all()
    assert np.isnan(sent).sum() == 5
    assert np.isfinite(state.velocity).all()
    assert np.isfinite(after).all()
    assert last.reset_count == state.reset_count == (6 if masking else 11)  # 3 in u (or 8), and 3 in v
