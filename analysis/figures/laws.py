"""Which law of scaling does each strategy follow, how sure is that, and how far was anybody there?"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from analysis.figures.base import Drawing, Run
from analysis.figures.drawing.style import BASELINE, FAINT, INK, canvas, colour, frame, marker
from analysis.laws import (
    AmdahlLaw,
    ComputeLaw,
    CriticalBatchLaw,
    ExchangeLaw,
    GustafsonLaw,
    LawFit,
    ScalingLaw,
    UniversalScalabilityLaw,
)
from analysis.laws.base import UNIDENTIFIED_RATIO
from analysis.metrics.speedup import SpeedupCurve
from analysis.report.wording import capitalise_first_letter, format_number, format_share, join_names
from analysis.results.result import TIMES_SIGN, TrialGroup
from analysis.statistics.centre import Floats

LEAST = 4  # sizes: three parameters and one more to judge by
DISTINCT = 3  # batches from which on a law of two parameters can be wrong
MOST_PANELS = 6  # of more curves the first, and the caption names the others
COLUMNS = 2
BEYOND = 2.0  # times the largest size, up to which laws are drawn
EXACT = 0.001  # an error that nobody needs to hear of
HEADROOM = 4.0  # times the largest speedup: room for what the laws say
PLACES = 40  # along a curve
LINE = "\n    "  # under the law that it is of
LAWS: dict[str, tuple[ScalingLaw, str]] = {  # by name: the law, and its line
    "Amdahl": (AmdahlLaw(), "--"),
    "Gustafson": (GustafsonLaw(), ":"),
    "USL": (UniversalScalabilityLaw(), "-"),
}
READ: dict[str, dict[str, Callable[[Floats], Floats]]] = {  # by law: what readers ask for, from its parameters
    "Amdahl": {"serial share": lambda theta: theta[..., 1] / (theta[..., 0] + theta[..., 1])},
    "Gustafson": {"serial share": lambda theta: theta[..., 1] / (1 + theta[..., 1])},
    "USL": {"contention": lambda theta: theta[..., 1], "coherency": lambda theta: theta[..., 2]},
    "learning": {"B_noise": lambda theta: theta[..., 1]},
    "computing": {"seconds per sample": lambda theta: theta[..., 1]},
    "exchange": {
        "seconds per message": lambda theta: theta[..., 0],
        "links' stretch": lambda theta: theta[..., 1],
    },
}
KEY = {"measured": INK, "outside the calibrated domain": FAINT}


@dataclass(frozen=True)
class Followed:
    """A curve and the laws that were fit to it, for the same samples: what hardware makes of more workers."""

    curve: SpeedupCurve
    fits: Mapping[str, LawFit]
    parts: Mapping[str, LawFit]  # laws of what more workers change besides: samples to target, computing, exchange

    @cached_property
    def best(self) -> str:
        """The law with the least error per observation beyond its parameters."""
        return min(self.fits, key=lambda name: _error(self.fits[name]))


def laws(run: Run) -> Drawing | None:
    """Speedup in samples per second against workers, with the laws that it may follow and the domain that they saw."""
    asked = [curve for curve in run.summary.curves if _asked(curve)]
    found = [_followed(curve, run) for curve in asked[:MOST_PANELS]]
    if not found:
        return None
    left_out = join_names(curve.description for curve in asked[MOST_PANELS:])
    columns = min(COLUMNS, len(found))
    rows = -(-len(found) // columns)
    figure, panels = canvas(rows, columns, 1.3 + 3.0 * rows)
    title = _title(found)
    lines = {name: line for name, (_, line) in LAWS.items()}
    frame(figure, run.summary, title, {**KEY, **dict.fromkeys(LAWS, INK)}, {"measured": "o"}, lines)
    for axes, each in zip(panels, found, strict=False):
        _panel(axes, each, colour(run.summary, each.curve.strategy), marker(run.summary, each.curve.strategy))
    for axes in panels[len(found) :]:
        axes.remove()
    caption = (
        "Speedup in samples per second over the base of the curve. Laws are fit to logarithms of the mean times of the "
        "sizes that ran, their 95% intervals come from perturbed refits; off: typical residual. Band: 90% of "
        f"{_new(found)} by the law that fits best; in grey nobody has measured, and no band there knows what a law "
        "leaves out. "
        f"{AmdahlLaw.formula}; {GustafsonLaw.formula}; {UniversalScalabilityLaw.formula}. Hardware x statistical: what learning costs is apart, "
        f"by {CriticalBatchLaw.formula} where batches differ; computing by {ComputeLaw.formula}; a collective's exchange by "
        f"{ExchangeLaw.formula}, m its longest chain of messages, w what bytes take on the declared links; waiting for "
        "peers is part of it."
        f"{f' Neither drawn nor fit: {left_out}.' if left_out else ''}"
    )
    return Drawing("laws", title, caption, _table(found), figure)


def _new(found: Sequence[Followed]) -> str:
    """What bands are of: laws are fit to means, which differ by less than the runs that they are of."""
    repeated = any(point.runs > 1 for each in found for point in each.curve.points)
    return "a new mean of as many repeats" if repeated else "a new run"


def _asked(curve: SpeedupCurve) -> bool:
    return len(curve.points) >= LEAST and all(point.rate_speedup > 0 for point in curve.points)


def _followed(curve: SpeedupCurve, run: Run) -> Followed:
    sizes = np.array([point.workers for point in curve.points], dtype=float)
    seconds = np.array([curve.base.seconds / point.rate_speedup for point in curve.points])
    seen = {"workers": sizes, "seconds": seconds}
    return Followed(curve, {name: law.fit(seen) for name, (law, _) in LAWS.items()}, dict(_parts(curve, run)))


def _parts(curve: SpeedupCurve, run: Run) -> Iterator[tuple[str, LawFit]]:
    """Of what differs with the number of workers: the batch of all, and that of each."""
    batches = {trial.plan.trial: float(trial.plan.batch) for trial in run.table.trials}
    members = [
        each for each in run.summary.groups if (each.strategy, each.condition) == (curve.strategy, curve.condition)
    ]
    whole = np.array([batches[group.trials[0].id] for group in members])
    own = whole / np.array([group.workers for group in members])
    if curve.of == "time_to_target" and _differ(whole):
        yield "learning", CriticalBatchLaw().fit({"batch": whole, "samples": _of(members, "samples")})
    computing = _of(members, "computing")
    if _differ(own) and computing.all():
        yield "computing", ComputeLaw().fit({"local_batch": own, "step_seconds": computing})
    exchanged = {key: values for key, values in _exchanged(members, run).items() if len(values) >= DISTINCT}
    if exchanged and all((values > 0).all() for values in exchanged.values()):
        yield "exchange", ExchangeLaw().fit(exchanged)


def _exchanged(members: Sequence[TrialGroup], run: Run) -> dict[str, Floats]:
    """What the law of an exchange is of, by column: of several workers that sum by a collective in every step."""
    plans = {trial.plan.trial: trial.plan for trial in run.table.trials}
    found = [
        (
            plan.longest_chain_messages,
            plan.exchange_link_s,
            sum(group.step_phase_s.get(phase, 0.0) for phase in ("exchange", "wait")),
        )
        for group in members
        if (plan := plans[group.trials[0].id]).schedule.rounds and plan.exchange_period == 1 and not plan.second_phase
    ]
    columns = zip(*found, strict=True)
    return dict(zip(("messages", "link_seconds", "exchange_seconds"), map(np.array, columns), strict=False))


def _of(members: Sequence[TrialGroup], what: str) -> Floats:
    told = (each.samples_to_target if what == "samples" else each.step_phase_s.get("compute", 0.0) for each in members)
    return np.array(list(told))


def _differ(batches: Floats) -> bool:
    return len(set(batches.tolist())) >= DISTINCT


def _error(fit: LawFit) -> float:
    """Root of the squares per observation beyond the parameters: a share, nearly."""
    return float(np.sqrt((fit.log_residuals**2).sum() / max(fit.degrees_of_freedom, 1)))


def _off(fit: LawFit) -> str:
    error = _error(fit)
    return format_share(error, 1) if error >= EXACT else f"less than {format_share(EXACT, 1)}"


def _title(found: Sequence[Followed]) -> str:
    """Of the curve that is farthest from ideal, by the law that fits it best."""
    worst = min(found, key=lambda each: each.curve.points[-1].rate_efficiency(each.curve.base))
    fit = worst.fits[worst.best]
    best = f"of three laws {worst.best} tells the speed of {worst.curve.description} best"
    return capitalise_first_letter(f"{best}, off by {_off(fit)}: {_told(worst.best, fit)}")


def _panel(axes: Axes, found: Followed, tint: str, shape: str) -> None:
    curve = found.curve
    counts = [point.workers for point in curve.points]
    places = np.geomspace(counts[0], BEYOND * counts[-1], PLACES)
    axes.axvspan(counts[-1], BEYOND * counts[-1], color=FAINT, alpha=0.35, linewidth=0)
    axes.plot(places, places / curve.base.workers, color=BASELINE, linewidth=0.9, linestyle=(0, (1, 3)))
    band = found.fits[found.best].prediction_band({"workers": places})
    axes.fill_between(places, curve.base.seconds / band.high, curve.base.seconds / band.low, color=tint, alpha=0.2)
    for name, (law, line) in LAWS.items():
        told = law.predict(found.fits[name].parameters, {"workers": places})
        axes.plot(places, curve.base.seconds / told, color=INK, linestyle=line, linewidth=1.1)
    axes.plot(counts, [point.rate_speedup for point in curve.points], shape, color=tint, markersize=6)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks([*counts, BEYOND * counts[-1]], [*map(str, counts), f"{BEYOND * counts[-1]:g}"])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(f"{{x:g}}{TIMES_SIGN}")  # no function: figures go between processes
    axes.set_xlabel("workers")
    axes.set_ylabel("speedup, samples/s")
    axes.set_title(curve.description, color=tint, fontweight="bold")
    axes.set_ylim(top=HEADROOM * axes.get_ylim()[1])
    axes.text(0.02, 0.98, _notes(found), transform=axes.transAxes, va="top", fontsize=7, in_layout=False)


def _notes(found: Followed) -> str:
    """A line per law, of the one with two parameters two."""
    heads = {f"{name}, off {_off(fit)}": (name, fit) for name, fit in found.fits.items()}
    heads |= {name: (name, fit) for name, fit in found.parts.items()}
    return "\n".join(f"{head}: {_told(*of, between=f',{LINE}')}" for head, of in heads.items())


def _told(name: str, fit: LawFit, between: str = ", ") -> str:
    """The parameters that readers ask for, with their intervals."""
    return between.join(f"{what} {_value(*values)}" for what, values in _shown(name, fit).items())


def _value(low: float, middle: float, high: float) -> str:
    """With its 95 %; where those span more than these points can tell, the upper end alone."""
    return (
        f"at most {format_number(high)}"
        if high > UNIDENTIFIED_RATIO * low
        else f"{format_number(middle)} [{format_number(low)}, {format_number(high)}]"
    )


def _shown(name: str, fit: LawFit) -> dict[str, tuple[float, float, float]]:
    """What each law says of the strategy: low, best, high (95 %)."""
    return {what: _spread(read(fit.parameters), read(fit.parameter_draws)) for what, read in READ[name].items()}


def _spread(best: Floats, draws: Floats) -> tuple[float, float, float]:
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(low), float(best), float(high)


def _table(found: Sequence[Followed]) -> pd.DataFrame:
    laws_of = [(each.curve, name, fit) for each in found for name, fit in {**each.fits, **each.parts}.items()]
    rows = [
        (
            *(curve.strategy, curve.condition, name, fit.law.formula, what, *spread),
            *(_error(fit), *fit.size_range),
        )
        for curve, name, fit in laws_of
        for what, spread in _shown(name, fit).items()
    ]
    columns = ["strategy", "condition", "law", "formula", "quantity", "ci_low", "value", "ci_high", "residual"]
    return pd.DataFrame(rows, columns=[*columns, "smallest_seen", "largest_seen"])
