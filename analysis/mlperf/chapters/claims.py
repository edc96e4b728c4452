"""Report chapter on the claims of the study by Cortes, Juiz and Bermejo (arXiv:2509.03263)."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import pandas as pd

from analysis.claims.outcomes import CheckedClaim, Claim, ClaimOutcome, check_claims
from analysis.claims.scaling import LossFactors, MeasuredScaling
from analysis.claims.sentences import describe_claim
from analysis.mlperf.chapters.base import Chapter, ChapterTable, TableColumn
from analysis.mlperf.reading.run_samples import find_scaling_series
from analysis.mlperf.series import ScalingSeries, describe_submitters_and_software
from analysis.mlperf.study import MlperfStudy
from analysis.report.wording import join_names
from analysis.statistics.centre import Floats
from analysis.statistics.intervals import Interval

COLUMNS = (
    TableColumn("workload", "workload"),
    *(
        TableColumn(str(claim), title)
        for claim, title in (
            (Claim.LESS_TIME_LESS_EFFICIENCY, "less time, less efficiency"),
            (Claim.BALANCE_POINT, "balance point"),
            (Claim.HARDWARE_LOSS, "loss is mostly hardware"),
        )
    ),
)
CLAIM_TITLES = {Claim(column.name): column.heading for column in COLUMNS[1:]}
RULE_TEXT = (
    "The claims are those of the abstract of Cortes, Juiz and Bermejo (arXiv:2509.03263), checked with the series "
    "of one kind of accelerator. Outcomes follow from 95 % intervals, which are not corrected for the number of "
    "claims. Fewest and most accelerators are compared; the balance point is the largest N up to which E' stays at "
    "or above 0.5, among the systems built, and a claim on it also depends on the intervals of E'. The share of "
    "hardware is a ratio of logarithms: ln(hardware) / ln(E'). The series have no spread of samples to target; it "
    "is taken to be that of the run times, independent of them. Hardware is a quotient: besides communication and "
    "synchronisation, it contains smaller local batches, and differences between submitters and software."
)


def study_claims_chapter(mlperf_study: MlperfStudy) -> Chapter | None:
    """Return the chapter on the claims of the study; None if the results have no series with samples.

    The claims are checked for the workloads of the results. Shipped series of other workloads are left out.
    """
    benchmarks = {workload.benchmark for workload in mlperf_study.workloads}
    all_series = [each for each in find_scaling_series(mlperf_study) if each.benchmark in benchmarks]
    if not all_series:
        return None
    scalings = [measure_scaling(each) for each in all_series]
    checked = [check_claims(each) for each in scalings]
    sentences = [
        [f"{describe_claim(claim, scaling)}." for claim in claims]
        for scaling, claims in zip(scalings, checked, strict=True)
    ]
    rows = [_make_row(*each) for each in zip(all_series, checked, sentences, strict=True)]
    table = ChapterTable("claims", "Outcome of each claim", COLUMNS, pd.DataFrame(rows))
    names = [each.name for each in all_series]
    paragraphs = (*chain.from_iterable(sentences), RULE_TEXT, describe_submitters_and_software(all_series))
    return Chapter("Claims of the study", _describe_outcomes(names, checked), paragraphs, (table,))


def _make_row(series: ScalingSeries, claims: Sequence[CheckedClaim], sentences: Sequence[str]) -> dict[str, str]:
    outcomes = {str(each.claim): str(each.outcome) for each in claims}
    texts = {f"{each.claim}_sentence": sentence for each, sentence in zip(claims, sentences, strict=True)}
    return {"benchmark": series.benchmark, "workload": series.name} | outcomes | texts


def measure_scaling(series: ScalingSeries) -> MeasuredScaling:
    """Return the times of a series of published results as input of the checks."""
    counts, speedups = series.accelerator_counts, series.bootstrap_speedups()
    has_intervals = bool(np.isfinite(speedups).all())
    return MeasuredScaling(
        name=series.name,
        worker_counts=tuple(counts),
        base_worker_count=counts[0],
        times=tuple(size.minutes for size in series.points),
        time_intervals=series.minutes_intervals(),
        speedups=np.array([each.speedup for each in series.compute_efficiencies()]),
        efficiency_intervals=(None, *_efficiency_intervals(series)[1:]),
        drawn_speedups=speedups if has_intervals else None,
        speedup_ratio_interval=series.speedup_intervals()[-1],
        loss_factors=_resample_loss_factors(series, speedups) if has_intervals else None,
        time_unit="min",
        worker_noun="accelerator",
        untestable_reason="" if has_intervals else "a size has a single run, so its time has no interval",
    )


def _efficiency_intervals(series: ScalingSeries) -> list[Interval | None]:
    """Return the 95 % interval of the efficiency at each size: that of the speedup / ratio of accelerators."""
    base = series.accelerator_counts[0]
    sizes = zip(series.speedup_intervals(), series.accelerator_counts, strict=True)
    return [(each[0] * base / count, each[1] * base / count) if each else None for each, count in sizes]


def _resample_loss_factors(series: ScalingSeries, drawn_speedups: Floats) -> LossFactors:
    """Draw the hardware and the statistical factor of the change of efficiency between smallest and largest size.

    Samples to target have no published spread. Their relative spread is taken to be that of the run times.
    """
    first, last = series.points[0], series.points[-1]
    statistical = first.samples / last.samples
    noise = series.bootstrap_speedups(seed=1)[:, -1] / (first.minutes / last.minutes)
    drawn_statistical = statistical * noise
    drawn_efficiency = drawn_speedups[:, -1] / (last.accelerators / first.accelerators)
    return LossFactors(statistical, drawn_efficiency / drawn_statistical, drawn_statistical)


def _describe_outcomes(names: Sequence[str], checked: Sequence[Sequence[CheckedClaim]]) -> str:
    """Return the finding of the chapter: by claim, the workloads with each outcome."""
    outcomes_of_claims = zip(*([each.outcome for each in claims] for claims in checked), strict=True)
    parts = (
        f"{CLAIM_TITLES[claim]}: {_list_workloads_by_outcome(names, outcomes)}"
        for claim, outcomes in zip(Claim, outcomes_of_claims, strict=True)
    )
    return f"Claims of the study: {'; '.join(parts)}."


def _list_workloads_by_outcome(names: Sequence[str], outcomes: Sequence[ClaimOutcome]) -> str:
    if len(names) > 1 and len(set(outcomes)) == 1:
        return f"{outcomes[0]} for all {len(names)} workloads"
    by_outcome = {
        outcome: [name for name, own in zip(names, outcomes, strict=True) if own is outcome] for outcome in ClaimOutcome
    }
    return ", ".join(f"{outcome} for {join_names(own)}" for outcome, own in by_outcome.items() if own)
