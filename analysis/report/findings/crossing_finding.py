"""Sentences on the link rate up to which compression pays."""

from analysis.metrics.comparisons.rate_crossings import CrossingStatus, RateCrossing
from analysis.report.wording import join_names
from analysis.results.summary import RunSummary
from services.schema.units import Rate

RATE_DIGITS = 3


def describe_rate_crossings(summary: RunSummary) -> list[str]:
    """Return sentences on the rates up to which compressed strategies are faster than uncompressed ones."""
    measured = [crossing for crossing in summary.rate_crossings if crossing.status == CrossingStatus.MEASURED]
    others = [crossing for crossing in summary.rate_crossings if crossing.status != CrossingStatus.MEASURED]
    sentences = [_describe_measured(crossing, summary.target) for crossing in measured]
    for text in dict.fromkeys(map(_describe_group, others)):
        names = join_names(crossing.strategy for crossing in others if _describe_group(crossing) == text)
        sentences.append(text.replace("{names}", names))
    return sentences


def format_rate(rate_bps: float) -> str:
    """Return a rate with three significant digits in the notation of scenarios, such as `640mbit`."""
    return str(Rate(float(f"{rate_bps:.{RATE_DIGITS}g}")))


def _describe_measured(crossing: RateCrossing, target: str | None) -> str:
    """Return the sentence on a measured crossing, with the predicted one."""
    low, high = (format_rate(rate_bps) for rate_bps in crossing.bracket_bps or ())
    verb = f"reaches {target} sooner" if crossing.time_metric == "time_to_target" else "trains faster"
    return (
        f"{_name(crossing)} {verb} than {crossing.uncompressed} up to a {_label(crossing)} rate of "
        f"{format_rate(crossing.rate_bps or 0)} (interpolated; significantly faster at {low}, slower at {high}; "
        f"{_describe_prediction(crossing)})"
    )


def _describe_group(crossing: RateCrossing) -> str:
    """Return the sentence on crossings that are not measured, with a placeholder for the names of the strategies."""
    where = f"{_where(crossing)}, " if _where(crossing) else ""
    subject = f"{where}the {_label(crossing)} rate up to which compression is faster than {crossing.uncompressed}"
    reason = f": {crossing.reason}" if crossing.reason else ""
    return f"{subject} is {crossing.status} for {{names}}{reason}"


def _describe_prediction(crossing: RateCrossing) -> str:
    if crossing.predicted_bps is None:
        return "predicted at none of the swept rates"
    basis = "closed forms and samples to the target" if crossing.time_metric == "time_to_target" else "closed forms"
    return f"predicted from {basis}: {format_rate(crossing.predicted_bps)}"


def _name(crossing: RateCrossing) -> str:
    return " ".join(filter(None, [crossing.strategy, _where(crossing)]))


def _where(crossing: RateCrossing) -> str:
    return f"with {crossing.condition}" if crossing.condition else ""


def _label(crossing: RateCrossing) -> str:
    """Return the last part of the swept key, such as "link"."""
    return crossing.key.rpartition(".")[2]
