"""One figure of a run's report, as a matplotlib figure."""

from matplotlib.figure import Figure

from analysis.figures import FIGURES, AnalysedRun
from analysis.figures.drawing.save import fix_layout
from analysis.figures.drawing.style import figure_style_context
from services.schema.errors import UserError


def draw_figure_of_report(analysed_run: AnalysedRun, name: str) -> Figure:
    """Draw one figure of a run's report, with the layout that the figure has in the report.

    Args:
        analysed_run: the run.
        name: name of the figure, such as "speedup": the name of its files in the run folder.

    Raises:
        UserError: there is no figure of this name, or the run has no data for the figure.
    """
    if name not in FIGURES:
        raise UserError(f"there is no figure {name!r}; the figures are {', '.join(FIGURES)}")
    with figure_style_context():
        drawing = FIGURES[name].draw(analysed_run)
        if drawing is None:
            raise UserError(f"this run has no figure {name!r}; the figure needs {FIGURES[name].requirement}")
        fix_layout(drawing.figure)
    return drawing.figure
