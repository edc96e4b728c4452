"""Common elements of figures of MLPerf results: title, footer, colour and marker of each kind of accelerator."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from analysis.figures.drawing.style import MARKERS, PALETTE, add_title_and_footer
from analysis.mlperf.study import MlperfStudy, WorkloadComparison
from analysis.report.wording import format_minutes

TRADEMARK_NOTICE = (
    "The MLPerf name and logo are registered and unregistered trademarks of MLCommons Association in the United States "
    "and other countries. All rights reserved. Unauthorized use strictly prohibited. See www.mlcommons.org."
)
KIND_COLOURS = PALETTE[:8]  # the darker half of the palette is hard to see on a dark page
MARK_STYLE: dict[str, Any] = {"linestyle": "none", "alpha": 0.75, "markeredgewidth": 0}
NOT_OFFICIAL_NOTICE = "derived numbers, not MLPerf results"


def add_study_title_and_footer(
    figure: Figure,
    mlperf_study: MlperfStudy,
    workload: WorkloadComparison,
    title: str,
    legend_colours: Mapping[str, str],
    legend_markers: Mapping[str, str],
) -> None:
    """Add a title, a legend and a footer to a figure of the MLPerf study.

    Title and legend are above the figure. The footer below the figure has the reference system, the data source and a
    "not official" notice.
    """
    reference = describe_reference_system(workload)
    footer = f"{reference}  ·  from {mlperf_study.results.source_name}  ·  {NOT_OFFICIAL_NOTICE}"
    add_title_and_footer(figure, title, footer, legend_colours, legend_markers)


def describe_reference_system(workload: WorkloadComparison) -> str:
    """Describe the reference system of a workload as text: name, number of accelerators and time."""
    base = workload.reference
    minutes = format_minutes(base.minutes)
    return f"reference: {base.submitter} {base.system}, {base.accelerator_count} accelerators, {minutes} min"


def sort_accelerator_kinds(mlperf_study: MlperfStudy) -> list[str]:
    """Return all kinds of accelerators, sorted from most to least frequent."""
    kinds = [row.accelerator_kind for row in mlperf_study.results.rows]
    return sorted(set(kinds), key=lambda kind: (-kinds.count(kind), kind))


def colour_by_accelerator_kind(mlperf_study: MlperfStudy) -> dict[str, str]:
    """Return the colour of each kind of accelerator, the same for all workloads."""
    kinds = sort_accelerator_kinds(mlperf_study)
    return {kind: KIND_COLOURS[index % len(KIND_COLOURS)] for index, kind in enumerate(kinds)}


def marker_by_accelerator_kind(mlperf_study: MlperfStudy) -> dict[str, str]:
    """Return the marker shape of each kind of accelerator.

    Kinds with the same colour have different markers.
    """
    kinds = sort_accelerator_kinds(mlperf_study)
    return {kind: MARKERS[(index + index // len(KIND_COLOURS)) % len(MARKERS)] for index, kind in enumerate(kinds)}


def set_up_accelerator_count_axis(axes: Axes, accelerator_counts: Sequence[int]) -> None:
    """Set up the horizontal axis of a panel: numbers of accelerators on a logarithmic scale."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(accelerator_counts) / 1.6, max(accelerator_counts) * 1.6)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("accelerators")
