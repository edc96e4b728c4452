"""Fine-tuning of a small pre-trained decoder with low-rank adapters.

E. J. Hu et al., "LoRA: Low-rank adaptation of large language models", 2021.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from services.learning.datasets.base import LearningTask
from services.learning.layers.base import Layer
from services.learning.layers.dense import Dense
from services.learning.layers.sequences.adapters import LoraDense
from services.learning.models.llama_mini import build_llama, read_base_arrays
from services.learning.models.network_model import NetworkModel
from services.learning.objectives import LossName
from services.schema.arrays import HostArray
from services.schema.conflicts import KeyConflict, raise_conflicts

ProjectionName: TypeAlias = Literal["query", "key", "value", "output", "gate", "up", "down"]


class LlamaMiniLora(NetworkModel):
    """Adapters of a frozen decoder, which was trained on the dataset `grammar` without a shift.

    Only the adapters are parameters: they alone are trained and sent. At first they have no effect, so the initial loss
    is that of the base.
    """

    kind: Literal["llama_mini_lora"] = "llama_mini_lora"
    rank: int = Field(default=8, gt=0, le=64, description="rank of each adapter")
    alpha: float = Field(default=16.0, gt=0, description="factor of the adapters, which is divided by the rank")
    targets: tuple[ProjectionName, ...] = Field(
        default=("query", "key", "value", "output"),
        min_length=1,
        description="projections with an adapter: query, key, value and output of the attention, gate, up and down of "
        "the feed-forward network",
    )
    supported_losses: ClassVar[tuple[LossName, ...]] = ("next_token",)

    @model_validator(mode="after")
    def _check_targets(self) -> Self:
        raise_conflicts(self._find_repeated_targets())
        return self

    def _find_repeated_targets(self) -> Iterator[KeyConflict]:
        for position, target in enumerate(self.targets):
            if target in self.targets[:position]:
                yield KeyConflict(("targets", position), f"{target} is listed twice; remove one")

    @property
    def frozen_arrays(self) -> Mapping[str, HostArray]:
        return read_base_arrays()

    def unsupported_task_reason(self, learning_task: LearningTask) -> str | None:
        known = len(self.frozen_arrays["tokens.weight"])
        if learning_task.outputs == known:
            return None
        return (
            f"the base of llama_mini_lora knows {known} tokens, this dataset has {learning_task.outputs}; use grammar"
        )

    def build_network(self, learning_task: LearningTask) -> Layer:
        return build_llama(learning_task.outputs, self._build_projection, is_frozen=True)

    def _build_projection(self, name: str, inputs: int, outputs: int) -> Layer:
        base = Dense(name, inputs, outputs, has_bias=False, is_frozen=True)
        return LoraDense(base, self.rank, self.alpha) if name.rpartition(".")[2] in self.targets else base

    def forward_flops(self, learning_task: LearningTask) -> Mapping[str, float]:
        """Return the operations of a forward pass by name of the array.

        Those of frozen arrays count at the next trained array, or at the last one.
        """
        trained_names = self.parameter_layout(learning_task).vector_ranges
        flops, pending = dict[str, float](), 0.0
        for name, count in super().forward_flops(learning_task).items():
            pending += count
            if name in trained_names:
                flops[name], pending = pending, 0.0
        flops[next(reversed(flops))] += pending
        return flops

    def training_flops(self, learning_task: LearningTask) -> float:
        """Return the operations of a forward and a backward pass; frozen arrays need no gradients of their own."""
        flops = super().forward_flops(learning_task)
        trained_names = self.parameter_layout(learning_task).vector_ranges
        return 2 * sum(flops.values()) + sum(count for name, count in flops.items() if name in trained_names)
