"""Losses that grow with the number of samples, or with dropout masks, and are no sums."""

import pytest
from user_code import reference_to

from services.learning.datasets import LearningTask
from services.learning.models import PythonModel

PICTURES = LearningTask(inputs=(1, 8, 8), outputs=10, loss="cross_entropy")
NUMBERS = LearningTask(inputs=(5,), outputs=3, loss="mse")


@pytest.mark.parametrize("task", [PICTURES, NUMBERS], ids=["classes", "values"])
@pytest.mark.parametrize("name", ["NoisyPerceptron", "Contrastive"])
def test_a_mean_over_samples_is_accepted(name: str, task: LearningTask) -> None:
    """Dropout makes the losses of two batches differ, and a loss over pairs grows, but neither as a sum does."""
    model = PythonModel.model_validate({"module": reference_to("perceptron.py", name)})

    assert model.unsupported_task_reason(task) is None
