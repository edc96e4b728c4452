"""Figures of a report, one per file. `scaling/` has those over numbers of workers, `sweeps/` those over swept values.

Each file has a function that takes an analysed run and returns a drawing.

A figure function returns None if the run has no data for the figure. `FIGURES` lists the figures in the order of the
report.
"""

from analysis.figures.base import AnalysedRun, CaptionedFigure, ReportFigure
from analysis.figures.batch_shares import draw_batch_shares
from analysis.figures.compute_utilisation import draw_compute_utilisation
from analysis.figures.consensus import draw_consensus
from analysis.figures.goodput import draw_goodput
from analysis.figures.learning import draw_learning_curves
from analysis.figures.predicted import draw_predicted_step_times
from analysis.figures.samples import draw_sample_pictures
from analysis.figures.scaling.efficiency import draw_parallel_efficiency
from analysis.figures.scaling.laws import draw_scaling_laws
from analysis.figures.scaling.predicted_speedup import draw_predicted_speedup
from analysis.figures.scaling.speedup import draw_speedup
from analysis.figures.staleness import draw_gradient_staleness
from analysis.figures.step_breakdown import draw_step_breakdown
from analysis.figures.sweeps.conditions import draw_sample_time_by_sweep
from analysis.figures.sweeps.quality import draw_final_model_quality
from analysis.figures.sweeps.strategy_map import draw_strategy_map
from analysis.figures.switch import draw_switch_time_savings
from analysis.figures.time_to_target import draw_time_to_target
from analysis.figures.timeline import draw_step_times_with_events
from analysis.figures.worker_data import draw_worker_data

FIGURES: dict[str, ReportFigure] = {  # the names are file names in the run folder and must not change
    "time_to_target": ReportFigure(draw_time_to_target, "a scenario with a target"),
    "strategy_map": ReportFigure(
        draw_strategy_map, "several strategies, and exactly two swept keys that apply to all of them"
    ),
    "conditions": ReportFigure(draw_sample_time_by_sweep, "swept values other than the number of workers"),
    "quality": ReportFigure(draw_final_model_quality, "swept values that change the final metric of a strategy"),
    "timeline": ReportFigure(draw_step_times_with_events, "trials with events"),
    "switch": ReportFigure(draw_switch_time_savings, "finished trials of a strategy that switches"),
    "goodput": ReportFigure(
        draw_goodput, "finished trials with several declared failure rates or checkpoint intervals"
    ),
    "speedup": ReportFigure(draw_speedup, "a strategy that ran on two or more numbers of workers"),
    "predicted_speedup": ReportFigure(
        draw_predicted_speedup, "a strategy that ran on two or more numbers of workers, each with a predicted step time"
    ),
    "laws": ReportFigure(draw_scaling_laws, "a strategy that ran on four or more numbers of workers"),
    "efficiency": ReportFigure(draw_parallel_efficiency, "a strategy that ran on two or more numbers of workers"),
    "batch_shares": ReportFigure(draw_batch_shares, "finished trials of a strategy with load balancing"),
    "compute_utilisation": ReportFigure(draw_compute_utilisation, "trials with logged steps and metered exchanges"),
    "step_breakdown": ReportFigure(draw_step_breakdown, "trials with logged steps"),
    "predicted": ReportFigure(draw_predicted_step_times, "trials with logged steps and a predicted step time"),
    "learning": ReportFigure(draw_learning_curves, "trials with logged evaluations"),
    "samples": ReportFigure(
        draw_sample_pictures, "finished trials of a model that generates pictures or detects objects"
    ),
    "staleness": ReportFigure(draw_gradient_staleness, "a parameter server that applied gradients of several workers"),
    "consensus": ReportFigure(draw_consensus, "finished trials of a gossip strategy with evaluations"),
    "worker_data": ReportFigure(draw_worker_data, "a partition that gives each worker samples of its own"),
}

__all__ = ["FIGURES", "AnalysedRun", "CaptionedFigure", "ReportFigure"]
