"""Workloads that have reference convergence points: a shipped scenario and batches each."""

from collections.abc import Mapping
from dataclasses import dataclass

from analysis.convergence.reference_points import ConvergenceWorkload
from compose.scenario_files.load import find_scenario, load_scenario
from services.scenario.learning_task import learning_task_of
from services.scenario.workload import Workload

BUDGET_FACTOR = 3  # epochs of a reference run / epochs of the scenario: large batches need more epochs


@dataclass(frozen=True)
class ReferenceCase:
    """Workload of a shipped scenario, and the batches for which its samples to target are measured."""

    scenario: str
    batches: tuple[int, ...]  # ascending; trials with batches in between are compared with interpolated points
    batch_case: str = ""  # value of the sweep axis `batch` whose workload is measured; empty: before any sweep

    def load_workload(self) -> Workload:
        """Return the workload of the scenario, or that of one case of its sweep."""
        scenario = load_scenario(find_scenario(self.scenario))
        if not self.batch_case:
            return scenario.training_workload
        trials = (trial for trial in scenario.trials() if trial.labels["batch"] == self.batch_case)
        return next(trials).scenario.training_workload

    def make_run_workload(self, batch: int) -> Workload:
        """Return the workload of one worker with this batch, which stops at the target or after a longer budget.

        A schedule depends on the budget, so the budget is the declared one if the learning rate is not constant.
        """
        declared = self.load_workload()
        every = convergence_workload(declared).evaluate_every
        budget_factor = 1 if _has_schedule(declared) else BUDGET_FACTOR
        update = {
            "batch": batch,
            "batch_per_worker": None,
            "epochs": budget_factor * declared.epochs,
            "stop": "target",
            "evaluate_every": every,
        }
        return Workload.model_validate(declared.model_dump() | update)


def convergence_workload(workload: Workload) -> ConvergenceWorkload:
    """Return the parts of a workload that determine its samples to target, apart from batch and batch scaling.

    One worker uses all samples, so the partition is that of samples which all workers share.

    Raises:
        pydantic.ValidationError: the workload has no target.
        ValueError: the schedule has keys in steps, whose meaning depends on the batch.
    """
    if workload.schedule.convert_steps(workload.training_budget(1)) != workload.schedule:
        raise ValueError("a workload with reference points needs a schedule in shares of the budget, not in steps")
    train_samples = learning_task_of(workload.dataset).train_samples
    return ConvergenceWorkload.model_validate(
        {
            "dataset": workload.dataset,
            "model": workload.model,
            "optimiser": workload.optimiser,
            "target": workload.target,
            "precision": workload.precision,
            "evaluate_every": workload.evaluate_every or train_samples,
            "schedule": workload.schedule,
            "schedule_samples": workload.epochs * train_samples if _has_schedule(workload) else None,
            "clip_norm": workload.clip_norm,
            "order": workload.order,
        }
    )


def _has_schedule(workload: Workload) -> bool:
    return workload.schedule.kind != "constant"


# name -> case. A new workload is one entry; `make bench-convergence WORKLOADS=<name>` measures it.
REFERENCE_CASES: Mapping[str, ReferenceCase] = {
    case.scenario: case
    for case in (
        ReferenceCase("quickstart", (60, 120, 240, 480)),
        ReferenceCase("mlperf-like-mlp", (16, 32, 64, 128, 256, 512)),
        ReferenceCase("mlperf-like-lenet", (16, 32, 64, 128, 256, 512)),
        ReferenceCase("regression", (32, 64, 128, 256, 512)),
        ReferenceCase("gpt-batch-scaling", (16, 32, 64, 128, 256)),
        ReferenceCase("resnet-norm", (16, 32, 64, 128)),
        ReferenceCase("mlperf-like-diffusion", (4, 8, 16, 32, 64, 128), "growing"),
        ReferenceCase("mlperf-like-lora", (4, 8, 16, 32, 64, 128), "growing"),
        ReferenceCase("mlperf-like-retinanet", (2, 4, 8, 16, 32, 64), "growing"),
        ReferenceCase("mlperf-like-bert", (8, 16, 32, 64, 128, 256), "growing"),
    )
}
