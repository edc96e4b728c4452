"""Speeds of known devices, and variation of a worker's compute time from step to step."""

from abc import abstractmethod
from collections.abc import Mapping
from math import exp
from random import Random
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, PositiveFloat, PositiveInt

from services.schema.component import FrozenRecord, ScenarioComponent

DeviceName: TypeAlias = Literal["b200", "h200", "h100", "a100", "v100", "rtx-4090", "rtx-3090", "a10"]


class SpeedVariation(ScenarioComponent):
    """Variation of a worker's compute time from step to step, as a scenario declares it.

    The variation is a function of seed, rank and step.
    """

    @abstractmethod
    def duration_factor(self, seed: int, rank: int, step: int) -> float:
        """Return the factor that multiplies the declared compute time of a worker in one step."""

    def explain_unusable_for_rank(self, rank: int) -> str:  # noqa: ARG002 - most fit every worker
        """Return why this variation can't be used for the worker with this rank; empty if it can."""
        return ""

    def restrict_to_rank(self, rank: int) -> Self:  # noqa: ARG002 - most are the same for every worker
        """Return the part of this variation that the worker with this rank needs."""
        return self


class LognormalVariation(SpeedVariation):
    """Lognormally distributed compute time, independent from step to step.

    The mean of the distribution is the declared compute time.
    """

    kind: Literal["lognormal"] = "lognormal"
    sigma: PositiveFloat = Field(description="standard deviation of the logarithm of the duration factor, such as 0.1")

    def duration_factor(self, seed: int, rank: int, step: int) -> float:
        return exp(Random(f"{seed} {rank} {step}").gauss(-(self.sigma**2) / 2, self.sigma))


class OnOffVariation(SpeedVariation):
    """Variation in which a worker alternates between series of slow steps and of normal steps.

    Such a worker is a temporary straggler. Normal steps have the declared speed.
    """

    kind: Literal["on_off"] = "on_off"
    slowdown: Annotated[float, Field(gt=1)] = Field(description="factor of the compute time of a slow step")
    slow_steps: PositiveInt = Field(10, description="mean number of consecutive slow steps")
    fast_steps: PositiveInt = Field(90, description="mean number of consecutive steps at the declared speed")

    def duration_factor(self, seed: int, rank: int, step: int) -> float:
        """Return the factor on the compute time of this step: `slowdown` in a slow step, otherwise 1.

        Each period of `slow_steps + fast_steps` has one run of slow steps; the seed decides where the run begins.
        """
        period_steps = self.slow_steps + self.fast_steps
        period, position = divmod(step, period_steps)
        begin = Random(f"{seed} {rank} {period}").randrange(self.fast_steps + 1)
        return self.slowdown if begin <= position < begin + self.slow_steps else 1.0


class WorkerTrace(FrozenRecord):
    """Factors on the compute time of one worker, by step."""

    worker: str
    factors: tuple[PositiveFloat, ...] = Field(min_length=1)


class TraceVariation(SpeedVariation):
    """Compute time of every step from a file of the user, for example from measurements on another cluster.

    After its last line, the trace begins again. When a scenario is loaded, the file is read, and its digest and the
    factors are added to the scenario. So plans contain the factors, and nodes do not need the file.
    """

    kind: Literal["trace"] = "trace"
    file: str = Field(
        min_length=1,
        description="path of a table as text (CSV), relative to the scenario file: a column for each worker, named "
        "worker-0, worker-1 and so on, and a line for each step",
    )
    values: Literal["factors", "durations"] = Field(
        "factors",
        description="meaning of the numbers. factors: on the declared compute time; durations: in any unit, divided by "
        "the mean of the whole file to get factors",
    )
    sha256: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$", description="digest of the content; a file with other content is rejected"
    )
    recorded: tuple[WorkerTrace, ...] = Field((), description="factors of each worker; set by Ensayo")

    def duration_factor(self, seed: int, rank: int, step: int) -> float:  # noqa: ARG002 - the file decides
        factors = next(trace.factors for trace in self.recorded if trace.worker == f"worker-{rank}")
        return factors[step % len(factors)]

    def explain_unusable_for_rank(self, rank: int) -> str:
        if not self.recorded:
            return f"the file {self.file} has not been read; load the scenario with load_scenario"
        names = [trace.worker for trace in self.recorded]
        if f"worker-{rank}" in names:
            return ""
        return f"the trace has no column worker-{rank}; its columns are {', '.join(names)}; add the missing column"

    def restrict_to_rank(self, rank: int) -> Self:
        own = tuple(trace for trace in self.recorded if trace.worker == f"worker-{rank}")
        return self.model_copy(update={"recorded": own})


AnyVariation: TypeAlias = Annotated[LognormalVariation | OnOffVariation | TraceVariation, Field(discriminator="kind")]

# Training throughput of one device relative to an A100 SXM4 with 80 GB. Source, unless a comment names another one:
# Lambda's deeplearning-benchmark, pytorch-train-throughput-fp16.csv, geometric mean over SSD, BERT base, BERT large and
# ResNet-50, one GPU. Single models differ from the mean: the H100 has 1.65 (ResNet-50) to 1.98 (BERT large).
RELATIVE_THROUGHPUT: Mapping[DeviceName, float] = {
    # MLPerf Training v4.1, NVIDIA's 8-GPU results against its H100: geometric mean of the ratios of minutes over
    # BERT, Llama 2 70B LoRA, SSD and Stable Diffusion (B200 1.71, H200 1.09), times the H100's 1.79.
    "b200": 3.06,
    "h200": 1.95,
    "h100": 1.79,  # SXM5, 80 GB
    "a100": 1.0,
    "v100": 0.45,  # 16 GB
    "rtx-4090": 0.73,
    "rtx-3090": 0.44,
    "a10": 0.34,
}

# Peak of one device in dense matrix products of bf16 numbers (fp16 for the V100, which has no bf16) with sums in fp32,
# in FLOP/s. Sources: NVIDIA's data sheets and architecture white papers; where a data sheet gives the rate with
# sparsity, half of it.
PEAK_FLOP_PER_S: Mapping[DeviceName, float] = {
    "b200": 2.25e15,  # HGX B200 data sheet
    "h200": 989e12,  # H200 data sheet, SXM
    "h100": 989e12,  # H100 data sheet, SXM5
    "a100": 312e12,  # A100 data sheet
    "v100": 125e12,  # V100 data sheet, SXM2
    "rtx-4090": 165.2e12,  # Ada GPU architecture white paper
    "rtx-3090": 71e12,  # GA102 GPU architecture white paper
    "a10": 125e12,  # A10 data sheet
}
