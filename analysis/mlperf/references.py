"""Speedup and efficiency of systems relative to the reference system of a workload.

Speedup S and efficiency E' (`analysis.statistics.efficiency`), with times T to the target and N accelerators, as in
D. Cortes, C. Juiz, B. Bermejo, "Estudio de la eficiencia en la escalabilidad de GPUs para el entrenamiento de
Inteligencia Artificial" (arXiv:2509.03263). Neither is an MLPerf metric.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from analysis.mlperf.reading.results import MlperfResult
from analysis.statistics.efficiency import compute_efficiency, speedup

MIXED_SUBMITTER_AND_SOFTWARE = "mixed"  # stands for the name of submitter and software if there are several


@dataclass(frozen=True)
class ComparedResult:
    """Result of a system, and the reference result that the system is compared with."""

    result: MlperfResult
    reference: MlperfResult

    @property
    def accelerator_ratio(self) -> float:
        """Number of accelerators divided by the number of accelerators of the reference system."""
        return self.result.accelerator_count / self.reference.accelerator_count

    @property
    def speedup(self) -> float:
        """Speedup S: training time of the reference system divided by the training time of this system."""
        return speedup(self.reference.minutes, self.result.minutes)

    @property
    def efficiency(self) -> float:
        """Efficiency: speedup / ratio of the number of accelerators to that of the reference system.

        The efficiency is above 1 if the reference has slower accelerators.
        """
        return compute_efficiency(self.accelerator_ratio, self.speedup, None).efficiency


def pick_smallest_reference(mlperf_results: Iterable[MlperfResult]) -> MlperfResult:
    """Return the reference result that other results are compared with.

    It is the result of the slowest of the systems with the fewest accelerators. A system without accelerators is the
    reference only if no system has any, because its processors are not comparable with accelerators.
    """
    return min(
        mlperf_results,
        key=lambda result: (result.unit != "accelerators", result.accelerator_count, -result.minutes),
    )


def pair_with_reference(
    mlperf_results: Iterable[MlperfResult], reference_result: MlperfResult
) -> tuple[ComparedResult, ...]:
    """Pair every result with the reference result.

    The reference result is one of the results and has speedup 1 and efficiency 1.
    """
    return tuple(ComparedResult(result, reference_result) for result in mlperf_results)


@dataclass(frozen=True)
class FamilyComparison:
    """Systems of one family, each compared with a smaller system of the family.

    A family has one kind of accelerator, one submitter and one software stack. If systems of one kind of accelerator
    have several submitters or software stacks, the comparison is mixed: a part of the difference between two sizes is
    then a difference between submitters or software.
    """

    systems: tuple[ComparedResult, ...]
    is_mixed: bool

    @property
    def reference(self) -> MlperfResult:
        """Result that all systems are compared with."""
        return self.systems[0].reference

    @property
    def submitter_and_software(self) -> str:
        """Submitter and software stack of the systems; "mixed" if there are several."""
        return describe_submitter_and_software([each.result for each in self.systems])


def describe_submitter_and_software(mlperf_results: Iterable[MlperfResult]) -> str:
    """Return submitter and software stack of results; "mixed" if there are several."""
    names = {" ".join(filter(None, row.stack)) for row in mlperf_results}
    return names.pop() if len(names) == 1 else MIXED_SUBMITTER_AND_SOFTWARE


def compare_within_families(mlperf_results: Sequence[MlperfResult]) -> list[FamilyComparison]:
    """Compare results of one workload with the reference of their family.

    Systems of one kind of accelerator, one submitter and one software stack are compared with each other if they have
    two sizes. The other systems of the kind are compared with its smallest system of any submitter. A kind of
    accelerator with a single size is not compared.
    """
    comparisons = []
    for kind_rows in _group_results(mlperf_results, lambda row: row.accelerator_kind):
        families = _group_results(kind_rows, lambda row: row.stack)
        scalable = [rows for rows in families if _has_two_sizes(rows)]
        comparisons += [_compare_family(rows, rows) for rows in scalable]
        alone = [row for rows in families if rows not in scalable for row in rows]
        if alone and _has_two_sizes(kind_rows):
            comparisons.append(_compare_family(alone, kind_rows))
    return comparisons


def _group_results(
    mlperf_results: Iterable[MlperfResult], group_of: Callable[[MlperfResult], Hashable]
) -> list[list[MlperfResult]]:
    """Return the results of each group, in the order of the first result of each group."""
    groups: dict[Hashable, list[MlperfResult]] = {}
    for row in mlperf_results:
        groups.setdefault(group_of(row), []).append(row)
    return list(groups.values())


def _has_two_sizes(mlperf_results: Iterable[MlperfResult]) -> bool:
    return len({row.accelerator_count for row in mlperf_results}) > 1


def _compare_family(
    compared_results: Sequence[MlperfResult], reference_candidates: Sequence[MlperfResult]
) -> FamilyComparison:
    """Compare results with the smallest of the candidates, which is among the compared results or added to them."""
    reference = pick_smallest_reference(reference_candidates)
    others = [row for row in compared_results if row is not reference]
    is_mixed = len({row.stack for row in (reference, *others)}) > 1
    return FamilyComparison(pair_with_reference([reference, *others], reference), is_mixed)
