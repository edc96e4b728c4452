"""HTML page that compares runs.

The page has the facts of each run, figures with the curves of all runs, and tables of changes.
"""

from collections.abc import Sequence
from pathlib import Path

from analysis.comparison.compared_curves import ComparedRunsAndCurves
from analysis.comparison.curves import ComparedRun, collect_speedup_curves
from analysis.comparison.overlays import draw_comparison_figures
from analysis.comparison.run_changes import NO_SHARED_GROUPS_TEXT, TABLE_HEADER, trial_group_change_rows
from analysis.mlperf.series import ScalingSeries
from analysis.report.report import load_template, write_figure_for_html_page


def write_comparison_page(
    runs: Sequence[ComparedRun], mlperf_series: Sequence[ScalingSeries], out_folder: Path
) -> Path:
    """Write a page that compares runs, and return the path of the page.

    The output folder gets the page `report.html` and the folder `figures/`.

    Comparing the same runs again gives identical bytes.
    """
    out_folder.mkdir(parents=True, exist_ok=True)
    overlay = ComparedRunsAndCurves(runs, collect_speedup_curves(runs, mlperf_series))
    panels = [
        write_figure_for_html_page(drawing, out_folder / "figures") for drawing in draw_comparison_figures(overlay)
    ]
    changes = [(run.letter, trial_group_change_rows(runs[0].summary, run.summary)) for run in runs[1:]]
    damage = [f"{run.letter} {record}" for run in runs for record in run.summary.damage]
    page = out_folder / "report.html"
    template = load_template("comparison/compare.html.j2")
    texts = {"header": TABLE_HEADER, "nothing": NO_SHARED_GROUPS_TEXT}
    html = template.render(runs=runs, panels=panels, changes=changes, damage=damage, **texts)
    page.write_text(html, encoding="utf-8")
    return page
