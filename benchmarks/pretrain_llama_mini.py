"""Pre-training of the base of `llama_mini_lora`, which is stored in services/learning/models/llama_mini.npz.

    python -m benchmarks.pretrain_llama_mini

It takes about three minutes on one core. The same seed gives the same base on the same host; other hosts round
differently.
"""

from functools import partial
from typing import ClassVar, Literal

import numpy as np

from services.learning.data_order import DataOrder
from services.learning.datasets import Grammar, LearningTask, TrainTestData
from services.learning.datasets.language.sentences import create_sentence_source
from services.learning.evaluation import evaluate_model
from services.learning.layers.base import Layer
from services.learning.layers.dense import Dense
from services.learning.layers.initialisation import lecun_variance
from services.learning.models.llama_mini import BASE_FILE, build_llama
from services.learning.models.network_model import NetworkModel
from services.learning.objectives import LossName
from services.learning.optimisers import Adam
from services.schema.arrays import Vector

DATASET = Grammar(samples=40_960, seed=1)
SEED, BATCH = 0, 64
EPOCHS_BY_RATE = {0.003: 4, 0.001: 4, 0.0003: 2, 0.0001: 2}  # learning rate -> epochs, one after the other


class LlamaMini(NetworkModel):
    """The base, with trained arrays."""

    kind: Literal["llama_mini"] = "llama_mini"
    supported_losses: ClassVar[tuple[LossName, ...]] = ("next_token",)

    def build_network(self, learning_task: LearningTask) -> Layer:
        build_projection = partial(Dense, variance=lecun_variance, has_bias=False)
        return build_llama(learning_task.outputs, build_projection, is_frozen=False)


def main() -> None:
    """Train the base, print its perplexity after each epoch, and store its arrays in fp16."""
    model, data = LlamaMini(), DATASET.load("float32")
    best = np.exp(create_sentence_source(DATASET.shift).entropy_per_token(DATASET.length + 1))
    print(f"a perfect model has the perplexity {best:.4f}")  # noqa: T201
    params = model.init_parameters(data.task, SEED, "float32")
    first_epoch = 0
    for rate, epochs in EPOCHS_BY_RATE.items():
        params = train(model, data, params, Adam(rate=rate), range(first_epoch, first_epoch + epochs))
        first_epoch += epochs
    arrays = model.parameter_layout(data.task).unpack(params.astype("float16"))
    np.savez_compressed(BASE_FILE, **arrays)
    print(f"{BASE_FILE.name}: {BASE_FILE.stat().st_size / 1000:.0f} kB")  # noqa: T201


def train(model: LlamaMini, data: TrainTestData, params: Vector, optimiser: Adam, epochs: range) -> Vector:
    """Return the parameters after these epochs with one learning rate."""
    order, state = DataOrder(samples=len(data.train_x), batch=BATCH, seed=SEED), optimiser.init_state(params)
    for epoch in epochs:
        for step in range(epoch * order.steps_per_epoch, (epoch + 1) * order.steps_per_epoch):
            indices = order.batch_sample_indices(step)
            _, grad = model.loss_and_grad(data.task, params, data.train_x[indices], data.train_y[indices])
            params, state = optimiser.update_params(params, grad, state)
        print(f"epoch {epoch + 1}: perplexity {evaluate_model(model, data, params)['perplexity']:.4f}")  # noqa: T201
    return params


if __name__ == "__main__":
    main()
