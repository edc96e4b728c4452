"""Marks of balance points on curves: how many workers are worth it, by each of the rules."""

from collections.abc import Callable, Iterator, Sequence

from matplotlib.axes import Axes

from analysis.figures.drawing.style import INK
from analysis.metrics.balance import BALANCE_RULES, BalancePoint
from analysis.metrics.speedup import SpeedupCurve, SpeedupPoint

SHAPES = dict(
    zip(BALANCE_RULES, (("o", 10), ("s", 13), ("D", 15)), strict=True)
)  # rule -> hollow mark and its size in points


def printed(rule: str) -> str:
    """As people write it; what stands in files keeps to ASCII."""
    return rule.replace(">=", "≥").replace("T^2 N", "T²·N")


WORDS = {"o": "circle", "s": "square", "D": "diamond"}
LEGEND = f"Balance points: {', '.join(f'{WORDS[shape]} {printed(rule)}' for rule, (shape, _) in SHAPES.items())}."


def mark(
    axes: Axes, curve: SpeedupCurve, picks: Sequence[BalancePoint], height: Callable[[SpeedupPoint], float]
) -> None:
    """A hollow mark around each point that a rule picks; of different sizes, since rules may pick the same."""
    for point in curve.points:
        for rule in _rules(curve, point, picks):
            shape, size = SHAPES[rule]
            axes.plot(
                [point.workers], [height(point)], linestyle="none", marker=shape, markersize=size,
                markerfacecolor="none", markeredgecolor=INK, markeredgewidth=0.8,
            )  # fmt: skip


def rules_at(curve: SpeedupCurve, point: SpeedupPoint, picks: Sequence[BalancePoint]) -> str:
    """The rules that pick this point, for tables."""
    return "; ".join(_rules(curve, point, picks))


def _rules(curve: SpeedupCurve, point: SpeedupPoint, picks: Sequence[BalancePoint]) -> Iterator[str]:
    for pick in picks:
        if (pick.strategy, pick.condition, pick.workers) == (curve.strategy, curve.condition, point.workers):
            yield pick.rule
