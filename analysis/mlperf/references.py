"""Speedup and efficiency of systems relative to the reference system of a workload.

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

    It is the result of the slowest of the systems with the fewest accelerators.
    """
    return min(mlperf_results, key=lambda result: (result.accelerator_count, -result.minutes))


def pair_with_reference(
    mlperf_results: Iterable[MlperfResult], reference_result: MlperfResult
) -> tuple[ComparedResult, ...]:
    """Pair every result with the reference result.

    The reference result is one of the results and has speedup 1 and efficiency 1.
    """
    return tuple(ComparedResult(result, reference_result) for result in mlperf_results)
