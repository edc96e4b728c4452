"""How all figures look: one ink, one paper, one colour per strategy, a finding on top and the verdict below."""

import textwrap
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.report.wording import capitalise_first_letter
from analysis.results.summary import RunSummary

# The report replaces these three by its own variables, so that figures follow a light or dark page.
INK, PAPER, FAINT = "#1b1f24", "#ffffff", "#c9ced6"

# Okabe & Ito's palette, told apart with every common colour blindness; its yellow is too light for lines. The second
# half is for runs of more strategies than eyes tell apart by hue: darker.
COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#8c6d31"),
    *("#1f3a5f", "#9b2226", "#7a9a01", "#b5179e", "#f2845c", "#0f8b8d", "#3d348b", "#5c5f45"),
)
# Those too dim on a dark page, and what the page shows instead: the same hue, lighter.
ON_DARK = {
    "#0072b2": "#4aa3e0",
    "#7a5195": "#b58ad0",
    "#8c6d31": "#c2a05a",
    "#1f3a5f": "#6f9bd1",
    "#9b2226": "#e0666a",
    "#b5179e": "#e36fd2",
    "#3d348b": "#9a91e8",
    "#5c5f45": "#a3a67f",
}
BASELINE = "#7f8791"
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
LINES = ("-", "--", ":", "-.")  # one per condition

# Phases are told apart by lightness as well, and share no colour with the first strategies.
PHASE_COLOURS = {
    "data": "#b9c4ce",
    "compute": "#5b7083",
    "exchange": "#e3a04f",
    "wait": "#f3d9a4",
    "update": "#94b49f",
    "other": "#dcdfe3",
}

WIDTH_IN = 9.0
TITLE_POINTS = 11
TITLE_CHARACTERS = 92  # of a bold line across the page
FOOTER_CHARACTERS = 165  # of a line of the footer across the page
KEY_POINTS = 8.5
KEY_CHARACTERS = 118  # of a line of the key, of which each entry takes KEY_GAP more than its name
KEY_GAP = 7
DASHED = 3.5  # a sign's length in which line styles can be told apart

STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": FAINT,
    "axes.facecolor": PAPER,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "figure.facecolor": PAPER,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same on every host
    "font.size": 9,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "grid.alpha": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "savefig.facecolor": PAPER,
    "text.color": INK,
    "xtick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.color": FAINT,
    "ytick.labelcolor": INK,
}


def styled() -> AbstractContextManager[None]:
    """The style for everything drawn or saved inside."""
    return mpl.rc_context(STYLE)


def colour(summary: RunSummary, strategy: str) -> str:
    """The strategy's colour: by its place in the scenario, the same in every figure; the baseline is grey."""
    return COLOURS[_place(summary, strategy) % len(COLOURS)] if strategy in summary.strategies else BASELINE


def marker(summary: RunSummary, strategy: str) -> str:
    """The strategy's marker, so that colour is never needed alone."""
    return MARKERS[_place(summary, strategy) % len(MARKERS)] if strategy in summary.strategies else "o"


def line(summary: RunSummary, condition: str) -> str:
    """The condition's line style."""
    return LINES[summary.conditions.index(condition) % len(LINES)]


def _place(summary: RunSummary, strategy: str) -> int:
    return summary.strategies.index(strategy)


def canvas(rows: int, columns: int, height_in: float, **options: object) -> tuple[Figure, list[Axes]]:
    """A page-wide figure with its panels in reading order."""
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, **options)  # type: ignore[call-overload]
    return figure, list(np.ravel(panels))


def lay_out(figure: Figure) -> None:
    """Settles the places of panels and the limits of their axes, which names at lines need; drawing does so too."""
    if engine := figure.get_layout_engine():
        engine.execute(figure)


def from_zero(panels: Iterable[Axes], *, x: bool = False, y: bool = False) -> None:
    """Lets axes begin at zero. Call it when all is drawn: one fixed end freezes the other, for all who share it."""
    for axes in panels:
        if x:
            axes.set_xlim(left=0)
        if y:
            axes.set_ylim(bottom=0)


