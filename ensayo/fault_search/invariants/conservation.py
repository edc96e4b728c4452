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
from services.learning.layout import VectorRange
from services.learning.models import Model
from services.plan import COORDINATOR, TrainingPlan
from services.plan.training.regrouping import regroup_plan
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
    budget_change = -rate * _sum_effects_of_steps(plan, range(plan.steps), effects)
    if _is_synchronous(plan):
        expected = budget_change
    elif evidence.has_changed_workers:
        expected = -_sum_changes_with_switch(evidence, rate)
    else:
        expected = -rate * _sum_effects_of_logged_steps(evidence, effects) / plan.batch
    change = evidence.final_loss - initial_loss
    if abs(change - expected) > tolerance * abs(budget_change):
        yield (
            f"the held-out loss changed by {change:.6e}; the sum of all gradients changes it by {expected:.6e}: "
            f"{abs(change - expected) / abs(budget_change):.2%} of the change are missing or too much, at most "
            f"{tolerance:.2%} are allowed"
        )


def _is_synchronous(plan: TrainingPlan) -> bool:
    return plan.is_synchronous and (plan.second_phase is None or plan.second_phase.is_synchronous)


def _sum_effects_of_steps(plan: TrainingPlan, steps: range, effects: HostArray) -> float:
    """Return the sum over the global batches of some steps of the mean effect of their samples."""
    return sum(float(effects[plan.data_order.batch_sample_indices(step)].mean()) for step in steps)


def _sum_changes_with_switch(evidence: TrialEvidence, first_rate: float) -> float:
    """Return by how much the loss falls in synchronous steps before a strategy switch, and by pushes after it.

    The servers have logged the pushes. A lost worker may have reached only some of the servers.
    """
    workers = evidence.pushing_workers
    plan = regroup_plan(evidence.plan, workers)
    commits = evidence.events[COORDINATOR]["switch_committed"]
    first_step = commits[-1]["metadata"]["step"] if commits else plan.steps
    effects = _sample_effects(plan.model, plan.dataset, plan.seed, plan.dtype).effects
    total = first_rate * _sum_effects_of_steps(plan, range(first_step), effects)
    second_rate = float(plan.second_phase.optimiser.rate) if plan.second_phase else 0.0
    for shard, owner in zip(plan.shards, plan.shard_owners, strict=True):
        shard_effects = _sample_effects(plan.model, plan.dataset, plan.seed, plan.dtype, shard).effects
        for row in evidence.rows(owner, "shard_updates"):
            samples = plan.data_order.select_sample_indices(row["push_step"], row["worker"], (1,) * len(workers))
            total += second_rate * float(shard_effects[samples].mean()) if len(samples) else 0.0
    return total


def _sum_effects_of_logged_steps(evidence: TrialEvidence, effects: HostArray) -> float:
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
    is_summed_by_pushes = evidence.has_changed_workers and not _is_synchronous(plan)
    if evidence.schedule.uneven and not (is_summed_by_pushes or _weights_by_samples(evidence)):
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
    The local steps of a worker between two exchanges are lost, too, and the others repeat them. Asynchronous workers
    may be lost after a push, before they log its step: only servers have logged it.
    """
    if not evidence.has_changed_workers:
        return True
    phases = evidence.plan.strategy.training_phases()
    pattern, compressors = (
        phases.first.describe_worker_exchange(),
        [phase.describe_worker_exchange().compressor for phase in phases],
    )
    are_exact = all(compressor.sum_quality == "exact" for compressor in compressors)
    return pattern.is_synchronous and are_exact and not pattern.is_gossip


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
def _sample_effects(
    model: Model, dataset: AnyPlannedDataset, seed: int, dtype: str, shard: VectorRange | None = None
) -> SampleEffects:
    """Return the effects of samples on the loss; with `shard`, of the entries of their gradients in this range only."""
    data = dataset.load(dtype)
    params = model.init_parameters(data.task, seed, dtype)
    initial_loss, direction = model.loss_and_grad(data.task, params, data.test_x[:], data.test_y[:])
    entries = shard or VectorRange(0, params.size)
    gradients = (
        model.loss_and_grad(data.task, params, data.train_x[i : i + 1], data.train_y[i : i + 1])[1]
        for i in range(len(data.train_x))
    )
    effects = [float(entries.view(direction) @ entries.view(gradient)) for gradient in gradients]
    return SampleEffects(initial_loss, np.array(effects))
