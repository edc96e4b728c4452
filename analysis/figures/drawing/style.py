"""Common style of all figures: colours, markers, fonts, panels, title, legend and footer."""

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

# The report replaces these three by CSS variables, so that figures follow a light or dark page.
FOREGROUND, BACKGROUND, FAINT_GREY = "#1b1f24", "#ffffff", "#c9ced6"

# First row: the palette of Okabe & Ito without yellow, which is too light for lines. Its colours can be distinguished
# with every common colour blindness. Second row: darker colours, for runs with more strategies than hues that the eye
# distinguishes.
PALETTE = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#8c6d31"),
    *("#1f3a5f", "#9b2226", "#7a9a01", "#b5179e", "#f2845c", "#0f8b8d", "#3d348b", "#5c5f45"),
)
# Colours that are too dark on a dark page -> the lighter colour of the same hue that a dark page shows.
DARK_PAGE_COLOURS = {
    "#0072b2": "#4aa3e0",
    "#7a5195": "#b58ad0",
    "#8c6d31": "#c2a05a",
    "#1f3a5f": "#6f9bd1",
    "#9b2226": "#e0666a",
    "#b5179e": "#e36fd2",
    "#3d348b": "#9a91e8",
    "#5c5f45": "#a3a67f",
}
BASELINE_GREY = "#7f8791"
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
LINE_STYLES = ("-", "--", ":", "-.")  # one per condition

# Step phases differ in lightness as well as in hue, and have no colour in common with the first strategies.
STEP_PHASE_COLOURS = {
    "data": "#b9c4ce",
    "compute": "#5b7083",
    "exchange": "#e3a04f",
    "wait": "#f3d9a4",
    "update": "#94b49f",
    "other": "#dcdfe3",
}

FIGURE_WIDTH_IN = 9.0
TITLE_FONT_POINTS = 11
TITLE_LINE_CHARACTERS = 92  # bold characters that fit in a line of the title
FOOTER_FONT_POINTS = 7.5
FOOTER_LINE_HEIGHT = 1.2  # of a line of the footer, as a multiple of the font size
FOOTER_LINE_CHARACTERS = 140  # characters that fit in a line of the footer
LEGEND_FONT_POINTS = 8.5
LEGEND_LINE_CHARACTERS = 118  # characters that fit in a line of the legend
LEGEND_GAP_CHARACTERS = 7  # room that an entry of the legend takes beside its name
LINE_HANDLE_LENGTH = 3.5  # in font sizes; long enough to distinguish line styles in the legend

MATPLOTLIB_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": FAINT_GREY,
    "axes.facecolor": BACKGROUND,
    "axes.grid": True,
    "axes.labelcolor": FOREGROUND,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": FOREGROUND,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "figure.facecolor": BACKGROUND,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same on every host
    "font.size": 9,
    "grid.color": FAINT_GREY,
    "grid.linewidth": 0.5,
    "grid.alpha": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "savefig.facecolor": BACKGROUND,
    "text.color": FOREGROUND,
    "xtick.color": FAINT_GREY,
    "xtick.labelcolor": FOREGROUND,
    "ytick.color": FAINT_GREY,
    "ytick.labelcolor": FOREGROUND,
}


def figure_style_context() -> AbstractContextManager[None]:
    """Return a context manager that applies the common style to figures.

    The style applies to figures that are drawn or saved inside the context.
    """
    return mpl.rc_context(MATPLOTLIB_STYLE)


def strategy_colour(run_summary: RunSummary, strategy: str) -> str:
    """Return the colour that a strategy has in every figure of a run.

    The baseline, a single worker, is grey. Colours are assigned in the order of the strategies in the scenario.
    """
    if strategy not in run_summary.strategies:
        return BASELINE_GREY
    return PALETTE[_strategy_index(run_summary, strategy) % len(PALETTE)]


def strategy_marker(run_summary: RunSummary, strategy: str) -> str:
    """Return the marker shape of a strategy's curve, which distinguishes curves that are printed without colours."""
    return MARKERS[_strategy_index(run_summary, strategy) % len(MARKERS)] if strategy in run_summary.strategies else "o"


