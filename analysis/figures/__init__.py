"""Figures of a report, one per file.

Each file has a function that takes an analysed run and returns a drawing.

A figure function returns None if the run has no data for the figure. `FIGURES` lists the figure functions in the order
of the report.
"""

from collections.abc import Callable

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.conditions import draw_sample_time_by_sweep
from analysis.figures.efficiency import draw_parallel_efficiency
from analysis.figures.laws import draw_scaling_laws
from analysis.figures.learning import draw_learning_curves
from analysis.figures.predicted import draw_predicted_step_times
from analysis.figures.predicted_speedup import draw_predicted_speedup
from analysis.figures.quality import draw_final_model_quality
from analysis.figures.speedup import draw_speedup
from analysis.figures.staleness import draw_gradient_staleness
from analysis.figures.step_breakdown import draw_step_breakdown
from analysis.figures.switch import draw_switch_time_savings
from analysis.figures.time_to_target import draw_time_to_target
from analysis.figures.timeline import draw_step_times_with_events

FigureFunction = Callable[[AnalysedRun], CaptionedFigure | None]

FIGURES: dict[str, FigureFunction] = {  # the names are file names in the run folder and must not change
    "time_to_target": draw_time_to_target,
    "conditions": draw_sample_time_by_sweep,
    "quality": draw_final_model_quality,
    "timeline": draw_step_times_with_events,
    "switch": draw_switch_time_savings,
    "speedup": draw_speedup,
    "predicted_speedup": draw_predicted_speedup,
    "laws": draw_scaling_laws,
    "efficiency": draw_parallel_efficiency,
    "step_breakdown": draw_step_breakdown,
    "predicted": draw_predicted_step_times,
    "learning": draw_learning_curves,
    "staleness": draw_gradient_staleness,
}

__all__ = ["FIGURES", "AnalysedRun", "CaptionedFigure", "FigureFunction"]
