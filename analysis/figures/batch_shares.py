"""Figure `batch_shares`: samples per step of each worker over time, under strategies with load balancing."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import AnalysedRun, CaptionedFigure
from analysis.figures.drawing.style import PALETTE, add_run_title_and_footer, create_figure, start_axes_at_zero
from analysis.metrics.batch_shares import BatchBalanceResult
from analysis.report.wording import TIMES_SIGN, format_milliseconds, format_number, format_percentage
from analysis.results.trial_result import TrialResult

MAX_PANELS = 6
MAX_LABELLED_WORKERS = 12


@dataclass(frozen=True)
class TrialBatchShares:
    """Shares of a batch in one trial."""

    result: TrialResult
    balance: BatchBalanceResult

    @property
    def name(self) -> str:
        """Strategy, number of workers and swept values of the trial."""
        trial = self.result
        return f"{trial.strategy} {TIMES_SIGN}{trial.workers}" + (f" · {trial.condition}" if trial.condition else "")


def draw_batch_shares(run: AnalysedRun) -> CaptionedFigure | None:
    """Draw the samples per step of each worker, one panel per strategy with load balancing."""
    trials = _find_balanced_trials(run)
    if not trials:
        return None
    shown = trials[:MAX_PANELS]
    figure, panels = create_figure(len(shown), 1, 1.2 + 2.2 * len(shown))
    title = _figure_title(shown)
    add_run_title_and_footer(figure, run.summary, title)
    for axes, trial in zip(panels, shown, strict=True):
        _draw_panel(axes, trial)
    start_axes_at_zero(panels, x=True, y=True)
    panels[-1].set_xlabel("step")
    spreads = ", ".join(f"{trial.name} {format_percentage(trial.balance.shares[-1].spread)}" for trial in shown)
    caption = (
        "Samples that each worker processes in a step on a whole batch, in the first repeat. Difference between the "
        f"compute times of the slowest and the fastest worker with the last shares, relative to the slowest: {spreads}."
    )
    if len(trials) > len(shown):
        caption += f" {len(trials) - len(shown)} more trials are in the data of the figure."
    return CaptionedFigure("batch_shares", title, caption, _make_table(trials), figure)


def _find_balanced_trials(run: AnalysedRun) -> list[TrialBatchShares]:
    """Return the first repeat of each strategy with load balancing, for each number of workers and swept values."""
    found: dict[tuple[str, int, str], TrialBatchShares] = {}
    for result in run.summary.trials:
        if result.batch_balance is not None and result.is_finished:
            key = (result.strategy, result.workers, result.condition)
            found.setdefault(key, TrialBatchShares(result, result.batch_balance))
    return [*found.values()]


def _figure_title(trials: Sequence[TrialBatchShares]) -> str:
    """Return the finding on the trial that gained most; of several, on the one that changed its shares most often."""
    trial = max(trials, key=lambda each: (round(each.balance.compute_speedup or 0.0, 2), each.balance.adjustment_count))
    balance, last = trial.balance, trial.balance.shares[-1]
    count = balance.adjustment_count
    change = f"after {count} change{'s' * (count > 1)} of the shares" if count else "with shares that never change"
    sentence = (
        f"{trial.name}: {change}, the slowest worker computes {format_milliseconds(last.slowest_compute_s)} ms per step"
    )
    if balance.compute_speedup is None or balance.speedup_bound is None:
        return sentence
    equal_ms, speedup = format_milliseconds(balance.equal_compute_s), format_number(balance.compute_speedup)
    bound = format_number(balance.speedup_bound)
    return f"{sentence}; equal shares would take {equal_ms} ms, {speedup} times as long (at most {bound})"


def _draw_panel(axes: Axes, trial: TrialBatchShares) -> None:
    intervals = trial.balance.shares
    steps = [*(interval.first_step for interval in intervals), intervals[-1].last_step + 1]
    is_labelled = trial.result.workers <= MAX_LABELLED_WORKERS
    for rank in range(trial.result.workers):
        counts = [interval.samples[rank] for interval in intervals]
        label, colour = f"worker-{rank}" if is_labelled else None, PALETTE[rank % len(PALETTE)]
        axes.plot(steps, [*counts, counts[-1]], drawstyle="steps-post", color=colour, label=label)
    axes.set_title(trial.name)
    axes.set_ylabel("samples per step")
    if is_labelled:
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="x-small")


def _make_table(trials: Sequence[TrialBatchShares]) -> pd.DataFrame:
    rows = [
        (
            *(trial.result.id, trial.result.strategy, trial.result.workers, trial.result.condition),
            *(interval.first_step, interval.last_step, f"worker-{rank}", count),
        )
        for trial in trials
        for interval in trial.balance.shares
        for rank, count in enumerate(interval.samples)
    ]
    columns = ["trial", "strategy", "workers", "condition", "first_step", "last_step", "worker", "samples"]
    return pd.DataFrame(rows, columns=columns)
