"""Reference system of a workload, and speedup and efficiency of other systems relative to the reference.

Speedup S and efficiency E' (`analysis.statistics.efficiency`), with times T to the target and N accelerators, as in
D. Cortes, C. Juiz, B. Bermejo, "Estudio de la eficiencia en la escalabilidad de GPUs para el entrenamiento de
Inteligencia Artificial" (arXiv:2509.03263). Neither is an MLPerf metric.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.mlperf.reading.results import MlperfResult
from analysis.statistics.efficiency import compute_efficiency, speedup


@dataclass(frozen=True)
class ComparedResult:
    """Result of a system, and the reference result that the system is compared with."""

    result: MlperfResult
    reference: MlperfResult

    @property
    def accelerator_ratio(self) -> float:
        """Number of accelerators divided by the number of accelerators of the reference."""
        return self.result.accelerator_count / self.reference.accelerator_count

    @property
    def speedup(self) -> float:
        """Speedup S: time of the reference divided by the time of the result."""
        return speedup(self.reference.minutes, self.result.minutes)

    @property
    def efficiency(self) -> float:
        """Efficiency: speedup / relative number of accelerators.

        Above 1 if the reference has slower accelerators.
        """
        return compute_efficiency(self.accelerator_ratio, self.speedup, None).efficiency


def pick_smallest_reference(mlperf_results: Iterable[MlperfResult]) -> MlperfResult:
    """Return the result that others are compared with: the slowest of the systems with the fewest accelerators."""
    return min(mlperf_results, key=lambda result: (result.accelerator_count, -result.minutes))


def pair_with_reference(
    mlperf_results: Iterable[MlperfResult], reference_result: MlperfResult
) -> tuple[ComparedResult, ...]:
    """Pair every result with the reference result, which is one of them and has speedup 1 and efficiency 1."""
    return tuple(ComparedResult(result, reference_result) for result in mlperf_results)
