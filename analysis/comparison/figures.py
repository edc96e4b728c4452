"""Overlays: speedup, efficiency, time to target, loss against time; a colour per line, a line style per source."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose, isfinite

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from analysis.comparison.alike import differing
from analysis.comparison.lines import Compared, Line, Size
from analysis.figures.base import Drawing
from analysis.figures.drawing.style import (
    BASELINE,
    COLOURS,
    LINES,
    MARKERS,
    canvas,
    entitle,
    from_zero,
    key_rows,
    styled,
)
from analysis.reading.run_table import TrialTable
from analysis.report.wording import capitalise_first_letter, format_number, format_share, format_worker_count
from analysis.results.result import TIMES_SIGN, TrialResult

LINE_WORDS = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dash-dotted"}
MOST_POINTS = 400  # of a loss curve: more than a page has pixels for is thinned out
ROOM_IN = 4.2
ALIKE = 1e-6  # of two values: what sums in another order may differ by


@dataclass(frozen=True)
class Overlay:
    """What is laid over each other."""

    runs: Sequence[Compared]
    lines: Sequence[Line]

    @property
    def own(self) -> list[Line]:
        """The lines of runs."""
        return [line for line in self.lines if not line.public]

    def tint(self, strategy: str) -> str:
        """A strategy has one colour in all runs and figures; baselines and public results are grey."""
        known = list(dict.fromkeys(line.strategy for line in self.own))
        return COLOURS[known.index(strategy) % len(COLOURS)] if strategy in known else BASELINE

    def colour(self, line: Line) -> str:
        """Of its strategy."""
        return BASELINE if line.public else self.tint(line.strategy)

    def marker(self, line: Line) -> str:
        """By its place among the lines, so that colour is never needed alone."""
        return MARKERS[self.lines.index(line) % len(MARKERS)]

    def style(self, source: str) -> str:
        """The line style of a run; of public results the last."""
        letters = [run.letter for run in self.runs]
        return LINES[letters.index(source) % (len(LINES) - 1)] if source in letters else LINES[-1]

    @property
    def key(self) -> dict[str, str]:
        """Name -> colour."""
        return {line.name: self.colour(line) for line in self.lines}

    @property
    def dashes(self) -> dict[str, str]:
        """Name -> line style."""
        return {line.name: self.style(line.source) for line in self.lines}

    @property
    def undrawn(self) -> list[str]:
        """What stands in no overlay of sizes: it has one size alone."""
        return [
            f"{run.letter} {curve.description}"
            for run in self.runs
            for curve in run.summary.curves
            if not curve.points[1:]
        ]

    @property
    def footer(self) -> str:
        """What the reader must know before believing it."""
        told = [
            f"{run.letter}: {run.summary.scenario} {run.summary.run}, {run.summary.verdict}, "
            f"{run.summary.engine} engine, dilation {run.summary.dilation:g}"
            for run in self.runs
        ]
        return "\n".join([*told, "MLPerf-style; not an MLPerf result"])


def draw(overlay: Overlay) -> list[Drawing]:
    """All overlays that have something to show."""
    with styled():
        return [found for figure in (speedup, efficiency, to_target, loss) if (found := figure(overlay)) is not None]


def speedup(overlay: Overlay) -> Drawing | None:
    """Log-log against workers / workers of the base, with intervals."""
    if not overlay.lines:
        return None
    title = _growth(overlay)
    figure, axes = _panel(overlay, title)
    ideal = sorted({size.relative for line in overlay.lines for size in line.sizes})
    axes.plot(ideal, ideal, color=BASELINE, linestyle="--", linewidth=1)
    for line in overlay.lines:
        _line(axes, overlay, line, lambda size: size.factors.speedup)
        for size in line.sizes:
            if size.speedup_ci:
                axes.vlines(size.relative, *size.speedup_ci, color=overlay.colour(line), linewidth=4, alpha=0.3)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(f"{{x:g}}{TIMES_SIGN}")
    axes.set_ylabel("speedup")
    caption = f"S = T(base) / T(N); bars: 95% intervals; dashed grey: ideal. {_bases(overlay)}"
    return Drawing("speedup", title, caption, table(overlay.lines), figure)


def efficiency(overlay: Overlay) -> Drawing | None:
    """E' against workers / workers of the base."""
    if not overlay.lines:
        return None
    title = _kept(overlay)
    figure, axes = _panel(overlay, title)
    for line in overlay.lines:
        _line(axes, overlay, line, lambda size: size.factors.efficiency)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_ylabel("efficiency E'")
    from_zero([axes], y=True)
    caption = f"E' = S / (N / N of the base) = hardware x statistical; both factors are in the data. {_bases(overlay)}"
    return Drawing("efficiency", title, caption, table(overlay.lines), figure)


