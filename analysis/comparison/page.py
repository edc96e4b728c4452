"""HTML page of a comparison: facts of the compared runs, figures with the curves of all runs, and tables of changes."""

from collections.abc import Sequence
from pathlib import Path

from analysis.comparison.changes import NO_SHARED_GROUPS_TEXT, TABLE_HEADER, change_rows
from analysis.comparison.figures import ComparisonOverlay, draw_overlays
from analysis.comparison.lines import ComparedRun, build_curves
from analysis.mlperf.series import ScalingSeries
from analysis.report.report import load_template, write_panel


def write_comparison(runs: Sequence[ComparedRun], series: Sequence[ScalingSeries], folder: Path) -> Path:
    """Write the page `report.html` and the folder `figures/` of a comparison, and return the path of the page.

    Comparing the same runs again gives identical bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    overlay = ComparisonOverlay(runs, build_curves(runs, series))
    panels = [write_panel(drawing, folder / "figures") for drawing in draw_overlays(overlay)]
    changes = [(run.letter, change_rows(runs[0].summary, run.summary)) for run in runs[1:]]
    damage = [f"{run.letter} {record}" for run in runs for record in run.summary.damage]
    page = folder / "report.html"
    html = load_template("comparison/compare.html.j2").render(
        runs=runs,
        panels=panels,
        changes=changes,
        header=TABLE_HEADER,
        nothing=NO_SHARED_GROUPS_TEXT,
        damage=damage,
    )
    page.write_text(html, encoding="utf-8")
    return page
