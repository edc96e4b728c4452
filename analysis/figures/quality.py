"""What does a swept condition cost in quality?"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import Drawing, Run
from analysis.figures.drawing.labels import at_right
from analysis.figures.drawing.style import canvas, colour, frame, marker
from analysis.report.wording import capitalise_first_letter, format_number
from analysis.results.result import TrialGroup
from analysis.results.swept_conditions import groups_across_conditions
from analysis.statistics.centre import Floats

LOSS = "loss"  # every run has it; where something else is measured, readers care for that


def quality(run: Run) -> Drawing | None:
    """The last value of the metric under every condition, a line per strategy on its most workers."""
    metric = _metric(run)
    found = [
        ladder for ladder in groups_across_conditions(run.summary) if all(ends(group, metric).size for group in ladder)
    ]
    if not any(_differs(ladder, metric) for ladder in found):
        return None
    figure, (axes,) = canvas(1, 1, 3.6)
    names = [name for name in run.summary.conditions if any(each.condition == name for one in found for each in one)]
    for ladder in found:
        _line(
            axes,
            names,
            ladder,
            metric,
            colour(run.summary, ladder[0].strategy),
            marker(run.summary, ladder[0].strategy),
        )
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.2, len(names) - 0.8)
    axes.set_ylabel(f"{metric} at the end")
    last = {
        one[0].strategy: (float(ends(one[-1], metric).mean()), colour(run.summary, one[0].strategy)) for one in found
    }
    at_right(axes, last)
    title = capitalise_first_letter("; ".join(_finding(ladder, metric) for ladder in found[:3]))
    frame(figure, run.summary, title)
    caption = f"The {metric} of the last evaluation; means over the repeats, dots are single runs."
    return Drawing("quality", title, caption, _table(found, metric), figure)


def ends(group: TrialGroup, metric: str) -> Floats:
    """The last value in every repeat that was evaluated."""
    return np.array([trial.final[metric] for trial in group.trials if metric in trial.final])


def _metric(run: Run) -> str:
    known = dict.fromkeys(name for trial in run.summary.trials for name in trial.final)
    return next((name for name in known if name != LOSS), LOSS)


def _differs(ladder: Sequence[TrialGroup], metric: str) -> bool:
    """Whether anybody would write two numbers for its conditions."""
    return len({format_number(float(ends(group, metric).mean())) for group in ladder}) > 1


def _finding(ladder: Sequence[TrialGroup], metric: str) -> str:
    """The two conditions that differ most."""
    ranked = sorted(ladder, key=lambda group: float(ends(group, metric).mean()))
    low, high = (
        f"{format_number(float(ends(each, metric).mean()))} with {each.condition}" for each in (ranked[0], ranked[-1])
    )
    return f"{ladder[0].strategy} ends at {metric} {low}, {high}"


def _line(axes: Axes, names: Sequence[str], ladder: Sequence[TrialGroup], metric: str, tint: str, shape: str) -> None:
    places = [names.index(group.condition) for group in ladder]
    axes.plot(places, [float(ends(group, metric).mean()) for group in ladder], color=tint, marker=shape)
    for place, group in zip(places, ladder, strict=True):
        single = ends(group, metric)
        axes.plot([place] * single.size, single, "o", color=tint, markersize=2.5)


def _table(found: Sequence[Sequence[TrialGroup]], metric: str) -> pd.DataFrame:
    rows = [
        (group.strategy, group.workers, group.condition, trial.seed, trial.final[metric])
        for ladder in found
        for group in ladder
        for trial in group.trials
        if metric in trial.final
    ]
    return pd.DataFrame(rows, columns=["strategy", "workers", "condition", "seed", metric])