def to_target(overlay: Overlay) -> Drawing | None:
    """Virtual seconds to the target against workers; public results took other times and are not here."""
    found = [line for line in overlay.own if line.of == "time to target"]
    if not found:
        return None
    overlay = replace(overlay, lines=found)
    times = {(line.name, size.workers): size.seconds for line in found for size in line.sizes}
    title = _first(overlay, times)
    figure, axes = _panel(overlay, title, "workers")
    for line in found:
        tint = overlay.colour(line)
        _line(axes, overlay, line, lambda size: size.seconds, lambda size: size.workers)
        for size in line.sizes:
            if size.seconds_ci and all(map(isfinite, size.seconds_ci)):
                axes.vlines(size.workers, *size.seconds_ci, color=tint, linewidth=4, alpha=0.3)
    _logarithmic(axes)
    axes.set_ylabel("virtual seconds to the target")
    caption = f"Olympic means; bars: 95% intervals. Lines without a target are left out. {_bases(overlay)}"
    return Drawing("time_to_target", title, caption, table(found), figure)


def loss(overlay: Overlay) -> Drawing | None:
    """Loss against virtual time: the first repeat of every strategy on its most workers."""
    curves = [curve for run in overlay.runs for curve in _losses(run)]
    if not curves:
        return None
    data = pd.concat(curves, ignore_index=True)
    ends = data.groupby("name", sort=False)["loss"].last()
    names = list(dict.fromkeys(data["name"]))
    title = _lowest(overlay, {name: float(ends[name]) for name in names})
    strategies = dict(zip(data["name"], data["strategy"], strict=True))
    tints = {name: overlay.tint(strategies[name]) for name in names}
    figure, (axes,) = canvas(1, 1, ROOM_IN + 0.2 * key_rows(tints))
    dashes = {name: overlay.style(name.partition(" ")[0]) for name in names}
    entitle(figure, title, overlay.footer, tints, dashes=dashes)
    for name, points in data.groupby("name", sort=False):
        style = overlay.style(str(points["run"].iloc[0]))
        axes.plot(points["time_s"], points["loss"], color=tints[str(name)], linestyle=style)
    _logarithmic(axes)
    axes.set_xlabel("virtual seconds")
    axes.set_ylabel("loss, held-out samples")
    told = ", ".join(f"{LINE_WORDS[overlay.style(run.letter)]} {run.letter}" for run in overlay.runs)
    caption = (
        f"Line style: {told}. First repeat of every strategy and condition on its most workers, at every evaluation."
    )
    return Drawing("loss", title, caption, data, figure)


def table(lines: Sequence[Line]) -> pd.DataFrame:
    """One row per line and size, with all that the overlays draw."""
    return pd.DataFrame([dict(_cells(line, size)) for line in lines for size in line.sizes])


def _cells(line: Line, size: Size) -> Iterator[tuple[str, object]]:
    yield from (("line", line.name), ("base", line.base), ("of", line.of), ("workers", size.workers))
    yield from (("relative", size.relative), ("speedup", size.factors.speedup))
    yield from zip(("ci_low", "ci_high"), size.speedup_ci or (None, None), strict=True)
    yield from (("efficiency", size.factors.efficiency), ("hardware_efficiency", size.factors.hardware))
    yield from (("statistical_efficiency", size.factors.statistical), ("seconds", size.seconds), ("runs", size.runs))


