"""Names at the ends of lines instead of a legend."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from analysis.statistics.centre import Floats


def spread(positions: Sequence[float] | Floats, gap: float) -> list[float]:
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


def at_right(axes: Axes, names: Mapping[str, tuple[float, str]], size: float = 8.5) -> None:
    """Writes each name (-> height in data units, colour) beside the right edge, moved apart where they would touch.

    Call it last: it reads the final limits of the axes.
    """
    low, high = axes.transData.transform([(1.0, limit) for limit in axes.get_ylim()])[:, 1]
    points = axes.transData.transform([(1.0, height) for height, _ in names.values()])[:, 1]
    gap = 1.35 * size * axes.figure.dpi / 72 / (high - low)  # a line of text as a share of the panel's height
    heights = spread((points - low) / (high - low), gap)
    for (name, (_, colour)), height in zip(names.items(), heights, strict=True):
        axes.annotate(
            name, (1.0, height), (5, 0), xycoords="axes fraction", textcoords="offset points",
            color=colour, fontsize=size, fontweight="bold", va="center", annotation_clip=False,
        )  # fmt: skip
