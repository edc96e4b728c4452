"""Text labels at the right ends of curves, used instead of a legend."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from analysis.statistics.centre import Floats


def spread_label_positions(label_positions: Sequence[float] | Floats, min_gap: float) -> list[float]:
    """Return label positions that are moved until neighbouring labels are at least `min_gap` apart.

    The order of the labels is kept. Labels that are too close form a block, which is centred on the mean of their
    positions. Blocks that touch are merged.
    """
    order = np.argsort(label_positions, kind="stable")
    blocks: list[list[float]] = []
    for position in np.asarray(label_positions, dtype=float)[order]:
        blocks.append([float(position)])
        while len(blocks) > 1 and _are_label_blocks_touching(blocks[-2], blocks[-1], min_gap):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    placed = [
        _find_bottom_label_position(block, min_gap) + index * min_gap for block in blocks for index in range(len(block))
    ]
    return [placed[int(rank)] for rank in np.argsort(order, kind="stable")]


def _are_label_blocks_touching(lower_labels: list[float], upper_labels: list[float], min_gap: float) -> bool:
    return (
        _find_bottom_label_position(upper_labels, min_gap) < _find_top_label_position(lower_labels, min_gap) + min_gap
    )


def _find_bottom_label_position(label_positions: list[float], min_gap: float) -> float:
    return float(np.mean(label_positions)) - min_gap * (len(label_positions) - 1) / 2


def _find_top_label_position(label_positions: list[float], min_gap: float) -> float:
    return float(np.mean(label_positions)) + min_gap * (len(label_positions) - 1) / 2


def draw_right_edge_labels(axes: Axes, text_labels: Mapping[str, tuple[float, str]], font_points: float = 8.5) -> None:
    """Write text labels beside the right edge of a panel of a figure.

    Labels that would overlap are moved apart.

    Call this function after all drawing calls, because it reads the final limits of the axes.

    Args:
        axes: the panel.
        text_labels: text -> height in data units, colour.
        font_points: font size.
    """
    low, high = axes.transData.transform([(1.0, limit) for limit in axes.get_ylim()])[:, 1]
    pixels = axes.transData.transform([(1.0, height) for height, _ in text_labels.values()])[:, 1]
    line_height = 1.35 * font_points * axes.figure.dpi / 72 / (high - low)  # as a share of the panel's height
    heights = spread_label_positions((pixels - low) / (high - low), line_height)
    for (text, (_, colour)), height in zip(text_labels.items(), heights, strict=True):
        axes.annotate(
            text, (1.0, height), (5, 0), xycoords="axes fraction", textcoords="offset points",
            color=colour, fontsize=font_points, fontweight="bold", va="center", annotation_clip=False,
        )  # fmt: skip
