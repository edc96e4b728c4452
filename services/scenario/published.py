"""What have others measured, or computed, of what a scenario repeats? A report shows it beside what it found itself."""

from collections.abc import Iterator, Sequence
from typing import Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from services.schema.component import Record
from services.schema.conflicts import Conflict, refuse


class PublishedPoint(Record):
    """Speedups over one worker on one number of workers."""

    workers: PositiveInt
    measured: PositiveFloat | None = Field(None, description="speedup over one worker that they measured")
    predicted: PositiveFloat | None = Field(None, description="speedup over one worker that their own model says")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.measured is None and self.predicted is None:
            raise ValueError("write one of measured and predicted, or both")
        return self


class Published(Record):
    """One curve of a source, to be drawn beside that of a strategy of the scenario. It changes nothing that runs."""

    strategy: str = Field(description="label of the strategy that it is drawn beside")
    source: str = Field(min_length=1, description="who says so, and where")
    points: tuple[PublishedPoint, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _once_each(self) -> Self:
        counts = [point.workers for point in self.points]
        twice = [k for k, count in enumerate(counts) if count in counts[:k]]
        refuse(Conflict(("points", k, "workers"), f"{counts[k]} is there already; write both in one") for k in twice)
        return self


def strangers(published: Sequence[Published], labels: Sequence[str]) -> Iterator[Conflict]:
    """Curves beside which nothing will be drawn."""
    for k, each in enumerate(published):
        if each.strategy not in labels:
            why = f"{each.strategy} is none of the strategies: {', '.join(labels)}"
            yield Conflict(("published", k, "strategy"), why)
