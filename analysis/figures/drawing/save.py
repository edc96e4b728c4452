"""Writes a drawing: SVG and PNG for people, CSV and JSON for whoever wants to draw it again."""

import json
from pathlib import Path

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG

from analysis.figures.base import Drawing
from analysis.figures.drawing.style import lay_out, styled

PNG_DPI = 144


def save(drawing: Drawing, folder: Path) -> Path:
    """Writes the four files and returns the SVG; the same numbers give the same bytes (fixed ids, no date)."""
    folder.mkdir(exist_ok=True)
    svg = folder / f"{drawing.name}.svg"
    with styled(), mpl.rc_context({"svg.hashsalt": drawing.name, "svg.fonttype": "path"}):
        FigureCanvasSVG(drawing.figure)  # becomes the figure's own: the page has the SVG, so its text is measured
        lay_out(drawing.figure)
        drawing.figure.set_layout_engine(None)  # where there is one, `savefig` draws all in vain before it draws
        drawing.figure.savefig(svg, metadata={"Date": None, "Creator": "Ensayo"})
        drawing.figure.savefig(svg.with_suffix(".png"), dpi=PNG_DPI, metadata={"Software": "Ensayo"})
    drawing.data.to_csv(svg.with_suffix(".csv"), index=False, float_format="%.9g", lineterminator="\n")
    svg.with_suffix(".json").write_text(_told(drawing), encoding="utf-8")
    return svg


def _told(drawing: Drawing) -> str:
    """What the figure says and its rows; numbers that are none of JSON's are null."""
    rows = json.loads(drawing.data.to_json(orient="records", double_precision=15))
    told = {"name": drawing.name, "title": drawing.title, "caption": drawing.caption, "rows": rows}
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"
