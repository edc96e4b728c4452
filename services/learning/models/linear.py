"""Linear model that consists of one dense layer.

It is linear regression, or multinomial logistic regression under the cross entropy.
"""

from math import prod
from typing import Literal

from services.learning.datasets.base import LearningTask
from services.learning.layers.base import Layer
from services.learning.layers.chain import Chain
from services.learning.layers.dense import Dense
from services.learning.layers.images import FlattenSamples
from services.learning.models.network_model import NetworkModel


class LinearModel(NetworkModel):
    """Linear model: one dense layer on the flattened sample.

    Its loss is convex, so all strategies approach the same minimum.
    """

    kind: Literal["linear"] = "linear"

    def build_network(self, learning_task: LearningTask) -> Layer:
        return Chain((FlattenSamples(), Dense("dense", prod(learning_task.inputs), learning_task.outputs)))
