"""Against which system are the others measured, and how do they compare with it?

Speedup S and efficiency E' (`analysis.statistics.efficiency`), with times T to the target and N accelerators, as in
D. Cortes, C. Juiz, B. Bermejo, "Estudio de la eficiencia en la escalabilidad de GPUs para el entrenamiento de
Inteligencia Artificial" (arXiv:2509.03263). Neither is an MLPerf metric.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.mlperf.reading.results import Result
from analysis.statistics.efficiency import speedup, split_efficiency


@dataclass(frozen=True)
class Scaled:
    """A result beside its reference."""

    result: Result
    reference: Result

    @property
    def size(self) -> float:
        """How many times as many accelerators as the reference has."""
        return self.result.accelerator_count / self.reference.accelerator_count

    @property
    def speedup(self) -> float:
        """S: how many times as fast as the reference."""
        return speedup(self.reference.minutes, self.result.minutes)

    @property
    def efficiency(self) -> float:
        """E': speedup for each time that it is as large; above 1 where accelerators are faster than the reference's."""
        return split_efficiency(self.size, self.speedup, None).efficiency


def slowest_of_the_smallest(results: Iterable[Result]) -> Result:
    """The study's reference: of the systems with the fewest accelerators the one that takes longest."""
    return min(results, key=lambda result: (result.accelerator_count, -result.minutes))


def scaled(results: Iterable[Result], reference: Result) -> tuple[Scaled, ...]:
    """Every result beside the same reference, which is one of them at S = E' = 1."""
    return tuple(Scaled(result, reference) for result in results)
