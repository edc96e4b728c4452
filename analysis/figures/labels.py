"""Names at the ends of lines instead of a legend."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Moves positions apart, up and down alike, until neighbours are at least `gap` away; order is kept.

    Positions that are too close form a block centred on their mean; blocks that touch become one.
    """
    order = np.argsort(positions, kind="stable")
    blocks: list[list[float]] = []
    for position in np.asarray(positions, dtype=float)[order]:
        blocks.append([float(position)])
        while len(blocks) > 1 and _low(blocks[-1], gap) < _high(blocks[-2], gap) + gap:
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    placed = [_low(block, gap) + step * gap for block in blocks for step in range(len(block))]
    return [placed[int(place)] for place in np.argsort(order, kind="stable")]


def _low(block: list[float], gap: float) -> float:
    return float(np.mean(block)) - gap * (len(block) - 1) / 2


def _high(block: list[float], gap: float) -> float:
    return float(np.mean(block)) + gap * (len(block) - 1) / 2


def at_right(
    axes: Axes, names: Sequence[str], heights: Sequence[float], colours: Sequence[str], size: float = 8.5
) -> None:
    """Writes each name beside the right edge at its line's end height (data units), moved apart where they would touch.

    Call it last: it reads the final limits of the axes.
    """
    points = axes.transData.transform([(1.0, height) for height in heights])[:, 1]
    low, high = (axes.transData.transform([(1.0, limit) for limit in axes.get_ylim()]))[:, 1]
    gap = 1.35 * size * axes.figure.dpi / 72 / (high - low)  # a line of text as a share of the panel's height
    for name, height, tint in zip(
        names, spread([(point - low) / (high - low) for point in points], gap), colours, strict=True
    ):
        axes.annotate(
            name, (1.0, height), (5, 0), xycoords="axes fraction", textcoords="offset points",
            color=tint, fontsize=size, fontweight="bold", va="center", annotation_clip=False,
        )  # fmt: skip
