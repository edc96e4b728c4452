"""What the batteries cannot see of the layers, and the sizes of the networks built of them."""

import numpy as np
import pytest

from services.learning.datasets import LearningTask
from services.learning.models import LeNet5, LinearModel
from services.learning.models.layers import Conv2d, Dense, extract_patches, he_variance, sum_patches, upsample
from services.learning.models.losses import cross_entropy, mse
from services.runtime.device import Device

MNIST = LearningTask(inputs=(1, 28, 28), outputs=10, loss="cross_entropy")
DIGITS = LearningTask(inputs=(1, 8, 8), outputs=10, loss="cross_entropy")


def test_from_patches_is_the_adjoint_of_patches(device: Device) -> None:
    """⟨patches(x), c⟩ = ⟨x, from_patches(c)⟩ for all x and c: the definition of the backward pass of a copy."""
    rng = np.random.default_rng(0)
    x = device.to_device(rng.standard_normal((3, 6, 6, 2)))
    c = device.to_device(rng.standard_normal((3 * 9, 4 * 4 * 2)))

    there, back = (extract_patches(x, 3) * c).sum(), (x * sum_patches(c, x.shape, 3)).sum()

    assert float(there) == pytest.approx(float(back))


def test_the_spread_of_a_convolution_counts_a_patch_not_a_picture() -> None:
    """Fan-in is channels · kernel²; with all pixels of the picture counted, activations would fade layer by layer."""
    weight, bias = Conv2d(16, 64, 5, side=32, variance=he_variance).init_arrays(np.random.default_rng(0))

    assert weight.var() == pytest.approx(2 / (16 * 25), rel=0.05)
    assert not bias.any()


def test_the_spread_of_a_dense_layer_counts_both_sides() -> None:
    """Glorot and Bengio, eq. 12."""
    weight, _ = Dense(200, 300).init_arrays(np.random.default_rng(0))

    assert weight.var() == pytest.approx(2 / 500, rel=0.05)


@pytest.mark.parametrize("task", [DIGITS, MNIST], ids=["8x8", "28x28"])
def test_lenet5_has_its_customary_size(task: LearningTask) -> None:
    """61,706 parameters: others publish times for exactly this network."""
    assert LeNet5().parameter_layout(task).size == 61_706


def test_pictures_are_enlarged_and_framed() -> None:
    """8x8 by a factor of four; 28x28 not at all, with a frame of two pixels."""
    small, large = np.ones((3, 1, 8, 8)), np.ones((3, 1, 28, 28))

    filled, framed = LeNet5().prepare_input(small), LeNet5().prepare_input(large)

    assert filled.shape == framed.shape == (1, 32, 32, 3)
    assert filled.all()
    assert framed[:, 2:-2, 2:-2].all()
    assert framed.sum() == large.sum()


def test_enlarging_repeats_pixels() -> None:
    """Nearest neighbour: no value appears that was not there."""
    x = np.array([[1, 2], [3, 4]]).reshape(1, 2, 2, 1)

    assert upsample(x, 2)[0, :, :, 0].tolist() == [[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]


def test_large_scores_do_not_overflow(device: Device) -> None:
    """exp(1000) is infinite; the loss of a sure and right answer is zero, of a sure and wrong one the distance."""
    scores, labels = device.to_device(np.array([[1000.0, 0.0], [1000.0, 0.0]])), device.to_device(np.array([0, 1]))

    loss, grad = cross_entropy(scores, labels)

    assert float(loss) == pytest.approx(500)
    np.testing.assert_allclose(device.to_host(grad), np.array([[0, 0], [0.5, -0.5]]))


def test_the_squared_error_is_a_mean_over_samples_and_outputs() -> None:
    """As in scikit-learn and PyTorch: rates carry over."""
    loss, grad = mse(np.array([[1.0, 3.0]]), np.array([[0.0, 0.0]]))

    assert loss == 5
    assert grad.tolist() == [[1, 3]]


def test_a_linear_model_has_a_weight_per_input_and_output_and_a_bias_per_output() -> None:
    """Its truth can be computed in closed form: nothing else may hide in it."""
    assert dict(LinearModel().parameter_layout(DIGITS).arrays) == {"dense.weight": (64, 10), "dense.bias": (10,)}
