"""Saving of a finished figure to files.

The picture is saved as SVG and PNG, the data that it shows as CSV and JSON.
"""

import json
from pathlib import Path

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from analysis.figures.base import CaptionedFigure
from analysis.figures.drawing.style import apply_layout, figure_style_context

PNG_DPI = 144


def save_drawing_files(drawing: CaptionedFigure, folder: Path) -> Path:
    """Write the SVG, PNG, CSV and JSON files of a drawing and return the path of the SVG.

    Two drawings with equal numbers give identical bytes: ids in the SVG are fixed, and the files contain no date.
    """
    folder.mkdir(exist_ok=True)
    svg = folder / f"{drawing.name}.svg"
    with figure_style_context(), mpl.rc_context({"svg.hashsalt": drawing.name, "svg.fonttype": "path"}):
        fix_layout(drawing.figure)
        drawing.figure.savefig(svg, metadata={"Date": None, "Creator": "Ensayo"})
        drawing.figure.savefig(svg.with_suffix(".png"), dpi=PNG_DPI, metadata={"Software": "Ensayo"})
    drawing.data.to_csv(svg.with_suffix(".csv"), index=False, float_format="%.9g", lineterminator="\n")
    svg.with_suffix(".json").write_text(_figure_content_as_json(drawing), encoding="utf-8")
    return svg


def fix_layout(figure: Figure) -> None:
    """Compute the layout of a figure as on the page of the report, and keep this layout.

    With a layout engine, each `savefig` would draw the whole figure once more, only to lay it out again.
    """
    FigureCanvasSVG(figure)  # attaches itself to the figure, so that text is measured as in the SVG of the page
    apply_layout(figure)
    figure.set_layout_engine(None)


def _figure_content_as_json(drawing: CaptionedFigure) -> str:
    """Return name, title, caption and data rows of a drawing as JSON text.

    NaN and infinity become null.
    """
    rows = json.loads(drawing.data.to_json(orient="records", double_precision=15))
    content = {"name": drawing.name, "title": drawing.title, "caption": drawing.caption, "rows": rows}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