def swept_values_line_style(run_summary: RunSummary, swept_values: str) -> str:
    """Return the line style that a combination of swept scenario values has in every figure of a run."""
    return LINE_STYLES[run_summary.swept_values.index(swept_values) % len(LINE_STYLES)]


def _strategy_index(run_summary: RunSummary, strategy: str) -> int:
    return run_summary.strategies.index(strategy)


def create_figure(rows: int, columns: int, height_in: float, **subplot_options: object) -> tuple[Figure, list[Axes]]:
    """Return an empty figure as wide as the page, and the panels of the figure in reading order.

    `height_in` is the height of the figure in inches. `subplot_options` are passed to matplotlib's `Figure.subplots`.
    """
    figure = Figure(figsize=(FIGURE_WIDTH_IN, height_in), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, **subplot_options)  # type: ignore[call-overload]
    return figure, list(np.ravel(panels))


def apply_layout(figure: Figure) -> None:
    """Compute the positions of a figure's panels and the limits of the panels' axes.

    Drawing a figure also computes the limits, but labels at the ends of curves need the limits before that.
    """
    if engine := figure.get_layout_engine():
        engine.execute(figure)


def start_axes_at_zero(panels: Iterable[Axes], *, x: bool = False, y: bool = False) -> None:
    """Set the lower limit of the x axes, the y axes or both to zero.

    Call this function after all drawing calls. As soon as one limit of an axis is set, matplotlib stops adapting that
    axis to the data.
    """
    for axes in panels:
        if x:
            axes.set_xlim(left=0)
        if y:
            axes.set_ylim(bottom=0)


def add_run_title_and_footer(
    figure: Figure,
    summary: RunSummary,
    title: str,
    legend_colours: Mapping[str, str] | None = None,
    legend_markers: Mapping[str, str] | None = None,
    legend_line_styles: Mapping[str, str] | None = None,
) -> None:
    """Write a title above a figure of a run, and a footer below the figure.

    The footer states the run's verdict, engine and time dilation.

    The legend arguments are those of `add_title_and_footer`.
    """
    add_title_and_footer(figure, title, format_run_footer(summary), legend_colours, legend_markers, legend_line_styles)


def add_title_and_footer(
    figure: Figure,
    title: str,
    footer_text: str,
    legend_colours: Mapping[str, str] | None = None,
    legend_markers: Mapping[str, str] | None = None,
    legend_line_styles: Mapping[str, str] | None = None,
) -> None:
    """Write a title above a figure, and a footer below the figure.

    If colours are given, write a legend under the title.

    Args:
        figure: the figure.
        title: the finding, in one sentence; long titles are wrapped.
        footer_text: facts needed to judge the figure, such as the verdict of the run.
        legend_colours: name -> colour of each legend entry. None: the figure has no legend.
        legend_markers: name -> marker, for legend entries that have a marker.
        legend_line_styles: name -> line style, for legend entries that have a line style.
    """
    wrapped_title = textwrap.fill(capitalise_first_letter(title), TITLE_LINE_CHARACTERS)
    # The layout reserves room for the title: empty lines at its end are the room for the legend.
    legend_room = "\n" * count_legend_rows(legend_colours) if legend_colours else ""
    figure.suptitle(wrapped_title + legend_room, x=0.01, ha="left", fontsize=TITLE_FONT_POINTS, fontweight="bold")
    further_lines = footer_text.count("\n")  # they must not take the room of the panels
    figure.set_figheight(figure.get_figheight() + further_lines * FOOTER_LINE_HEIGHT * FOOTER_FONT_POINTS / 72)
    figure.supxlabel(footer_text, x=0.01, ha="left", fontsize=FOOTER_FONT_POINTS, color=BASELINE_GREY)
    if legend_colours:
        title_lines = wrapped_title.count("\n") + 1
        _add_legend(figure, legend_colours, legend_markers or {}, legend_line_styles or {}, title_lines)


