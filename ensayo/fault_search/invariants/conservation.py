"""Invariant: the result contains the gradient of each processed sample exactly once.

The learning rate of the search is so small that gradients do not depend on the order of updates: to first order, the
held-out loss changes by c · g for an applied gradient g, where c is the gradient of the held-out loss at the initial
parameters. Averages of workers keep the mean of their parameters, so that the same holds for the mean. A lost, repeated
or misplaced gradient, and an average that changes the mean, change the final loss by much more than the second order.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ensayo.fault_search.simulation import TrialEvidence
from services.learning.datasets import AnyPlannedDataset
from services.learning.models import Model
from services.plan import TrainingPlan
from services.schema.arrays import HostArray

# Kinds of strategies whose update is the sum of the gradients, weighted by samples, times the learning rate.
CONSERVING_KINDS = {"ad_psgd", "all_reduce", "d_psgd", "local_sgd", "none", "parameter_server", "partial_all_reduce"}
CONSERVING_SYNCHRONISERS = {"asp", "bsp", "dssp", "elastic", "greedy", "ssp"}
EXACT_TOLERANCE = 1e-3  # relative to the expected change of the loss; the second order is below
# Limit of the residual at the end, in steps of gradients: the default strategies have at most 1.6 without faults.
RESIDUAL_STEPS = 3.0
MIN_STEPS_WITH_RESIDUAL = 6  # in shorter trials, the residual at the end is as large as the change


class SampleEffects(NamedTuple):
    """First-order effects of training samples on the held-out loss."""

    initial_loss: float
    effects: HostArray  # shape (training samples,): c · g of each sample, of loss units per learning rate


def find_lost_gradients(evidence: TrialEvidence) -> Iterator[str]:
    """Yield how far the final loss is from that of a trial that applies each gradient once."""
    tolerance = _tolerance(evidence)
    if tolerance is None:
        return
    plan = evidence.plan
    initial_loss, effects = _sample_effects(plan.model, plan.dataset, plan.seed, plan.dtype)
    rate = float(plan.workload_optimiser.model_dump()["rate"])
    budget_change = -rate * _sum_effects_of_budget(plan, effects)
    expected = budget_change if _is_synchronous(plan) else -rate * _sum_effects_of_steps(evidence, effects) / plan.batch
    change = evidence.final_loss - initial_loss
    if abs(change - expected) > tolerance * abs(budget_change):
        yield (
            f"the held-out loss changed by {change:.6e}; the sum of all gradients changes it by {expected:.6e}: "
            f"{abs(change - expected) / abs(budget_change):.2%} of the change are missing or too much, at most "
            f"{tolerance:.2%} are allowed"
        )


def _is_synchronous(plan: TrainingPlan) -> bool:
    return plan.is_synchronous and (plan.second_phase is None or plan.second_phase.is_synchronous)


def _sum_effects_of_budget(plan: TrainingPlan, effects: HostArray) -> float:
    """Return the sum over all global batches of the mean effect of their samples; each epoch has all samples once."""
    order = plan.data_order
    if plan.train_samples % plan.batch == 0:
        return plan.epochs * float(effects.sum()) / plan.batch
    return sum(float(effects[order.batch_sample_indices(step)].mean()) for step in range(plan.steps))


def _sum_effects_of_steps(evidence: TrialEvidence, effects: HostArray) -> float:
    """Return the sum of the effects of all samples that workers computed, by their logs."""
    plan, total = evidence.plan, 0.0
    shares = (1,) * plan.workers
    for rank, name in enumerate(evidence.worker_names):
        for row in evidence.rows(name, "node_steps"):
            total += float(effects[plan.data_order.select_sample_indices(row["step"], rank, shares)].sum())
    return total


def _tolerance(evidence: TrialEvidence) -> float | None:
    """Return the allowed relative error of the change of the loss; None if the strategy conserves no gradients."""
    plan = evidence.plan
    phases = tuple(plan.strategy.training_phases())
    if not _keeps_all_gradients(evidence) or any(evidence.rows(owner, "shard_drops") for owner in plan.shard_owners):
        return None
    if not all(_conserves_gradients(phase.model_dump(mode="json")) for phase in phases):
        return None
    if plan.second_phase and set(plan.second_phase.worker_weights) != {1}:
        return None
    if evidence.schedule.uneven and not _weights_by_samples(evidence):
        return None
    compressors = [phase.describe_worker_exchange().compressor for phase in phases]
    if all(compressor.sum_quality == "exact" for compressor in compressors):
        return EXACT_TOLERANCE
    feeds_errors_back = all(_has_bounded_residual(compressor.model_dump()) for compressor in compressors)
    is_long_enough = plan.steps >= MIN_STEPS_WITH_RESIDUAL
    return RESIDUAL_STEPS / plan.steps if feeds_errors_back and is_long_enough else None


def _keeps_all_gradients(evidence: TrialEvidence) -> bool:
    """Return whether training conserves gradients even if its workers have changed.

    Synchronous workers repeat the steps that are not complete. What a compressor of a lost worker has not sent is lost.
    The local steps of a worker between two exchanges are lost, too, and the others repeat them.
    """
    if not evidence.has_changed_workers:
        return True
    pattern = evidence.plan.strategy.training_phases().first.describe_worker_exchange()
    return pattern.is_synchronous and pattern.compressor.sum_quality == "exact" and not pattern.is_gossip


def _weights_by_samples(evidence: TrialEvidence) -> bool:
    """Return whether every update uses the mean gradient of a global batch, whatever the shares of the workers."""
    phases = evidence.plan.strategy.training_phases()
    return all(phase.describe_worker_exchange().has_equal_replicas for phase in phases)


def _has_bounded_residual(compressor_document: Mapping[str, Any]) -> bool:
    """Return whether a compressor sends each error after a few steps; `random_k` may not select it for many steps."""
    is_feedback = compressor_document["kind"] == "error_feedback"
    return is_feedback and str(compressor_document["inner"]["kind"]) != "random_k"


def _conserves_gradients(phase_document: Mapping[str, Any]) -> bool:
    kind = phase_document["kind"]
    if kind == "parameter_server":
        return (
            phase_document["synchrony"]["kind"] in CONSERVING_SYNCHRONISERS
            and phase_document["staleness"]["kind"] == "none"
            and phase_document["compensation"]["kind"] == "none"
            and phase_document["rate"] == "per_sample"
        )
    return kind in CONSERVING_KINDS


@lru_cache(maxsize=256)
def _sample_effects(model: Model, dataset: AnyPlannedDataset, seed: int, dtype: str) -> SampleEffects:
    data = dataset.load(dtype)
    params = model.init_parameters(data.task, seed, dtype)
    initial_loss, direction = model.loss_and_grad(data.task, params, data.test_x[:], data.test_y[:])
    gradients = (
        model.loss_and_grad(data.task, params, data.train_x[i : i + 1], data.train_y[i : i + 1])[1]
        for i in range(len(data.train_x))
    )
    return SampleEffects(initial_loss, np.array([float(direction @ gradient) for gradient in gradients]))
