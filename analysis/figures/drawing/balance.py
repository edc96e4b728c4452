"""Marks on speedup curves at balance points.

Balance points are numbers of workers that a rule chooses from the curve.
"""

from collections.abc import Callable, Iterator, Sequence

from matplotlib.axes import Axes

from analysis.figures.drawing.style import FOREGROUND
from analysis.metrics.comparisons.worker_choice import RuleAndWorkerCount
from analysis.metrics.speedup import SpeedupCurve, SpeedupPoint
from analysis.statistics.worker_count_rules import WORKER_COUNT_RULES

# rule -> hollow marker and its size in points
RULE_MARKERS = dict(zip(WORKER_COUNT_RULES, (("o", 10), ("s", 13), ("D", 15)), strict=True))
MARKER_NAMES = {"o": "circle", "s": "square", "D": "diamond"}


def format_balance_rule(rule_name: str) -> str:
    """Return the name of a rule as written in figures, with "≥" in place of ">=".

    The rule chooses a number of workers.
    """
    return rule_name.replace(">=", "≥").replace("T^2 N", "T²·N")


BALANCE_LEGEND = "Marks show the number of workers chosen by three rules (see the glossary): {}.".format(
    ", ".join(f"{MARKER_NAMES[marker]} {format_balance_rule(rule)}" for rule, (marker, _) in RULE_MARKERS.items())
)


def mark_chosen_worker_counts(
    axes: Axes,
    curve: SpeedupCurve,
    count_choices: Sequence[RuleAndWorkerCount],
    get_y_of_point: Callable[[SpeedupPoint], float],
) -> None:
    """Draw a hollow mark around each point of a speedup curve that a rule chooses.

    Such a point is, for example, the knee of the curve.

    Each rule has a mark of another size, because two rules may choose the same point.
    """
    for point in curve.points:
        for rule in _find_rules_choosing_point(curve, point, count_choices):
            marker, size_points = RULE_MARKERS[rule]
            axes.plot(
                [point.workers], [get_y_of_point(point)], linestyle="none", marker=marker, markersize=size_points,
                markerfacecolor="none", markeredgecolor=FOREGROUND, markeredgewidth=0.8,
            )  # fmt: skip


def format_rules_choosing_point(
    speedup_curve: SpeedupCurve, speedup_point: SpeedupPoint, count_choices: Sequence[RuleAndWorkerCount]
) -> str:
    """Return the names of all rules that choose a given point of a speedup curve.

    A rule chooses a number of workers. Names are separated by semicolons.
    """
    return "; ".join(_find_rules_choosing_point(speedup_curve, speedup_point, count_choices))


def _find_rules_choosing_point(
    curve: SpeedupCurve, point: SpeedupPoint, count_choices: Sequence[RuleAndWorkerCount]
) -> Iterator[str]:
    for choice in count_choices:
        if (choice.strategy, choice.condition, choice.workers) == (curve.strategy, curve.condition, point.workers):
            yield choice.rule
