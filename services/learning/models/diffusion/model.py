"""The model `diffusion_mini`: denoising diffusion on small images, with a class as the condition."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from services.learning.datasets.base import LearningTask, TrainTestData
from services.learning.layers.base import Layer
from services.learning.models.diffusion.noise_schedule import add_noise, cumulative_alphas
from services.learning.models.diffusion.sampling import generate_images, join_conditions
from services.learning.models.diffusion.unet import CHANNELS_PER_GROUP, NoisePredictor
from services.learning.models.network_model import NetworkModel
from services.learning.randomness import DEFAULT_RANDOMNESS, BatchRandomness
from services.learning.sample_pictures import SamplePictures, pixel_levels
from services.schema.arrays import Array, HostArray, array_namespace

IMAGE_AXES = 3  # channels, rows, columns
SAMPLES_PER_CLASS = 4  # generated pictures of each class
SAMPLING_STEPS = 25  # of the generation; more steps change the pictures little
MAX_SAMPLING_FLOPS = 2e10  # about a second; fewer pictures of large images are generated, because nodes must end soon


class DiffusionMini(NetworkModel):
    """Denoising diffusion model for small images: a U-Net of two resolutions predicts the noise in a noisy image.

    In training, each image gets a random diffusion step and noise; the network is given the step and the class of the
    image. Pixels in [0, 1] are scaled to [-1, 1] first. J. Ho et al., "Denoising Diffusion Probabilistic Models",
    NeurIPS 2020, Algorithm 1.
    """

    supported_losses: ClassVar = ("denoising",)

    kind: Literal["diffusion_mini"] = "diffusion_mini"
    width: int = Field(
        default=24, gt=0, multiple_of=CHANNELS_PER_GROUP, description="features at the full resolution of the images"
    )
    steps: int = Field(default=1000, ge=50, description="number of diffusion steps from an image to noise")

    def unsupported_task_reason(self, learning_task: LearningTask) -> str | None:
        inputs = learning_task.inputs
        is_suitable = len(inputs) == IMAGE_AXES and inputs[1] % 2 == 0 and inputs[2] % 2 == 0
        if is_suitable:
            return None
        return (
            "diffusion_mini needs images whose height and width are even; a sample of this dataset has shape "
            f"{inputs}; use a dataset of such images, for example digits"
        )

    def build_network(self, learning_task: LearningTask) -> Layer:
        return NoisePredictor(learning_task.inputs[0], learning_task.outputs, self.width)

    def draw_inputs_and_targets(
        self,
        learning_task: LearningTask,  # noqa: ARG002 - the shape of the samples is enough
        x: Array,
        y: Array,
        randomness: BatchRandomness,
    ) -> tuple[Array, Array]:
        """Return noisy images with their steps and classes, and the noise in them."""
        xp, generator = array_namespace(x), randomness.create_generator(x)
        steps = generator.integers(self.steps, size=len(x))
        noise = generator.standard_normal(x.shape, x.dtype)
        shares = xp.asarray(cumulative_alphas(self.steps), x.dtype)[steps]
        return join_conditions(add_noise(2 * x - 1, noise, shares), steps, y), noise

    def forward_flops(self, learning_task: LearningTask) -> Mapping[str, float]:
        flops = super().forward_flops(learning_task)
        return {name: flops[name] for name in self.parameter_layout(learning_task).vector_ranges if name in flops}

    def create_sample_pictures(self, data: TrainTestData, params: HostArray) -> SamplePictures | None:
        """Return generated pictures, up to `SAMPLES_PER_CLASS` of each class; None if one would take too long."""
        picture_flops = SAMPLING_STEPS * sum(self.forward_flops(data.task).values())
        count = min(SAMPLES_PER_CLASS * data.task.outputs, int(MAX_SAMPLING_FLOPS / picture_flops))
        if count == 0:
            return None
        classes = np.arange(count) % data.task.outputs
        generator = DEFAULT_RANDOMNESS.create_generator(params)
        noise = generator.standard_normal((len(classes), *data.task.inputs), params.dtype)
        predict_noise = self.create_output_function(data.task, params, data.train_x)
        pictures = generate_images(predict_noise, noise, classes, self.steps, SAMPLING_STEPS)
        return SamplePictures("generated", pixel_levels((pictures + 1) / 2), tuple(classes.tolist()))
