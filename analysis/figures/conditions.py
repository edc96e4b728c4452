"""What does a swept condition cost each strategy?"""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from analysis.figures.base import Drawing, Run
from analysis.figures.drawing.labels import at_right
from analysis.figures.drawing.style import canvas, colour, frame, from_zero, marker
from analysis.report.wording import capitalise_first_letter
from analysis.results.result import TrialGroup
from analysis.results.swept_conditions import describe_condition_effects, groups_across_conditions, seconds_per_sample


def conditions(run: Run) -> Drawing | None:
    """Time per thousand samples under every condition, a line per strategy on its most workers."""
    found = groups_across_conditions(run.summary)
    if not found:
        return None
    figure, (axes,) = canvas(1, 1, 3.6)
    names = [
        name for name in run.summary.conditions if any(group.condition == name for each in found for group in each)
    ]
    for ladder in found:
        _line(axes, names, ladder, colour(run.summary, ladder[0].strategy), marker(run.summary, ladder[0].strategy))
    ends = {
        each[0].strategy: (1e3 * seconds_per_sample(each[-1]), colour(run.summary, each[0].strategy)) for each in found
    }
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.2, len(names) - 0.8)
    from_zero([axes], y=True)
    axes.set_ylabel("virtual seconds per 1,000 samples")
    at_right(axes, ends)
    title = capitalise_first_letter(describe_condition_effects(run.summary))
    frame(figure, run.summary, title)
    counts = ", ".join(f"{each[0].strategy} on {each[0].workers}" for each in found)
    caption = f"Means over the repeats; dots are single runs. Workers: {counts}."
    return Drawing("conditions", title, caption, _table(found), figure)


def _line(axes: Axes, names: Sequence[str], ladder: Sequence[TrialGroup], tint: str, shape: str) -> None:
    places = [names.index(group.condition) for group in ladder]
    axes.plot(places, [1e3 * seconds_per_sample(group) for group in ladder], color=tint, marker=shape)
    for place, group in zip(places, ladder, strict=True):
        axes.plot([place] * len(group.trials), 1e3 * group.times_s("time_to_samples"), "o", color=tint, markersize=2.5)


def _table(found: Sequence[Sequence[TrialGroup]]) -> pd.DataFrame:
    rows = [
        (each.strategy, each.workers, each.condition, seconds_per_sample(each)) for ladder in found for each in ladder
    ]
    return pd.DataFrame(rows, columns=["strategy", "workers", "condition", "seconds_per_sample"])