def count_legend_rows(legend_colours: Mapping[str, str]) -> int:
    """Return the number of lines that the legend of a figure needs.

    Each legend column is as wide as the longest name in the legend.
    """
    return -(-len(legend_colours) // _count_legend_columns(legend_colours))


def _count_legend_columns(legend_colours: Mapping[str, str]) -> int:
    entry_characters = max(map(len, legend_colours)) + LEGEND_GAP_CHARACTERS
    return max(1, min(len(legend_colours), LEGEND_LINE_CHARACTERS // entry_characters))


# Shaping mechanisms that enforce the properties of links if the host has them. Footers mention only other ones.
PREFERRED_MECHANISMS = {"tc-htb", "netem", "fluid"}


def format_run_footer(run_summary: RunSummary) -> str:
    """Return the footer text of a run's figures.

    The footer states the verdict, engine, runs per plotted point, time dilation and name of the run.

    The footer also names each shaping mechanism that enforced a link property and is not in `PREFERRED_MECHANISMS`.
    """
    expected = PREFERRED_MECHANISMS if run_summary.engine == "docker" else PREFERRED_MECHANISMS | {"transport"}
    parts = (
        f"verdict: {run_summary.verdict}",
        f"{run_summary.engine} engine",
        *(
            f"{link_property} by {' and '.join(mechanisms)}"
            for link_property, mechanisms in run_summary.rungs.items()
            if not expected.issuperset(mechanisms)
        ),
        format_repeats_per_point(run_summary),
        f"dilation {run_summary.dilation:g}",
        *run_summary.payloads,
        f"{run_summary.scenario} {run_summary.run}",
        "MLPerf-style; not an MLPerf result",
    )
    return _join_into_lines(parts, "  ·  ", FOOTER_LINE_CHARACTERS)


def _join_into_lines(text_parts: Iterable[str], separator: str, max_characters: int) -> str:
    """Join pieces of text into lines of at most `max_characters`.

    A line break is put inside a piece only if the piece is longer than a line.
    """
    lines: list[str] = []
    for part in (line for text in text_parts for line in textwrap.wrap(text, max_characters)):
        extended_line = separator.join([*lines[-1:], part])
        lines = [*lines[:-1], extended_line] if len(extended_line) <= max_characters else [*lines, part]
    return "\n".join(lines)


def format_repeats_per_point(run_summary: RunSummary) -> str:
    """Return text that states how many repeated runs each point of a figure stands for.

    Examples: "5 runs each" and "1 to 5 runs each".
    """
    counts = sorted({len(group.trials) for group in run_summary.trial_groups})
    if not counts:
        return "no finished run"
    least = f"{counts[0]} to " if len(counts) > 1 else ""
    return f"{least}{counts[-1]} run{'s' * (counts[-1] > 1)} each"


def _add_legend(
    figure: Figure,
    legend_colours: Mapping[str, str],
    legend_markers: Mapping[str, str],
    legend_line_styles: Mapping[str, str],
    title_line_count: int,
) -> None:
    """Place a legend below the title of a figure.

    Empty lines at the end of the title reserve room for the legend.
    """
    height_points = 72 * figure.get_figheight()
    legend = figure.legend(
        handles=[
            _legend_handle(colour, legend_markers.get(name), legend_line_styles.get(name))
            for name, colour in legend_colours.items()
        ],
        labels=list(legend_colours),
        loc="upper left",
        bbox_to_anchor=(0.0, 1 - (1.35 * TITLE_FONT_POINTS * title_line_count) / height_points),
        ncols=_count_legend_columns(legend_colours),
        fontsize=LEGEND_FONT_POINTS,
        handlelength=LINE_HANDLE_LENGTH if legend_line_styles else 1,
        labelspacing=0.25,  # a legend row must not be higher than a title line, because title lines reserve its room
        borderpad=0.2,
        columnspacing=1.5,
    )
    legend.set_in_layout(False)  # its room is already reserved


def _legend_handle(colour: str, marker: str | None, line_style: str | None) -> Artist:
    if marker is None and line_style is None:
        return Patch(facecolor=colour, edgecolor="none")
    handle = Line2D([], [], color=colour, marker=marker or "none", markersize=5)
    handle.set(linestyle=line_style or "none")
    return handle
