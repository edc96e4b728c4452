"""Published speedups that a scenario tries to reproduce.

Reports show them beside the measured speedups.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from services.schema.component import FrozenRecord
from services.schema.conflicts import KeyConflict, raise_conflicts


class PublishedSpeedups(FrozenRecord):
    """Measured and predicted speedups that were published, of n workers over the base of the curve."""

    workers: PositiveInt
    measured: PositiveFloat | None = Field(None, description="speedup over the base that the source measured")
    predicted: PositiveFloat | None = Field(None, description="speedup over the base by the source's model")

    @model_validator(mode="after")
    def _require_any_speedup(self) -> Self:
        if self.measured is None and self.predicted is None:
            raise ValueError("needs measured, predicted or both")
        return self


class PublishedCurve(FrozenRecord):
    """A published speedup curve, drawn beside the measured curve of a strategy.

    Published curves do not change any trial.
    """

    strategy: str = Field(description="label of the strategy beside which the curve is drawn")
    source: str = Field(min_length=1, description="publication with the numbers: author, title, table or figure")
    speedup_of: Literal["samples_per_second", "time_to_target"] = Field(
        "samples_per_second",
        description="samples_per_second: speed of training, drawn beside predicted speeds; time_to_target: time to a "
        "stated quality, drawn beside measured times to the target",
    )
    base_workers: PositiveInt = Field(
        1,
        description="workers or accelerators of the base, which has a speedup of 1; figures show the curve over "
        "workers / base_workers",
    )
    points: tuple[PublishedSpeedups, ...] = Field(min_length=1, description="speedups by number of workers")

    def relative_size(self, point: PublishedSpeedups) -> float:
        """Return how many times the workers of the base a point has."""
        return point.workers / self.base_workers

    @model_validator(mode="after")
    def _check_unique_worker_counts(self) -> Self:
        worker_counts = [point.workers for point in self.points]
        raise_conflicts(
            KeyConflict(
                ("points", k, "workers"),
                f"another point has {worker_count} workers; declare measured and predicted in one point",
            )
            for k, worker_count in enumerate(worker_counts)
            if worker_count in worker_counts[:k]
        )
        return self


def unknown_label_conflicts(
    published_curves: Sequence[PublishedCurve], strategy_labels: Sequence[str]
) -> Iterator[KeyConflict]:
    """Yield a conflict for every published curve whose strategy is not in the scenario."""
    for k, curve in enumerate(published_curves):
        if curve.strategy not in strategy_labels:
            message = f"there is no strategy {curve.strategy}; strategies are {', '.join(strategy_labels)}"
            yield KeyConflict(("published", k, "strategy"), message)
