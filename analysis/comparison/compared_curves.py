"""Runs and speedup curves that are drawn in the same figures, with their colours, markers and line styles."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.comparison.curves import ComparedRun, ComparedSpeedupCurve
from analysis.figures.drawing.style import BASELINE_GREY, LINE_STYLES, MARKERS, PALETTE


@dataclass(frozen=True)
class ComparedRunsAndCurves:
    """Runs and speedup curves that are drawn in the same figures.

    Methods give the colour and marker of each curve and the line style of each run.
    """

    runs: Sequence[ComparedRun]
    curves: Sequence[ComparedSpeedupCurve]

    @property
    def run_speedup_curves(self) -> list[ComparedSpeedupCurve]:
        """Speedup curves of the compared runs, without those of published MLPerf results."""
        return [curve for curve in self.curves if not curve.is_from_mlperf]

    def strategy_colour(self, strategy: str) -> str:
        """Return the colour that a strategy has in all runs and figures.

        Baselines and published series are grey.
        """
        strategies = list(dict.fromkeys(curve.strategy for curve in self.run_speedup_curves))
        return PALETTE[strategies.index(strategy) % len(PALETTE)] if strategy in strategies else BASELINE_GREY

    def curve_colour(self, compared_curve: ComparedSpeedupCurve) -> str:
        """Return the colour of a speedup curve.

        A curve has the colour of its strategy. Published MLPerf results are grey.
        """
        return BASELINE_GREY if compared_curve.is_from_mlperf else self.strategy_colour(compared_curve.strategy)

    def curve_marker(self, compared_curve: ComparedSpeedupCurve) -> str:
        """Return the marker shape of a curve, which distinguishes curves that are printed without colours."""
        return MARKERS[self.curves.index(compared_curve) % len(MARKERS)]

    def run_line_style(self, letter: str) -> str:
        """Return the line style of a run, given its letter.

        Published series have no letter and get the last style.
        """
        letters = [run.letter for run in self.runs]
        return LINE_STYLES[letters.index(letter) % (len(LINE_STYLES) - 1)] if letter in letters else LINE_STYLES[-1]

    @property
    def curve_colours(self) -> dict[str, str]:
        """Colour of each speedup curve in the figures, by name of the curve."""
        return {curve.name: self.curve_colour(curve) for curve in self.curves}

    @property
    def curve_line_styles(self) -> dict[str, str]:
        """Line style of each speedup curve in the figures, by name of the curve."""
        return {curve.name: self.run_line_style(curve.run_letter) for curve in self.curves}

    @property
    def undrawn_curve_names(self) -> list[str]:
        """Names of the speedup curves with a single number of workers, which are not drawn."""
        return [
            f"{run.letter} {curve.description}"
            for run in self.runs
            for curve in run.summary.curves
            if not curve.points[1:]
        ]

    @property
    def figure_footer_text(self) -> str:
        """Footer text of all figures: scenario, verdict, engine and time dilation of every run."""
        lines = [
            f"{run.letter}: {run.summary.scenario} {run.summary.run}, {run.summary.verdict}, "
            f"{run.summary.engine} engine, dilation {run.summary.dilation:g}"
            for run in self.runs
        ]
        return "\n".join([*lines, "MLPerf-style; not an MLPerf result"])
