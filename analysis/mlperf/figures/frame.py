"""What figures of public results share: a footer that says what they are, a colour and shape per kind of device."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from analysis.figures.drawing.style import MARKERS, PALETTE, add_title_and_footer
from analysis.mlperf.reading.accelerators import family
from analysis.mlperf.study import Study, Workload
from analysis.report.wording import format_minutes

TRADEMARK = (
    "The MLPerf name and logo are registered and unregistered trademarks of MLCommons Association in the United States "
    "and other countries. All rights reserved. Unauthorized use strictly prohibited. See www.mlcommons.org."
)
HUES = PALETTE[:8]  # the darker half is lost on a dark page
NOT_OFFICIAL = "derived numbers, not MLPerf results"


def frame(
    figure: Figure, study: Study, workload: Workload, title: str, key: Mapping[str, str], shapes: Mapping[str, str]
) -> None:
    """The finding on top with the key; reference, source and standing below."""
    below = f"{reference(workload)}  ·  from {study.results.name}  ·  {NOT_OFFICIAL}"
    add_title_and_footer(figure, title, below, key, shapes)


def reference(workload: Workload) -> str:
    """The reference of a workload with its size and time."""
    base = workload.reference
    return f"reference: {base.submitter} {base.system}, {base.accelerator_count} accelerators, {format_minutes(base.minutes)} min"


def families(study: Study) -> list[str]:
    """Kinds of accelerators, the most frequent first, so that the clearest colours go to them."""
    kinds = [family(row.accelerator) for row in study.results.rows]
    return sorted(set(kinds), key=lambda kind: (-kinds.count(kind), kind))


def colours(study: Study) -> dict[str, str]:
    """The colour of each kind, the same for all workloads."""
    return {kind: HUES[place % len(HUES)] for place, kind in enumerate(families(study))}


def markers(study: Study) -> dict[str, str]:
    """The marker of each kind, so that colour is never needed alone; a colour that comes again has the next one."""
    return {kind: MARKERS[(place + place // len(HUES)) % len(MARKERS)] for place, kind in enumerate(families(study))}


def counts_axis(axes: Axes, counts: Sequence[int]) -> None:
    """Numbers of accelerators on a logarithmic axis."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(counts) / 1.6, max(counts) * 1.6)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("accelerators")
