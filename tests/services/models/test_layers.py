"""Properties of single layers that the tests of all models cannot check, and the sizes of the networks."""

from typing import Literal

import numpy as np
import pytest

from services.learning.datasets import LearningTask
from services.learning.layers.base import PassContext
from services.learning.layers.convolution import Conv2d
from services.learning.layers.convolution.patch_correlation import PatchCorrelation, extract_patches, sum_patches
from services.learning.layers.convolution.row_correlation import CorrelationAxis, RowCorrelation
from services.learning.layers.dense import Dense
from services.learning.layers.images import FitToSquare, sum_blocks, upsample
from services.learning.layers.initialisation import he_variance
from services.learning.models import LeNet5, LinearModel, ResNet
from services.learning.objectives import OBJECTIVES
from services.runtime.device import ComputeDevice

MNIST = LearningTask(inputs=(1, 28, 28), outputs=10, loss="cross_entropy")
CIFAR = LearningTask(inputs=(3, 32, 32), outputs=10, loss="cross_entropy")
DIGITS = LearningTask(inputs=(1, 8, 8), outputs=10, loss="cross_entropy")


def test_sum_patches_is_the_adjoint_of_extract_patches(device: ComputeDevice) -> None:
    """⟨extract_patches(x), c⟩ = ⟨x, sum_patches(c)⟩ for all x and c: the definition of the backward pass of a copy."""
    rng = np.random.default_rng(0)
    x = device.to_device(rng.standard_normal((2, 3, 6, 5, 2)))
    c = device.to_device(rng.standard_normal((2, 3 * 9, 4 * 3 * 2)))

    forward, backward = (extract_patches(x, 3) * c).sum(), (x * sum_patches(c, x.shape, 3)).sum()

    assert float(forward) == pytest.approx(float(backward))


@pytest.mark.parametrize("groups", [1, 2])
def test_both_ways_of_correlating_images_with_kernels_agree(groups: int, device: ComputeDevice) -> None:
    """With stride 1 and without padding, a convolution may use either; they differ by rounding only."""
    rng = np.random.default_rng(0)
    images = device.to_device(rng.standard_normal((groups, 3, 6, 5, 2)))
    kernels = device.to_device(rng.standard_normal((groups, 4, 3, 3, 3)))
    grad = device.to_device(rng.standard_normal((groups, 4, 4, 3, 2)))
    axis = CorrelationAxis(stride=1, zeros_before=0, zeros_after=0)

    by_patches, by_rows = (
        (
            correlation.correlate(images, kernels),
            correlation.kernel_gradient(images, grad, kernels.shape),
            correlation.image_gradient(images.shape, grad, kernels),
        )
        for correlation in (PatchCorrelation(), RowCorrelation(axis, axis))
    )

    for expected, actual in zip(by_patches, by_rows, strict=True):
        np.testing.assert_allclose(device.to_host(actual), device.to_host(expected), rtol=1e-12, atol=1e-12)


def test_the_initial_variance_of_a_convolution_uses_the_fan_in_of_a_patch() -> None:
    """Fan-in is channels · kernel²; with all pixels of the image, activations would shrink layer by layer."""
    arrays = Conv2d("conv", 16, 64, 5, variance=he_variance).init_arrays(np.random.default_rng(0))
    weight, bias = arrays.values()

    assert weight.var() == pytest.approx(2 / (16 * 25), rel=0.05)
    assert not bias.any()


def test_the_initial_variance_of_a_dense_layer_uses_inputs_and_outputs() -> None:
    """Glorot and Bengio, eq. 12."""
    arrays = Dense("dense", 200, 300).init_arrays(np.random.default_rng(0))

    assert arrays["dense.weight"].var() == pytest.approx(2 / 500, rel=0.05)


@pytest.mark.parametrize("task", [DIGITS, MNIST], ids=["8x8", "28x28"])
def test_lenet5_has_its_usual_number_of_parameters(task: LearningTask) -> None:
    """61,706 parameters: published times are those of exactly this network."""
    assert LeNet5().parameter_layout(task).parameter_count == 61_706


@pytest.mark.parametrize(("depth", "count"), [(8, 78_042), (20, 272_474)])
def test_resnet_has_its_usual_number_of_parameters(depth: Literal[8, 20], count: int) -> None:
    """The paper states 0.27 million for depth 20 on CIFAR-10; its shortcuts without parameters have 2,752 fewer."""
    assert ResNet(depth=depth).parameter_layout(CIFAR).parameter_count == count


def test_images_are_enlarged_or_padded_to_a_square() -> None:
    """8x8 images are enlarged by a factor of four; 28x28 images get a border of two pixels."""
    small, large = np.ones((1, 8, 8, 3)), np.ones((1, 28, 28, 3))

    (enlarged, _), (padded, _) = (FitToSquare(32).forward({}, images, PassContext()) for images in (small, large))

    assert enlarged.shape == padded.shape == (1, 32, 32, 3)
    assert enlarged.all()
    assert padded[:, 2:-2, 2:-2].all()
    assert padded.sum() == large.sum()


def test_upsampling_repeats_pixels() -> None:
    """Nearest neighbour: the result contains no new values."""
    x = np.array([[1, 2], [3, 4]]).reshape(1, 2, 2, 1)

    assert upsample(x, 2)[0, :, :, 0].tolist() == [[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]


def test_sum_of_blocks_is_the_adjoint_of_upsampling(device: ComputeDevice) -> None:
    """⟨upsample(x), y⟩ = ⟨x, sum_blocks(y)⟩ for all x and y: the definition of a backward pass."""
    rng = np.random.default_rng(0)
    x, y = device.to_device(rng.standard_normal((2, 3, 3, 4))), device.to_device(rng.standard_normal((2, 9, 9, 4)))

    forward, backward = (upsample(x, 3) * y).sum(), (x * sum_blocks(y, 3)).sum()

    assert float(forward) == pytest.approx(float(backward))


def test_large_scores_do_not_overflow(device: ComputeDevice) -> None:
    """exp(1000) is infinite; a certain and correct answer has loss zero, a certain and wrong one the difference."""
    scores, labels = device.to_device(np.array([[1000.0, 0.0], [1000.0, 0.0]])), device.to_device(np.array([0, 1]))

    loss, grad = OBJECTIVES["cross_entropy"].loss_and_output_grad(scores, labels)

    assert float(loss) == pytest.approx(500)
    np.testing.assert_allclose(device.to_host(grad), np.array([[0, 0], [0.5, -0.5]]))


def test_the_squared_error_is_a_mean_over_samples_and_outputs() -> None:
    """As in scikit-learn and PyTorch, so that the same learning rates apply."""
    loss, grad = OBJECTIVES["mse"].loss_and_output_grad(np.array([[1.0, 3.0]]), np.array([[0.0, 0.0]]))

    assert loss == 5
    assert grad.tolist() == [[1, 3]]


def test_a_linear_model_has_a_weight_per_input_and_output_and_a_bias_per_output() -> None:
    """Its optimum has a closed form, which holds only without further parameters."""
    assert dict(LinearModel().parameter_layout(DIGITS).arrays) == {"dense.weight": (64, 10), "dense.bias": (10,)}
