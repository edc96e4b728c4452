"""Could anybody have known at 64 accelerators how long 512 and more would take?"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.laws.backtest import ForecastScore, LawForecast
from analysis.mlperf.chapters.base import Chapter, Column, Table
from analysis.mlperf.figures.fan import fan
from analysis.mlperf.forecasts import (
    ASKED,
    LAWS,
    OURS,
    OURS_KNOWN,
    OURS_PLANNED,
    OURS_UNKNOWN,
    SHOWN,
    Trial,
    counts,
    tried,
)
from analysis.mlperf.reading.learning import series_of
from analysis.mlperf.series import APPENDIX, MINUTE, NEXT_ROUND, SHIPPED, Series, series_from, shipped_with
from analysis.mlperf.study import Study
from analysis.report.wording import format_number, format_share, format_signed_share

SCORES = (
    Column("law", "law"),
    Column("points", "points"),
    Column("median", "median |error|", format_share),
    Column("worst", "worst", format_share),
    Column("covered", "inside its 90 % band", format_share),
    Column("width", "band, high/low"),
    Column("rigid", "inside, without drift", format_share),
)
HEADS = {OURS_UNKNOWN: "best batch", OURS_KNOWN: "parts, known", OURS_PLANNED: "parts, chosen"}
BESIDE = ("Amdahl", *OURS)  # laws that are also tried on other series
OTHERS = {"v4.1, the appendix": APPENDIX, "v5.0, not seen before": NEXT_ROUND}
POINTS = (
    Column("workload", "workload"),
    Column("workers", "N"),
    Column("observed", "minutes"),
    *(Column(f"{name} error", HEADS.get(name, name), format_signed_share) for name in LAWS),
    Column("judged", "counts"),
)
OTHER_POINTS = (
    Column("set", "series"),
    *POINTS[:3],
    *(Column(f"{name} error", HEADS.get(name, name), format_signed_share) for name in BESIDE),
    *(Column(name, f"{HEADS[name]}: minutes, 90 %") for name in OURS),
)
BANDS_OF_OURS = (
    *POINTS[:3],
    *(Column(name, f"{HEADS[name]}: minutes, 90 %") for name in OURS),
    Column("fitted_to", "seen up to"),
)
MINE = (
    "Ours are three. 'Best batch' is given times alone: it supposes that whoever adds accelerators also chooses the "
    "batch that is then best, and has Amdahl's two parameters. 'Parts, batch known' is also given samples and batches "
    f"up to {SHOWN}, and the global batch of the point that it predicts: a planner's choice, so this is a conditional "
    "prediction. 'Parts, batch chosen' takes the best batch for the parts that it found. No constant in them was fit "
    f"to a point beyond {SHOWN}; but who wrote them had seen v4.1, so on v4.1 their form is no blind prediction."
)
BANDS = (
    "A band holds the noise of a point, what parameters could be, and a law's own drift. Noise and drift come from the "
    f"other workloads, cut short at or below {SHOWN}, for classic laws as for ours. Who covers all points with a wide "
    "band says little: 'high/low' tells how wide."
)
CHANGED = (
    "The rule of the bands was changed after their coverage on v4.1 had been seen. The first rule took drift from a "
    "moment estimate, which found none; the last column shows what bands without drift hold. A posterior of the drift, "
    "which cannot be zero for sure, replaced it. Coverage on v4.1 is therefore no test of the rule that gave it."
)
MORE = (
    "A better prediction would need: the batch that will be used and samples to target at two batches or more on small "
    "systems; the parallel layout, since a device with an eighth of a sample runs another program than one with two; "
    "step times by phase with bytes and links, to tell what grows with N from what is fixed; and the same software on "
    "all sizes. On v4.1 LoRA trains up to 64 with a batch of 8, so nothing there tells what 128 costs, and R-GAT's "
    "step slows beyond 64 by more than its local batch says."
)


def extrapolation(study: Study) -> Chapter | None:
    """Every law on every point that it did not see; None where no series reaches from SHOWN to ASKED."""
    found = tried(series_of(study))
    if not found.judged:
        return None
    finding = _finding({each.law: each for each in found.scores})
    points = pd.DataFrame([row for each in found.series for row in _points(each, found)])
    ships = bool(shipped_with(study))
    source = SHIPPED.name if ships else study.results.name
    return Chapter(
        "Extrapolation",
        finding,
        (_what(found), MINE, BANDS, CHANGED, *([_beside()] if ships else []), MORE),
        (
            Table("extrapolation-scores", f"From {SHOWN} to {ASKED} and more", SCORES, _scores(found)),
            Table("extrapolation", "Point by point: predicted / observed - 1", POINTS, points),
            Table("extrapolation-bands", "Ours with their bands", BANDS_OF_OURS, points, brief=False),
            *(_others() if ships else ()),
        ),
        (fan(found, finding.removesuffix("."), source),),
    )


def _finding(scores: dict[str, ForecastScore]) -> str:
    unknown, known = scores[OURS_UNKNOWN], scores[OURS_KNOWN]
    classic = min((scores[law] for law in LAWS if law not in OURS), key=lambda each: each.median)
    return (
        f"From {SHOWN} accelerators, {ASKED} and more are missed by {format_share(unknown.median)} (median) from times alone, "
        f"by {format_share(known.median)} from parts with the batch known, by {format_share(classic.median)} with the best classic "
        f"law ({classic.law}); our 90 % bands hold {format_share(unknown.covered)} and {format_share(known.covered)} of the points."
    )


def _what(found: Trial) -> str:
    late = [
        f"{each.name}, which starts at {each.counts[0]:,} and whose laws see up to {each.counts[-2]:,}"
        for each in found.series
        if each.counts[0] > SHOWN
    ]
    rest = ", ".join(["sizes between", *late])
    return (
        f"Each law is fit to sizes up to {SHOWN} of a workload's series and asked for {ASKED} and more. "
        f"{found.scores[0].points} points count: few, and a law follows the single systems that it sees. Shown and not "
        f"counted: {rest}. A series with too few sizes for a law of three parameters is left out."
    )


def _beside() -> str:
    """The same on fewer systems, and on a round that nobody had asked."""
    told = {name: {each.law: each for each in _other(path).scores} for name, path in OTHERS.items()}
    sentences = [
        f"On {name}: best batch {format_share(scores[OURS_UNKNOWN].median)}, parts with the batch known "
        f"{format_share(scores[OURS_KNOWN].median)}, Amdahl {format_share(scores['Amdahl'].median)}, "
        f"{scores[OURS_KNOWN].points} points, of which our bands hold {format_share(scores[OURS_UNKNOWN].covered)} and "
        f"{format_share(scores[OURS_KNOWN].covered)}."
        for name, scores in told.items()
    ]
    return (
        "Beside them stand two other sets of series. The appendix is v4.1 without some systems; it was read first, and "
        "times alone look better there than on all logs. Laws and bands had been written before anybody asked them "
        "about v5.0, on other accelerators; nothing in them was changed since. "
        f"{' '.join(sentences)} So few points do not tell which rule of bands is the better one."
    )


def _others() -> tuple[Table, ...]:
    """The laws on the other series that ship."""
    found = {name: _other(path) for name, path in OTHERS.items()}
    columns = (Column("set", "series"), *SCORES)
    scores = pd.concat([_scores(each).assign(set=name) for name, each in found.items()])
    rows = [
        {"set": name} | row
        for name, each in found.items()
        for series in each.series
        for row in _points(series, each)
        if row["judged"] == "yes"
    ]
    return (
        Table("extrapolation-others", "The same on other series", columns, scores),
        Table(
            "extrapolation-others-points", "Other series, point by point", OTHER_POINTS, pd.DataFrame(rows), brief=False
        ),
    )


def _other(path: Path) -> Trial:
    return tried(series_from(path), BESIDE)


def _scores(found: Trial) -> pd.DataFrame:
    return pd.DataFrame([vars(each) | {"rigid": found.covered_without_drift(each.law)} for each in found.scores])


def _points(series: Series, found: Trial) -> list[dict[str, object]]:
    by_law = {law: {each.workers: each for each in found.of(law, series.benchmark)} for law in found.fits}
    return [_point(series, [told[workers] for told in by_law.values()]) for workers in by_law[OURS_UNKNOWN]]


def _point(series: Series, forecasts: Sequence[LawForecast]) -> dict[str, object]:
    first = forecasts[0]
    row: dict[str, object] = {
        "benchmark": series.benchmark,
        "workload": series.name,
        "fitted_to": int(first.fitted_to),
        "workers": int(first.workers),
        "observed": first.observed / MINUTE,
        "judged": "yes" if counts(first) else "no",
    }
    for each in forecasts:
        low, high = each.low / MINUTE, each.high / MINUTE
        row |= {f"{each.law} error": each.relative_error, f"{each.law} low": low, f"{each.law} high": high}
        row[each.law] = _told(each)
    return row


def _told(each: LawForecast) -> str:
    missed = "" if each.is_covered else ", missed"
    centre, low, high = (format_number(seconds / MINUTE) for seconds in (each.predicted, each.low, each.high))
    return f"{centre} [{low}, {high}]{missed}"