def _panel(overlay: Overlay, title: str, x: str = "workers / workers of the base") -> tuple[Figure, Axes]:
    figure, (axes,) = canvas(1, 1, ROOM_IN + 0.2 * key_rows(overlay.key) + 0.12 * len(overlay.runs))
    shapes = {line.name: overlay.marker(line) for line in overlay.lines}
    entitle(figure, title, overlay.footer, overlay.key, shapes, overlay.dashes)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(x)
    return figure, axes


def _line(
    axes: Axes, overlay: Overlay, line: Line, y: Callable[[Size], float], x: Callable[[Size], float] | None = None
) -> None:
    places = [(x or _relative)(size) for size in line.sizes]
    axes.plot(
        places,
        [y(size) for size in line.sizes],
        color=overlay.colour(line),
        marker=overlay.marker(line),
        linestyle=overlay.style(line.source),
        markersize=5,
    )


def _logarithmic(axes: Axes) -> None:
    """Powers of two, written as people do: few of ten fall into the span of most runs."""
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:.3g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _relative(size: Size) -> float:
    return size.relative


def _growth(overlay: Overlay) -> str:
    """Who grows most, on as many times the base's workers as all runs have; public results are named beside."""
    own, public = overlay.own, [line for line in overlay.lines if line.public]
    if not own:
        return _largest(public)
    times, at = _shared(own)
    speedups = {name: size.factors.speedup for name, size in at.items()}
    name, names = _all_of(speedups, max(speedups.values()), "grow")
    told = f"{names} most: {format_number(speedups[name])} times as fast on {format_worker_count(at[name].workers)}"
    if len(own) > 1:
        told = f"at {times:g} times the workers of its base {told}" if times else f"no size is shared: {_largest(own)}"
    return f"Of the runs, {told}; {_largest(public)}" if public else capitalise_first_letter(told)


def _largest(lines: Sequence[Line]) -> str:
    best = max(lines, key=lambda line: line.sizes[-1].factors.speedup)
    last = best.sizes[-1]
    name = best.strategy if best.public else best.name
    return f"{name} reaches {format_number(last.factors.speedup)} times on {last.workers:,}"


def _kept(overlay: Overlay) -> str:
    """Who keeps most efficiency on as many times the base's workers: what is larger keeps less."""
    lines = overlay.own or list(overlay.lines)
    times, at = _shared(lines)
    if times:
        efficiencies = {name: size.factors.efficiency for name, size in at.items()}
        name, names = _all_of(efficiencies, max(efficiencies.values()), "keep")
        kept = f"{format_share(efficiencies[name])} on {at[name].workers}"
        if len(lines) == 1:
            return f"{names} an efficiency of {kept}"
        return f"At {times:g} times the workers of its base {names} most efficiency: {kept}"
    told = [
        f"{line.name} {format_share(line.sizes[-1].factors.efficiency)} on {line.sizes[-1].workers}" for line in lines
    ]
    return f"No size is shared; efficiency at the largest: {', '.join(told)}"


def _shared(lines: Sequence[Line]) -> tuple[float | None, dict[str, Size]]:
    """The largest size against its base that all lines have, and what each has there; None where they share none."""
    sizes = {line.name: {size.relative: size for size in line.sizes if size.relative > 1} for line in lines}
    both = set.intersection(*map(set, sizes.values()))
    if not both:
        return None, {line.name: line.sizes[-1] for line in lines}
    return max(both), {name: own[max(both)] for name, own in sizes.items()}


def _first(overlay: Overlay, times: dict[tuple[str, int], float]) -> str:
    return _ranked(
        overlay,
        {f"{name} on {workers}": seconds for (name, workers), seconds in times.items()},
        lambda name, value: f"{name} reaches the target first, in {value} s",
        "fewest seconds to the target",
    )


