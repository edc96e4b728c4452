"""Sizes of a scenario, which decide whether a strategy can be used."""

from dataclasses import dataclass
from typing import NamedTuple

from services.compressors import ArrayShape
from services.learning.batch_balance.base import DeclaredSpeeds


class WholeVectorNeed(NamedTuple):
    """Reason why the node that updates parameters needs the whole parameter vector, and how to avoid the need."""

    reason: str  # such as "optimiser lamb needs the norms of whole arrays"
    alternative: str  # such as "use an element-wise optimiser"


@dataclass(frozen=True)
class ScenarioSizes:
    """Sizes of a scenario: number of workers, number of steps, and array sizes.

    The sizes, and the need of the workload for whole vectors, decide whether a strategy can be used in the scenario.
    """

    workers: int
    steps: int  # of the whole budget
    steps_per_epoch: int
    evaluations: int  # of the whole budget
    array_sizes: tuple[int, ...]  # entries of each array of the model
    has_link_rates: bool  # whether any link has a declared rate
    whole_vector_need: WholeVectorNeed | None = None  # None: each range of the vector can be updated alone
    batch: int = 0  # samples of all workers in a step
    declared_speeds: DeclaredSpeeds = ()  # of the workers, by rank
    equal_shares_need: str = (
        ""  # why workers must have equal shares of a batch, and how to avoid it; empty: they need not
    )
    array_shapes: tuple[ArrayShape, ...] = ()  # of the model; empty: not known
    has_declared_payload: bool = False  # whether messages are as large as those of another model
    micro_batches: int = 1  # parts in which a worker computes its share of a batch

    @property
    def parameter_count(self) -> int:
        """Number of model parameters: the length of the parameter vector."""
        return sum(self.array_sizes)
