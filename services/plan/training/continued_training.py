"""Continuation of an earlier training from its checkpoint, and the properties that both trainings must share."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from services.schema.component import FrozenRecord

if TYPE_CHECKING:
    from services.plan.training.training_plan import TrainingPlan

# Fields of a plan that determine the state of a training after a number of steps, apart from rounding.
TRAINING_FIELDS = (
    *("dataset", "model", "optimiser", "rate_schedule", "clip_norm", "precision", "seed", "order"),
    *("batch", "epochs", "train_samples", "steps_per_epoch", "exchange_period", "shards", "partition"),
)
# Fields of a plan that may differ between two attempts at a trial of a run.
ATTEMPT_FIELDS = ("question", "continued", "delay_mechanism")


class ContinuedTraining(FrozenRecord):
    """Checkpoint of an earlier training, from which a trial continues."""

    folder: str  # of the earlier trial: in the run folder, or as the scenario names it
    is_attempt: bool  # whether the earlier training was an interrupted attempt at the same trial
    step: int  # number of finished steps; 0: no checkpoint can be used, and training begins anew
    workers: int  # that the checkpoint has states of
    is_target_reached: bool = False  # whether an evaluation of the attempt before this step has reached the target
    unused_checkpoints: tuple[str, ...] = ()  # why the earlier training, or its newer checkpoints, can't be continued


def list_attempt_differences(earlier: "TrainingPlan", plan: "TrainingPlan") -> tuple[str, ...]:
    """Return the fields in which the plan of an attempt differs from that of an earlier attempt at the same trial.

    Addresses of nodes may differ.
    """
    before, after = _describe_attempt(earlier), _describe_attempt(plan)
    return tuple(key for key in after if before.get(key) != after[key])


def _describe_attempt(plan: "TrainingPlan") -> dict[str, Any]:
    values = plan.model_dump(mode="json", exclude=set(ATTEMPT_FIELDS))
    nodes = [{key: value for key, value in node.items() if key != "addresses"} for node in values["nodes"]]
    return values | {"nodes": nodes}


def explain_training_difference(earlier: "TrainingPlan", plan: "TrainingPlan", worker_count: int) -> str:
    """Return why a trial can't continue an earlier training, and the remedy; empty if it can.

    Args:
        earlier: plan of the earlier training.
        plan: plan of the trial.
        worker_count: number of workers that the checkpoint has states of.
    """
    has_same_workers = worker_count == plan.workers
    if not has_same_workers and plan.partition.kind != "iid":
        return (
            f"with partition {plan.partition.kind}, each of the {worker_count} workers owns a part of the samples, and "
            f"{plan.workers} workers need other parts; use {worker_count} workers, or partition: {{kind: iid}}"
        )
    if not has_same_workers and any(node.device == "cuda" for node in (*earlier.nodes, *plan.nodes)):
        return (
            f"states of workers that compute on a GPU can't be divided among {plan.workers} workers; use "
            f"{worker_count} workers, or device: cpu"
        )
    before, after = (
        {"strategy": _describe_strategy(each, has_same_workers=has_same_workers)}
        | {name: getattr(each, name) for name in TRAINING_FIELDS}
        for each in (earlier, plan)
    )
    name = next((name for name in after if before[name] != after[name]), None)
    if name is None:
        return ""
    difference = _describe_difference(name, before[name], after[name])
    return f"{difference}; both trainings must have the same {', '.join(after)}"


def _describe_strategy(plan: "TrainingPlan", *, has_same_workers: bool) -> Mapping[str, Any]:
    """Return the keys of a strategy that must be equal: the collective may depend on the number of workers."""
    values = plan.strategy.model_dump(mode="json")
    return values if has_same_workers else {key: value for key, value in values.items() if key != "collective"}


def _describe_difference(name: str, before: object, after: object) -> str:
    """Return the values of a field before and after, of a record those of its first key that differs."""
    before, after = (
        each.model_dump(mode="json") if isinstance(each, FrozenRecord) else each for each in (before, after)
    )
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        key = next(key for key in (*after, *before) if before.get(key) != after.get(key))
        return _describe_difference(f"{name}.{key}", before.get(key), after.get(key))
    return f"{name} is {before} in the earlier training, and {after} in this trial"
