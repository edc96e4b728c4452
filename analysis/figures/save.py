"""Writes a drawing: SVG and PNG for people, CSV for whoever wants to draw it again."""

from pathlib import Path

import matplotlib as mpl

from analysis.figures.base import Drawing
from analysis.figures.style import styled

PNG_DPI = 144


def save(drawing: Drawing, folder: Path) -> Path:
    """Writes the three files and returns the SVG; the same numbers give the same bytes (fixed ids, no date)."""
    folder.mkdir(exist_ok=True)
    svg = folder / f"{drawing.name}.svg"
    with styled(), mpl.rc_context({"svg.hashsalt": drawing.name, "svg.fonttype": "path"}):
        drawing.figure.savefig(svg, metadata={"Date": None, "Creator": "Ensayo"})
        drawing.figure.set_layout_engine("none")  # it has been laid out; again would take as long as drawing
        drawing.figure.savefig(svg.with_suffix(".png"), dpi=PNG_DPI, metadata={"Software": "Ensayo"})
    drawing.data.to_csv(svg.with_suffix(".csv"), index=False, float_format="%.9g", lineterminator="\n")
    return svg
