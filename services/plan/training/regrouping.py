"""Plan of the same training on another group of its workers, after a worker was lost or has joined again."""

from collections.abc import Sequence

from services.plan.node_plan import NodePlan
from services.plan.training.balance_plan import plan_initial_shares
from services.plan.training.phase_plans import regroup_second_phase
from services.plan.training.training_plan import TrainingPlan


def regroup_plan(plan: TrainingPlan, worker_names: Sequence[str]) -> TrainingPlan:
    """Return the plan of a training that continues on the given workers, in the order of their new ranks.

    The global batch, the learning rate and the shards stay. The collective, the shares of a batch and the factor of the
    learning rate at a strategy switch are those of the new group. So a step means the same samples in every group. The
    result describes the training only: its predictions and byte counts are still those of the whole group.

    Args:
        plan: plan of the trial, with all its workers.
        worker_names: names of the workers that continue, by rank.
    """
    all_workers = {worker.name: worker for worker in plan.node_plans_of_role("worker")}
    if tuple(worker_names) == tuple(all_workers):
        return plan
    others = [node for node in plan.nodes if node.role != "worker"]
    workers = [_give_rank(all_workers[name], rank) for rank, name in enumerate(worker_names)]
    phases = plan.strategy.training_phases()
    update = {
        "nodes": (*others, *workers),
        "workers": len(workers),
        "schedule": phases.first.collective_schedule(len(workers)),
        "initial_shares": plan_initial_shares(phases.first, workers, plan.batch),
    }
    if phases.switch and plan.second_phase:
        update["second_phase"] = regroup_second_phase(plan.second_phase, phases.switch, plan.workers, len(workers))
    return plan.model_copy(update=update)


def _give_rank(worker: NodePlan, rank: int) -> NodePlan:
    """Return the plan of a worker with another rank; most of 1,000 workers keep theirs, and are not copied."""
    return worker if worker.rank == rank else worker.model_copy(update={"rank": rank})
