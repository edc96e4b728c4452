"""Figures: one per file, each a function of a run that returns a Drawing or None when there is nothing to show.

`FIGURES` is the order of the report.
"""

from collections.abc import Callable

from analysis.figures.base import Drawing, Run
from analysis.figures.conditions import conditions
from analysis.figures.efficiency import efficiency
from analysis.figures.laws import laws
from analysis.figures.learning import learning
from analysis.figures.predicted import predicted
from analysis.figures.predicted_speedup import predicted_speedup
from analysis.figures.quality import quality
from analysis.figures.speedup import speedup
from analysis.figures.staleness import staleness
from analysis.figures.step_breakdown import step_breakdown
from analysis.figures.switch import switch
from analysis.figures.time_to_target import time_to_target
from analysis.figures.timeline import timeline

Draw = Callable[[Run], Drawing | None]

FIGURES: tuple[Draw, ...] = (
    time_to_target,
    conditions,
    quality,
    timeline,
    switch,
    speedup,
    predicted_speedup,
    laws,
    efficiency,
    step_breakdown,
    predicted,
    learning,
    staleness,
)

__all__ = ["FIGURES", "Draw", "Drawing", "Run"]
