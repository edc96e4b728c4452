"""When is a model good enough?"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, Self, TypeAlias

from pydantic import Field, model_validator

from services.schema.component import Record

Metric: TypeAlias = Literal["accuracy", "r2", "mae", "mse", "loss"]


class Meaning(NamedTuple):
    """What a metric measures: under which losses, which side of the bound is good, and which bounds can be reached."""

    losses: tuple[str, ...]
    bound: Literal["at_least", "at_most"]
    best: float  # no model does better

    def reachable(self, value: float) -> bool:
        """Can a model come to `value`? The best value itself is excluded where it is a limit (an error of zero)."""
        return value <= self.best if self.bound == "at_least" else value > self.best


MEANINGS: Mapping[str, Meaning] = {
    "accuracy": Meaning(("cross_entropy",), "at_least", 1.0),
    "r2": Meaning(("mse",), "at_least", 1.0),
    "mae": Meaning(("mse",), "at_most", 0.0),
    "mse": Meaning(("mse",), "at_most", 0.0),
    "loss": Meaning(("cross_entropy", "mse"), "at_most", 0.0),
}


class Target(Record):
    """The quality at which training counts as done, measured on the evaluation set at the end of each epoch."""

    metric: Metric = Field(description="accuracy (classification); r2, mae, mse (regression); loss (both)")
    at_least: float | None = Field(None, description="bound of a metric that grows: accuracy, r2")
    at_most: float | None = Field(None, description="bound of a metric that falls: mae, mse, loss")

    @model_validator(mode="after")
    def _bound_fits(self) -> Self:
        meaning = MEANINGS[self.metric]
        bounds = [name for name in ("at_least", "at_most") if getattr(self, name) is not None]
        if bounds != [meaning.bound]:
            raise ValueError(f"{self.metric} takes {meaning.bound} and nothing else")
        if not meaning.reachable(self.bound):
            raise ValueError(
                f"no model reaches {self.metric} {meaning.bound} {self.bound:g}; the limit is {meaning.best:g}"
            )
        return self

    @property
    def bound(self) -> float:
        """The bound that was given."""
        return float(getattr(self, MEANINGS[self.metric].bound))

    def reached(self, metrics: Mapping[str, float]) -> bool:
        """Are these evaluation metrics good enough?"""
        value = metrics[self.metric]
        return value >= self.bound if self.at_least is not None else value <= self.bound
