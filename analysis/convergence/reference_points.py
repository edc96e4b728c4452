"""Records of reference convergence points, and the file that contains those of this package.

`make bench-convergence` measures the points and writes the file.
"""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from analysis.statistics.centre import Floats
from services.learning.datasets import AnyDataset
from services.learning.epoch_orders import AnyEpochOrder, ShuffledOrder
from services.learning.models import AnyModel
from services.learning.optimisers import AnyOptimiser
from services.learning.partitions import AnyPartition, IidPartition
from services.learning.schedules import AnySchedule, ConstantSchedule
from services.scenario.target import QualityTarget
from services.scenario.workload import BatchScaling, Precision
from services.schema.component import FrozenRecord

REFERENCE_FILE = Path(__file__).with_name("reference_points.json")
MIN_SEEDS = 5  # of a point; MLCommons asks for twice as many runs as a submission has


class ConvergenceWorkload(FrozenRecord):
    """Everything except the batch that determines how many samples one worker needs to the target."""

    dataset: AnyDataset
    model: AnyModel
    optimiser: AnyOptimiser  # as declared, before batch scaling
    target: QualityTarget
    precision: Precision
    evaluate_every: int = Field(gt=0)  # training samples between evaluations, up to which the samples are rounded
    schedule: AnySchedule = ConstantSchedule()  # of the learning rate, by shares of the sample budget
    schedule_samples: int | None = Field(None, gt=0)  # the sample budget; None with a constant schedule
    clip_norm: float | None = None  # largest norm of the gradient of an update
    order: AnyEpochOrder = ShuffledOrder()  # of the training samples within an epoch
    partition: AnyPartition = IidPartition()  # of the training samples over the workers


class ReferencePoint(FrozenRecord):
    """Samples to the target of one worker with one batch, for several seeds."""

    batch: int = Field(gt=0)
    samples_by_seed: dict[int, int | None]  # None: the target was not reached within the budget

    @property
    def samples_to_target(self) -> Floats:
        """Samples to the target by seed; infinite where the target was missed."""
        values = (np.inf if samples is None else float(samples) for samples in self.samples_by_seed.values())
        return np.array([*values])

    @property
    def missed_runs(self) -> int:
        """Number of runs that missed the target."""
        return sum(samples is None for samples in self.samples_by_seed.values())


class MeasuredOn(FrozenRecord):
    """Where and with which code the points of a workload were measured."""

    machine: str
    commit: str
    date: str  # UTC
    versions: dict[str, str]  # of Python and NumPy


class ReferenceWorkload(FrozenRecord):
    """Reference convergence points of one workload, all measured with one commit."""

    name: str  # of the shipped scenario with this workload
    workload: ConvergenceWorkload
    batch_scaling: BatchScaling | None = None  # of the learning rate, in the reference runs
    budget_samples: int  # after which a run counts as having missed the target
    points: tuple[ReferencePoint, ...]
    measured: MeasuredOn

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        batches = [point.batch for point in self.points]
        if batches != sorted(set(batches)):
            raise ValueError(f"points must be in ascending order of distinct batches, not {batches}")
        return self

    def batch_rate_factor(self, batch: int) -> float:
        """Return the factor on the declared learning rate in a reference run with this global batch."""
        return self.batch_scaling.rate_factor(batch) if self.batch_scaling else 1.0


def parse_workload(parts: dict[str, Any]) -> ConvergenceWorkload | None:
    """Return the workload that values of a plan describe.

    None if there is no target or if the plan was written by another version.
    """
    try:
        return ConvergenceWorkload.model_validate(parts)
    except ValidationError:
        return None


def read_reference_file(path: Path) -> tuple[ReferenceWorkload, ...]:
    """Return the reference workloads in a file; none if there is no file.

    Raises:
        ValidationError: the file has another format.
    """
    if not path.is_file():
        return ()
    content = json.loads(path.read_text(encoding="utf-8"))
    return tuple(ReferenceWorkload.model_validate(each) for each in content["workloads"])


def write_reference_file(path: Path, workloads: Sequence[ReferenceWorkload]) -> None:
    """Write reference workloads to a file, sorted by name."""
    content = {"workloads": [each.model_dump(mode="json") for each in sorted(workloads, key=lambda each: each.name)]}
    path.write_text(f"{json.dumps(content, indent=1)}\n", encoding="utf-8")


@cache
def shipped_references() -> tuple[ReferenceWorkload, ...]:
    """Return the reference workloads of this package."""
    return read_reference_file(REFERENCE_FILE)
