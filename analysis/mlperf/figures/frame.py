"""Elements shared by figures of public results: title and footer, colour and marker of each kind of accelerator."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from analysis.figures.drawing.style import MARKERS, PALETTE, add_title_and_footer
from analysis.mlperf.reading.accelerators import accelerator_family
from analysis.mlperf.study import Study, StudyWorkload
from analysis.report.wording import format_minutes

TRADEMARK_NOTICE = (
    "The MLPerf name and logo are registered and unregistered trademarks of MLCommons Association in the United States "
    "and other countries. All rights reserved. Unauthorized use strictly prohibited. See www.mlcommons.org."
)
FAMILY_COLOURS = PALETTE[:8]  # the darker half of the palette is hard to see on a dark page
NOT_OFFICIAL_NOTICE = "derived numbers, not MLPerf results"


def add_frame(
    figure: Figure,
    study: Study,
    workload: StudyWorkload,
    title: str,
    colour_by_name: Mapping[str, str],
    marker_by_name: Mapping[str, str],
) -> None:
    """Add title and legend above a figure, and below it the reference, the source and a note on unofficial results."""
    footer = f"{describe_reference(workload)}  ·  from {study.results.source_name}  ·  {NOT_OFFICIAL_NOTICE}"
    add_title_and_footer(figure, title, footer, colour_by_name, marker_by_name)


def describe_reference(workload: StudyWorkload) -> str:
    """Return a text that names the reference of a workload with its number of accelerators and time."""
    base = workload.reference
    return (
        f"reference: {base.submitter} {base.system}, {base.accelerator_count} accelerators, "
        f"{format_minutes(base.minutes)} min"
    )


def families_by_frequency(study: Study) -> list[str]:
    """Return all families of accelerators, the most frequent first, which get the clearest colours."""
    kinds = [accelerator_family(row.accelerator) for row in study.results.rows]
    return sorted(set(kinds), key=lambda kind: (-kinds.count(kind), kind))


def family_colours(study: Study) -> dict[str, str]:
    """Return the colour of each family of accelerators, the same for all workloads."""
    return {
        kind: FAMILY_COLOURS[index % len(FAMILY_COLOURS)] for index, kind in enumerate(families_by_frequency(study))
    }


def family_markers(study: Study) -> dict[str, str]:
    """Return the marker of each family, since colour alone is not enough; a repeated colour gets another marker."""
    return {
        kind: MARKERS[(index + index // len(FAMILY_COLOURS)) % len(MARKERS)]
        for index, kind in enumerate(families_by_frequency(study))
    }


def set_up_count_axis(axes: Axes, accelerator_counts: Sequence[int]) -> None:
    """Show numbers of accelerators on a logarithmic horizontal axis."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(accelerator_counts) / 1.6, max(accelerator_counts) * 1.6)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("accelerators")
