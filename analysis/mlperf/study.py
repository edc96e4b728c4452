"""Study of MLPerf Training results: each is compared with the reference of its workload.

Results are grouped by workload.
"""

from dataclasses import dataclass, field

from analysis.mlperf.prices import PriceByAccelerator
from analysis.mlperf.reading.results import MlperfResult, MlperfResults
from analysis.mlperf.references import (
    ComparedResult,
    FamilyComparison,
    compare_within_families,
    pair_with_reference,
    pick_smallest_reference,
)

# Names of workloads in tables and figures. A workload that is not listed keeps the name of its folder.
WORKLOAD_NAMES = {
    "bert": "BERT",
    "llama2_70b_lora": "Llama 2 70B LoRA",
    "ssd": "RetinaNet",
    "retinanet": "RetinaNet",
    "stable_diffusion": "Stable Diffusion",
    "gpt3": "GPT-3 175B",
    "dlrm": "DLRM",
    "dlrm_dcnv2": "DLRM-DCNv2",
    "gnn": "R-GAT",
    "rgat": "R-GAT",
    "llama31_405b": "Llama 3.1 405B",
    "llama31_8b": "Llama 3.1 8B",
    "flux1": "FLUX.1",
    "resnet": "ResNet-50",
    "unet3d": "3D U-Net",
    "maskrcnn": "Mask R-CNN",
    "minigo": "Minigo",
    "rnnt": "RNN-T",
}


@dataclass(frozen=True)
class WorkloadComparison:
    """All systems with a result for one workload, compared with the reference system of the workload."""

    benchmark: str
    reference: MlperfResult
    systems: tuple[ComparedResult, ...]  # by number of accelerators, then by time

    @property
    def name(self) -> str:
        """Name of the workload in tables and figures, for example "BERT"."""
        return WORKLOAD_NAMES.get(self.benchmark, self.benchmark)

    @property
    def families(self) -> list[FamilyComparison]:
        """Systems compared within their families of accelerators, submitters and software."""
        return compare_within_families([each.result for each in self.systems])

    def family_efficiency(self, result: MlperfResult) -> tuple[float | None, str]:
        """Return the efficiency of a result within its family, and the submitter and software of the family.

        The efficiency is None if no other system of the family has another number of accelerators.
        """
        for family in self.families:
            for each in family.systems:
                if each.result is result and (each.accelerator_ratio > 1 or not family.is_mixed):
                    return each.efficiency, family.submitter_and_software
        return None, ""


@dataclass(frozen=True, eq=False)  # compared by identity: chapters cache derived values per study object
class MlperfStudy:
    """MLPerf Training results grouped by workload, from which every chapter of the report is computed."""

    results: MlperfResults
    workloads: tuple[WorkloadComparison, ...]
    price_by_accelerator: PriceByAccelerator = field(default_factory=dict)  # as declared


def make_mlperf_study(
    mlperf_results: MlperfResults, price_by_accelerator: PriceByAccelerator | None = None
) -> MlperfStudy:
    """Return a study in which each MLPerf result is compared with the reference of its workload.

    `price_by_accelerator` are declared prices and power draws; None if none are declared.
    """
    workloads = tuple(_make_workload(mlperf_results, benchmark) for benchmark in mlperf_results.benchmarks)
    return MlperfStudy(mlperf_results, workloads, price_by_accelerator or {})


def _make_workload(mlperf_results: MlperfResults, benchmark: str) -> WorkloadComparison:
    rows = mlperf_results.results_of(benchmark)
    reference = pick_smallest_reference(rows)
    return WorkloadComparison(benchmark, reference, pair_with_reference(rows, reference))
