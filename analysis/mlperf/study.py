"""What is studied: results by workload, each beside the reference of its workload. Chapters ask it everything."""

from dataclasses import dataclass

from analysis.mlperf.reading.results import Result, Results
from analysis.mlperf.references import Scaled, scaled, slowest_of_the_smallest

# What workloads are called in tables and figures; others keep the name of their folder.
NAMES = {
    "bert": "BERT",
    "llama2_70b_lora": "Llama 2 70B LoRA",
    "ssd": "RetinaNet",
    "retinanet": "RetinaNet",
    "stable_diffusion": "Stable Diffusion",
    "gpt3": "GPT-3 175B",
    "dlrm_dcnv2": "DLRM-DCNv2",
    "gnn": "R-GAT",
    "rgat": "R-GAT",
    "llama31_405b": "Llama 3.1 405B",
    "llama31_8b": "Llama 3.1 8B",
    "flux1": "FLUX.1",
    "resnet": "ResNet-50",
    "unet3d": "3D U-Net",
    "maskrcnn": "Mask R-CNN",
    "rnnt": "RNN-T",
}


@dataclass(frozen=True)
class Workload:
    """The systems that trained one workload, measured against one of them."""

    benchmark: str
    reference: Result
    systems: tuple[Scaled, ...]  # small ones first, the fastest of equal size first

    @property
    def name(self) -> str:
        """For people."""
        return NAMES.get(self.benchmark, self.benchmark)


@dataclass(frozen=True, eq=False)  # one object per page: what chapters derive from it is kept by identity
class Study:
    """All that chapters are given."""

    results: Results
    workloads: tuple[Workload, ...]


def study(results: Results) -> Study:
    """Measures every result against the slowest of the smallest systems of its workload."""
    return Study(results, tuple(_workload(results, benchmark) for benchmark in results.benchmarks))


def _workload(results: Results, benchmark: str) -> Workload:
    rows = results.of(benchmark)
    reference = slowest_of_the_smallest(rows)
    return Workload(benchmark, reference, scaled(rows, reference))