def _lowest(overlay: Overlay, ends: dict[str, float]) -> str:
    return _ranked(
        overlay, ends, lambda name, value: f"{name} ends with the lowest loss, {value}", "lowest loss at the end"
    )


def _ranked(overlay: Overlay, values: dict[str, float], best: Callable[[str, str], str], what: str) -> str:
    """The smallest of all; where runs differ in what decides it, the smallest of each, and in what they differ."""
    least = {name.partition(" ")[0]: name for name in sorted(values, key=lambda each: -values[each])}
    differs = differing([run for run in overlay.runs if run.letter in least])
    if not differs:
        least_of_all = min(values.values())
        first, *others = _alike(values, least_of_all)
        if others:
            return capitalise_first_letter(
                f"{what}: {format_number(least_of_all)}, of {', '.join((first, *others))} alike"
            )
        return best(first, format_number(least_of_all))
    told = ", ".join(
        f"{each} {format_number(values[name])} ({name.partition(' ')[2]})" for each, name in sorted(least.items())
    )
    return f"Runs differ in {' and '.join(differs)}, so this is no ranking; {what}: {told}"


def _all_of(values: Mapping[str, float], value: float, verb: str) -> tuple[str, str]:
    """One of those that have this value, and all of them with the verb: equals are not ranked."""
    names = _alike(values, value)
    return names[0], f"{' and '.join(names)} {verb}{'s' * (len(names) == 1)}"


def _alike(values: Mapping[str, float], value: float) -> list[str]:
    """The names of what has this value."""
    return [name for name, each in values.items() if isclose(each, value, rel_tol=ALIKE)]


def _bases(overlay: Overlay) -> str:
    """The base case of every line with its absolute time, and how often its sizes ran."""
    names: dict[str, list[str]] = {}
    for line in overlay.lines:
        names.setdefault(f"{line.base} ({line.of}; {_repeats(line)})", []).append(line.name)
    told = [f"{', '.join(alike)}: {base}" for base, alike in names.items()]
    alone = f" Not drawn, for they have one size alone: {', '.join(overlay.undrawn)}." if overlay.undrawn else ""
    return f"Bases: {'; '.join(told)}.{alone}"


def _repeats(line: Line) -> str:
    counts = sorted({size.runs for size in line.sizes if size.runs})
    if not counts:
        return "repeats not told"
    return (
        f"{counts[0]} to {counts[-1]} runs each" if len(counts) > 1 else f"{counts[0]} run{'s' * (counts[0] > 1)} each"
    )


def _losses(run: Compared) -> Iterator[pd.DataFrame]:
    pairs = {result.id: result for result in run.summary.trials if result.is_finished and result.repeat == 0}
    most: dict[tuple[str, str], TrialResult] = {}
    for result in pairs.values():
        kind = (result.strategy, result.condition)
        most[kind] = max(most.get(kind, result), result, key=lambda each: each.workers)
    shown = {result.id: result for result in most.values()}
    for trial in run.table.trials:
        if trial.plan.trial in shown:
            yield from _loss(run, trial, shown[trial.plan.trial])


def _loss(run: Compared, trial: TrialTable, result: TrialResult) -> Iterator[pd.DataFrame]:
    points = trial.evals[trial.evals["metric"] == "loss"]
    if points.empty:
        return
    thinned = points.iloc[:: max(1, len(points) // MOST_POINTS)]
    where = f", {result.condition}" if result.condition else ""
    name = f"{run.letter} {result.strategy} on {result.workers}{where}"
    strategy = f"{result.strategy} ({result.condition})" if result.condition else result.strategy
    yield pd.DataFrame(
        {
            "run": run.letter,
            "name": name,
            "strategy": strategy,
            "time_s": thinned["time_s"].astype(float),
            "loss": thinned["value"].astype(float),
        }
    )
