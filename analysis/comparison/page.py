"""The page of a comparison: what is compared, the overlays, what changed row by row."""

from collections.abc import Sequence
from pathlib import Path

from analysis.comparison import changes as compare
from analysis.comparison.figures import Overlay, draw
from analysis.comparison.lines import Compared, lines
from analysis.mlperf.series import Series
from analysis.report.report import load_template, write_panel


def write(runs: Sequence[Compared], series: Sequence[Series], folder: Path) -> Path:
    """Writes report.html and figures/ into `folder`; the same runs give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    overlay = Overlay(runs, lines(runs, series))
    panels = [write_panel(drawing, folder / "figures") for drawing in draw(overlay)]
    changes = [(run.letter, compare.rows(runs[0].summary, run.summary)) for run in runs[1:]]
    damage = [f"{run.letter} {told}" for run in runs for told in run.summary.damage]
    page = folder / "report.html"
    told = load_template("comparison/compare.html.j2").render(
        runs=runs,
        panels=panels,
        changes=changes,
        header=compare.HEADER,
        nothing=compare.NOTHING,
        damage=damage,
    )
    page.write_text(told, encoding="utf-8")
    return page