def frame(
    figure: Figure,
    summary: RunSummary,
    title: str,
    key: Mapping[str, str] | None = None,
    shapes: Mapping[str, str] | None = None,
    dashes: Mapping[str, str] | None = None,
) -> None:
    """The finding on top; below, what the reader must know before believing it.

    `key` (name -> colour) goes under the finding, for figures too crowded for names at the lines; `shapes` and `dashes`
    as in `entitle`.
    """
    entitle(figure, title, footer(summary), key, shapes, dashes)


def entitle(
    figure: Figure,
    title: str,
    below: str,
    key: Mapping[str, str] | None = None,
    shapes: Mapping[str, str] | None = None,
    dashes: Mapping[str, str] | None = None,
) -> None:
    """As `frame`, for figures of something else than a run.

    Names in the key have the marker that `shapes` gives and the line style that `dashes` gives.
    """
    finding = textwrap.fill(capitalise_first_letter(title), TITLE_CHARACTERS)
    room = "\n" * key_rows(key) if key else ""  # the layout leaves more lines for the key
    figure.suptitle(finding + room, x=0.01, ha="left", fontsize=TITLE_POINTS, fontweight="bold")
    figure.supxlabel(below, x=0.01, ha="left", fontsize=7.5, color=BASELINE)
    if key:
        _place_key(figure, key, shapes or {}, dashes or {}, lines=finding.count("\n") + 1)


def key_rows(key: Mapping[str, str]) -> int:
    """Lines that the key takes, in columns as wide as its longest name."""
    return -(-len(key) // _key_columns(key))


def _key_columns(key: Mapping[str, str]) -> int:
    return max(1, min(len(key), KEY_CHARACTERS // (max(map(len, key)) + KEY_GAP)))


# What enforces links where nothing better is needed: a footer that names none of it has nothing to explain.
FIRST_RUNGS = {"tc-htb", "netem", "fluid"}


def footer(summary: RunSummary) -> str:
    """Verdict, engine, what enforced links where it is not the first choice, dilation and run."""
    usual = FIRST_RUNGS if summary.engine == "docker" else FIRST_RUNGS | {"transport"}
    parts = (
        f"verdict: {summary.verdict}",
        f"{summary.engine} engine",
        *(f"{what} by {' and '.join(rungs)}" for what, rungs in summary.rungs.items() if not usual.issuperset(rungs)),
        repeats(summary),
        f"dilation {summary.dilation:g}",
        f"{summary.scenario} {summary.run}",
        "MLPerf-style; not an MLPerf result",
    )
    return _lines(parts, "  ·  ", FOOTER_CHARACTERS)


def _lines(parts: Iterable[str], between: str, most: int) -> str:
    """The parts in lines of at most so many characters, broken between parts."""
    lines: list[str] = []
    for part in parts:
        longer = between.join([*lines[-1:], part])
        lines = [*lines[:-1], longer] if len(longer) <= most else [*lines, part]
    return "\n".join(lines)


def repeats(summary: RunSummary) -> str:
    """How often each point ran, as "5 runs each" or "1 to 5 runs each"."""
    counts = sorted({len(group.trials) for group in summary.groups})
    if not counts:
        return "no finished run"
    least = f"{counts[0]} to " if len(counts) > 1 else ""
    return f"{least}{counts[-1]} run{'s' * (counts[-1] > 1)} each"


def _place_key(
    figure: Figure, key: Mapping[str, str], shapes: Mapping[str, str], dashes: Mapping[str, str], lines: int
) -> None:
    height_points = 72 * figure.get_figheight()
    legend = figure.legend(
        handles=[_sign(tint, shapes.get(name), dashes.get(name)) for name, tint in key.items()],
        labels=list(key),
        loc="upper left",
        bbox_to_anchor=(0.0, 1 - (1.35 * TITLE_POINTS * lines) / height_points),
        ncols=_key_columns(key),
        fontsize=KEY_POINTS,
        handlelength=DASHED if dashes else 1,
        labelspacing=0.25,  # rows no higher than the title's lines, whose room they take
        borderpad=0.2,
        columnspacing=1.5,
    )
    legend.set_in_layout(False)  # its room is the empty last line of the title


def _sign(tint: str, shape: str | None, dash: str | None) -> Artist:
    if shape is None and dash is None:
        return Patch(facecolor=tint, edgecolor="none")
    sign = Line2D([], [], color=tint, marker=shape or "none", markersize=5)
    sign.set(linestyle=dash or "none")
    return sign
