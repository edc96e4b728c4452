"""Conflicts between the keys of a workload: batches, evaluations, model, payload, target and partition."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from services.cluster.links.fluid_link import choose_message_bytes
from services.learning.datasets import LearningTask
from services.learning.datasets.files import DataFileError
from services.learning.models import model_kinds_for_loss
from services.learning.own_code import OwnCodeError
from services.scenario.learning_task import learning_task_of
from services.scenario.target import metric_names_of_loss
from services.schema.conflicts import KeyConflict

if TYPE_CHECKING:
    from services.scenario.workload import Workload


def find_workload_conflicts(workload: "Workload") -> Iterator[KeyConflict]:
    """Yield the conflicts between the keys of a workload.

    If the data of the user cannot be read, only this is reported: all other checks need the samples. The payload
    is checked only if the model fits.
    """
    try:
        task, train_samples = learning_task_of(workload.dataset)
    except DataFileError as error:
        yield KeyConflict(("dataset", error.key), str(error))
        return
    except OwnCodeError as error:
        yield KeyConflict(("dataset", *error.key_path), str(error))
        return
    yield from _find_batch_conflicts(workload, train_samples)
    yield from _find_evaluation_conflicts(workload, train_samples)
    model_conflicts = tuple(_find_model_conflicts(workload, task))
    yield from model_conflicts or _find_payload_conflicts(workload)
    yield from _find_task_conflicts(workload, task)


def _find_batch_conflicts(workload: "Workload", train_samples: int) -> Iterator[KeyConflict]:
    if (workload.batch is None) == (workload.batch_per_worker is None):
        problem = "one of batch (samples over all workers) and batch_per_worker is required"
        both = "batch (samples over all workers) and batch_per_worker exclude each other; remove one"
        yield KeyConflict(("batch",), problem if workload.batch is None else both)
    for key, size in (("batch", workload.batch), ("batch_per_worker", workload.batch_per_worker)):
        if size is not None and size > train_samples:
            message = (
                f"{key} ({size}) is larger than the training set of {workload.dataset.kind} ({train_samples} samples); "
                f"use at most {train_samples}"
            )
            yield KeyConflict((key,), message)


def _find_evaluation_conflicts(workload: "Workload", train_samples: int) -> Iterator[KeyConflict]:
    budget = workload.epochs * train_samples
    if (workload.evaluate_every or 0) > budget:
        message = (
            f"evaluate_every ({workload.evaluate_every:,} samples) is longer than the run ({workload.epochs:,} epochs "
            f"of {train_samples:,} samples); use at most {budget:,}"
        )
        yield KeyConflict(("evaluate_every",), message)


def _find_model_conflicts(workload: "Workload", task: LearningTask) -> Iterator[KeyConflict]:
    if task.loss not in workload.model.supported_losses:
        message = (
            f"{workload.model.kind} cannot learn the task of dataset {workload.dataset.kind}, whose loss is "
            f"{task.loss}; choose one of {', '.join(model_kinds_for_loss(task.loss))}"
            f"{_name_fitting_objectives(workload)}"
        )
        yield KeyConflict(("model",), message)
        return
    try:
        reason = workload.model.unsupported_task_reason(task)
    except OwnCodeError as error:
        yield KeyConflict(("model", *error.key_path), str(error))
    else:
        if reason:
            yield KeyConflict(("model",), reason)


def _name_fitting_objectives(workload: "Workload") -> str:
    """Return the objectives of the dataset that the model can learn, as the end of a message."""
    losses, supported = workload.dataset.objective_losses, workload.model.supported_losses
    fitting = [objective for objective, loss in losses.items() if loss in supported]
    return f", or declare objective: {' or '.join(fitting)} in the dataset" if fitting else ""


def _find_task_conflicts(workload: "Workload", task: LearningTask) -> Iterator[KeyConflict]:
    """Yield the conflicts of target and partition with the learning task."""
    names = metric_names_of_loss(task.loss)
    if workload.target and workload.target.metric not in names:
        message = (
            f"{workload.target.metric} does not apply to dataset {workload.dataset.kind}; choose one of "
            f"{', '.join(names)}"
        )
        yield KeyConflict(("target", "metric"), message)
    if workload.partition.needs_classes and task.loss != "cross_entropy":
        message = (
            f"partition {workload.partition.kind} needs a task of classification, and dataset {workload.dataset.kind} "
            f"has the loss {task.loss}; use partition sizes or iid"
        )
        yield KeyConflict(("partition",), message)


def _find_payload_conflicts(workload: "Workload") -> Iterator[KeyConflict]:
    """Yield a conflict if messages of the trained model cannot be as large as declared."""
    payload = workload.planned_payload
    if payload is None:
        return
    if payload.scale < 1:
        message = (
            f"{payload.declared} has messages of {payload.size_bytes:,} bytes, fewer than the trained model "
            f"({payload.trained_bytes:,} bytes: {payload.trained_parameters:,} parameters in {workload.precision}); "
            "declare a larger model, train a smaller one, or leave out payload"
        )
        yield KeyConflict(("payload",), message)
    message_bytes = choose_message_bytes(payload.size_bytes, is_declared_size=True)
    if payload.size_bytes > payload.trained_parameters * message_bytes:
        message = (
            f"{payload.declared} has messages of {payload.size_bytes:,} bytes, cut into pieces of at most "
            f"{message_bytes:,} bytes; the {payload.trained_parameters:,} parameters of the trained model are too "
            f"few for so many pieces; train a model with at least {-(-payload.size_bytes // message_bytes):,} "
            "parameters, or declare a smaller payload"
        )
        yield KeyConflict(("payload",), message)
