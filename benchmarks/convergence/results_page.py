"""Results page of reference convergence points, written from the reference file of the package."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from analysis.convergence.reference_points import ReferencePoint, ReferenceWorkload
from analysis.report.wording import format_number
from analysis.statistics.reference_range import ReferenceStatistics, compare_with_reference
from benchmarks.markdown import markdown_table

RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results" / "convergence.md"
COMPARED_RUNS = (1, 3, 5)  # numbers of runs for which the page states the least mean that is not suspicious
NO_VALUE = "not measured"
INTRODUCTION = """# Reference convergence points

Training samples that one worker needs to reach the target of a workload, for several batches and seeds.

- [README.md](README.md#rules-of-make-bench-convergence) describes how the points are measured.
- [docs/statistics.md](../statistics.md#reference-convergence-points) describes how reports use the points.
- A "least mean" is the mean of so many runs of a system below which the system is suspicious (one-sided t-test, 5 %),
  if its runs vary as much as those of the reference.
"""


def write_page(path: Path, references: Sequence[ReferenceWorkload]) -> None:
    """Write the results page with one section per workload."""
    sections = [_format_section(reference) for reference in references]
    path.write_text("\n".join([INTRODUCTION, *sections]), encoding="utf-8")


def format_workload_table(reference: ReferenceWorkload) -> Iterator[str]:
    """Yield the lines of the table of one workload, a row per batch."""
    header = (
        "batch",
        "runs",
        "missed",
        "samples to target, mean ± standard deviation",
        "range",
        *(f"least mean of {runs} run{'s' * (runs != 1)}" for runs in COMPARED_RUNS),
    )
    yield from markdown_table(header, (_format_row(point, reference) for point in reference.points))


def _format_section(reference: ReferenceWorkload) -> str:
    workload, measured = reference.workload, reference.measured
    versions = ", ".join(f"{name} {version}" for name, version in measured.versions.items())
    facts = (
        f"Dataset {workload.dataset.kind}, model {workload.model.kind}, optimiser {workload.optimiser.kind} with rate "
        f"{workload.optimiser.rate:g}, target {workload.target}; evaluated every {workload.evaluate_every:,} samples; "
        f"budget {reference.budget_samples:,} samples.{_format_batch_scaling(reference)} "
        f"Measured on {measured.date} with commit {measured.commit} on {measured.machine} ({versions})."
    )
    return "\n".join([f"## {reference.name}", "", facts, "", *format_workload_table(reference), ""])


def _format_batch_scaling(reference: ReferenceWorkload) -> str:
    """Return a sentence on the learning rates of the batches; empty if they are all the same."""
    scaling = reference.batch_scaling
    if scaling is None or scaling.rule == "none":
        return ""
    return f" The learning rate is that of batch {scaling.base_batch}, scaled with rule {scaling.rule}."


def _format_row(point: ReferencePoint, reference: ReferenceWorkload) -> tuple[str, ...]:
    samples = point.samples_to_target
    reached = samples[np.isfinite(samples)]
    counts = (f"{point.batch}", f"{samples.size}", f"{point.missed_runs}")
    if not reached.size:
        return (*counts, *[NO_VALUE] * (2 + len(COMPARED_RUNS)))
    span = f"{reached.min():,.0f} to {reached.max():,.0f}"
    if point.missed_runs or samples.size == 1:
        return (*counts, f"{format_number(float(reached.mean()))} (of the runs that reached it)", span) + (
            NO_VALUE,
        ) * len(COMPARED_RUNS)
    statistics = ReferenceStatistics.of_runs(samples, float(reference.workload.evaluate_every))
    mean = f"{statistics.mean:,.0f} ± {samples.std(ddof=1):,.0f}"
    return (*counts, mean, span, *(f"{_least_mean(statistics, runs):,.0f}" for runs in COMPARED_RUNS))


def _least_mean(statistics: ReferenceStatistics, run_count: int) -> float:
    """Return the least mean of runs that is not suspicious, if the runs vary as much as the reference."""
    deviation = statistics.standard_deviation if run_count > 1 else 0.0
    signs = np.linspace(-1, 1, run_count) if run_count > 1 else np.zeros(1)
    scale = deviation / signs.std(ddof=1) if run_count > 1 else 0.0
    return compare_with_reference(statistics.mean + scale * signs, statistics).low
