"""Evaluation of a model on the test data of a learning task."""

from services.learning.datasets.base import TrainTestData
from services.learning.models.base import Model
from services.learning.objectives import OBJECTIVES
from services.learning.randomness import DEFAULT_RANDOMNESS
from services.schema.arrays import HostArray, array_namespace, without_divergence_warnings

EVALUATION_BATCH = 512  # samples: enough for fast matrix products, few enough for the memory of a node
CALIBRATION_SAMPLES = 512  # training samples from which batch normalisation takes mean and variance


def evaluate_model(model: Model, data: TrainTestData, params: HostArray) -> dict[str, float]:
    """Return the quality metrics and the loss of a model on the test data, by name.

    Random inputs, such as masks, are the same in every evaluation.
    """
    xp, objective = array_namespace(params), OBJECTIVES[data.task.loss]
    with without_divergence_warnings():
        inputs, targets = model.draw_inputs_and_targets(data.task, data.test_x, data.test_y, DEFAULT_RANDOMNESS)
        compute_outputs = model.create_output_function(data.task, params, data.train_x[:CALIBRATION_SAMPLES])
        batches = (inputs[start : start + EVALUATION_BATCH] for start in range(0, len(inputs), EVALUATION_BATCH))
        outputs = xp.concatenate([compute_outputs(batch) for batch in batches])
        loss, _ = objective.loss_and_output_grad(outputs, targets)
        return objective.measure_quality(outputs, targets) | {"loss": float(loss)}
