"""Tests of the diffusion model: noise schedule, random inputs, network and sampling."""

import numpy as np
import pytest

from services.learning.datasets import Digits, LearningTask, TrainTestData
from services.learning.models import DiffusionMini
from services.learning.models.diffusion.noise_schedule import add_noise, cumulative_alphas
from services.learning.models.diffusion.sampling import generate_images
from services.learning.models.diffusion.unet import encode_conditions
from services.learning.randomness import DEFAULT_RANDOMNESS, BatchRandomness
from services.schema.arrays import Array, HostArray

TASK = LearningTask(inputs=(1, 8, 8), outputs=10, loss="denoising")
MODEL = DiffusionMini(width=8)


def digits(count: int) -> tuple[HostArray, HostArray]:
    data = Digits(objective="denoising").load("float32")
    return data.train_x[:count], data.train_y[:count]


@pytest.mark.parametrize("steps", [50, 100, 1000])
def test_images_lose_their_signal_from_the_first_to_the_last_step(steps: int) -> None:
    """Sampling starts from pure noise, so the last step of the training must be nearly pure noise."""
    shares = cumulative_alphas(steps)

    assert len(shares) == steps
    assert (np.diff(shares) < 0).all()
    assert shares[0] > 0.99
    assert 0 < shares[-1] < 1e-3


def test_noisy_images_keep_their_variance() -> None:
    """Signal and noise of variance 1 give a noisy image of variance 1 at each step."""
    rng = np.random.default_rng(0)
    images, noise = rng.standard_normal((2, 50, 1, 20, 20))

    noisy = add_noise(images, noise, np.linspace(0, 1, 50))

    np.testing.assert_allclose(noisy.var(axis=(1, 2, 3)), 1, atol=0.25)
    np.testing.assert_array_equal(noisy[0], noise[0])
    np.testing.assert_array_equal(noisy[-1], images[-1])


def test_inputs_are_noisy_images_with_their_steps_and_classes() -> None:
    """The network needs the step and the class of an image; the target is the noise that was added."""
    x, y = digits(40)

    inputs, noise = MODEL.draw_inputs_and_targets(TASK, x, y, DEFAULT_RANDOMNESS)

    steps = inputs[:, 1, 0, 0].astype(int)
    assert inputs.shape == (40, 3, 8, 8)
    assert (inputs[:, 1] == steps[:, None, None]).all()
    assert (inputs[:, 2] == y[:, None, None]).all()
    assert steps.min() >= 0
    assert steps.max() < MODEL.steps
    shares = cumulative_alphas(MODEL.steps)[steps]
    np.testing.assert_allclose(inputs[:, :1], add_noise(2 * x - 1, noise, shares), atol=1e-5)


def test_random_inputs_depend_on_seed_step_and_rank_alone() -> None:
    """A repeated step gives the same gradient, and workers do not draw the same noise."""
    x, y = digits(8)

    def draw(*seeds: int) -> bytes:
        inputs, noise = MODEL.draw_inputs_and_targets(TASK, x, y, BatchRandomness(*seeds))
        return bytes(inputs.tobytes() + noise.tobytes())

    assert draw(1, 2, 3) == draw(1, 2, 3)
    assert len({draw(1, 2, 3), draw(0, 2, 3), draw(1, 0, 3), draw(1, 2, 0)}) == 4


def test_steps_and_classes_have_distinct_encodings() -> None:
    """Steps or classes with the same encoding could not be distinguished by the network."""
    conditions = np.array([(step, number) for step in range(0, 1000, 7) for number in range(10)], float)

    features = encode_conditions(conditions, 24, 10)

    assert features.shape == (len(conditions), 24 + 10)
    assert len(np.unique(features.round(6), axis=0)) == len(conditions)
    assert abs(features).max() <= 1


def test_output_for_an_image_does_not_depend_on_other_images() -> None:
    """Gradients of shares are averaged by samples, which needs independent samples."""
    x, y = digits(3)
    inputs, _ = MODEL.draw_inputs_and_targets(TASK, x, y, DEFAULT_RANDOMNESS)
    compute_outputs = MODEL.create_output_function(TASK, MODEL.init_parameters(TASK, 0, "float32"), x)

    together = compute_outputs(inputs)

    for number in range(3):
        np.testing.assert_allclose(compute_outputs(inputs[[number]])[0], together[number], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sampling_steps", [1, 5, 50])
def test_sampling_with_the_true_noise_gives_the_true_image(sampling_steps: int) -> None:
    """A perfect model knows the noise in each noisy version of an image; then any number of steps finds the image."""
    rng = np.random.default_rng(0)
    image, noise = rng.uniform(-1, 1, (4, 1, 8, 8)), rng.standard_normal((4, 1, 8, 8))
    shares = cumulative_alphas(1000)

    def predict_true_noise(inputs: Array) -> Array:
        share = shares[inputs[:, 1, 0, 0].astype(int)][:, None, None, None]
        return (inputs[:, :1] - np.sqrt(share) * image) / np.sqrt(1 - share)

    generated = generate_images(predict_true_noise, noise, np.zeros(4), 1000, sampling_steps)

    np.testing.assert_allclose(generated, image, atol=1e-9)


def test_sample_pictures_are_a_pure_function_of_the_parameters() -> None:
    """A report that is written again must not show other pictures."""
    data = Digits(objective="denoising").load("float32")
    params = MODEL.init_parameters(TASK, 0, "float32")

    first, second = (MODEL.create_sample_pictures(data, params) for _ in range(2))

    assert first
    assert second
    assert first.content == "generated"
    assert first.class_numbers == (*range(10),) * 4
    assert first.levels.shape == (40, 1, 8, 8)
    np.testing.assert_array_equal(first.levels, second.levels)


def test_fewer_pictures_of_large_images_are_generated() -> None:
    """Nodes must end soon after the training; the pictures must not make them late."""
    x = np.zeros((1, 1, 64, 64), "float32")
    task = LearningTask(inputs=(1, 64, 64), outputs=10, loss="denoising")
    data, large = TrainTestData(x, np.zeros(1, int), x, np.zeros(1, int), task), DiffusionMini(width=24)

    pictures = large.create_sample_pictures(data, large.init_parameters(task, 0, "float32"))
    none = DiffusionMini(width=256).create_sample_pictures(data, np.zeros(1))

    assert pictures
    assert pictures.class_numbers == (0,)
    assert none is None
