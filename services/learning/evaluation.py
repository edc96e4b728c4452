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

    Test samples are read batch by batch, since all of them may need more memory than a node has. Random inputs, such as
    masks, differ between batches, and are the same in every evaluation.
    """
    xp, objective = array_namespace(params), OBJECTIVES[data.task.loss]
    output_parts, target_parts = [], []
    with without_divergence_warnings():
        compute_outputs = model.create_output_function(data.task, params, data.train_x[:CALIBRATION_SAMPLES])
        for number, start in enumerate(range(0, len(data.test_x), EVALUATION_BATCH)):
            rows, randomness = slice(start, start + EVALUATION_BATCH), DEFAULT_RANDOMNESS._replace(step=number)
            x, y = data.test_x[rows], data.test_y[rows]
            inputs, targets = model.draw_inputs_and_targets(data.task, x, y, randomness)
            output_parts.append(compute_outputs(inputs))
            target_parts.append(targets)
        outputs, targets = xp.concatenate(output_parts), xp.concatenate(target_parts)
        loss, _ = objective.loss_and_output_grad(outputs, targets)
        return objective.measure_quality(outputs, targets) | {"loss": float(loss)}
