"""Plans of parts of a training: the phase after a strategy switch, and steps whose messages have other sizes."""

import numpy as np

from services.collectives import TransferSchedule
from services.learning.optimisers import AnyOptimiser
from services.plan.prediction import predict_latency_s
from services.plan.training.compressed_traffic import compressed_traffic_ratio
from services.plan.training.sent_bytes import reply_bytes_by_worker, sent_bytes_by_node, sent_bytes_per_step
from services.scenario.scenario import TrialSpec
from services.scenario.workload import Workload
from services.schema.component import FrozenRecord
from services.strategies import PhasesAndSwitch, SinglePhaseStrategy
from services.strategies.cost_model import CostModel, StepTimePrediction
from services.strategies.speed_exchange import add_speed_exchange_bytes
from services.strategies.switching.switch import TrainingPhaseSwitch


class FormatStagePlan(FrozenRecord):
    """Consecutive steps whose messages have other sizes than those of most steps, such as during a warm-up."""

    end_step: int  # first step after this stage
    bytes_per_step: dict[str, int | float]  # payload bytes that each node sends in one step, by node name


class PostSwitchPhasePlan(FrozenRecord):
    """Plan of the training phase after a strategy switch.

    `Plan` has the same fields for the first phase.
    """

    planned_step: int | None  # first step of this phase; None: the losses decide during the run, or it never begins
    optimiser: AnyOptimiser
    schedule: TransferSchedule  # of the collective; empty without one
    exchange_period: int = 1  # steps from one exchange to the next
    exchanges_per_period: int = 1  # as in `Plan`
    bytes_per_step: dict[str, int | float]  # payload bytes that each node sends in one step, by node name
    reply_bytes_per_step: dict[str, int | float]  # part of a worker's bytes that replies to pushes of other workers
    predicted: StepTimePrediction
    is_synchronous: bool  # as in `Plan`
    worker_weights: tuple[int, ...]  # share of a batch by rank; 0 for a worker that only serves in this phase
    latencies_s: tuple[float, float]  # of an exchange before and after the switch, if bytes took no time; virtual
    model_transfer_bytes: dict[str, int]  # payload bytes that each node sends if the switch has to move the state
    compressed_traffic_ratio: float | None = None  # as in `Plan`
    sums_per_exchange: int = 1  # as in `Plan`
    # Whether the compressor of the first phase has a state, such as residuals, which the switch drops.
    drops_compressor_state: bool = False


def plan_format_stages(
    strategy: SinglePhaseStrategy, cost_model: CostModel, optimiser: AnyOptimiser
) -> tuple[FormatStagePlan, ...]:
    """Return the stages of the first steps, in which messages have other sizes than in all later steps."""
    traits = strategy.describe_worker_exchange()
    stages = [
        (end, add_speed_exchange_bytes(sent_bytes_per_step(stage, cost_model, optimiser), traits))
        for end, stage in strategy.list_format_stages()
    ]
    return tuple(
        FormatStagePlan(end_step=end, bytes_per_step=sent_bytes_by_node(sent, 0, cost_model.payload_scale))
        for end, sent in stages
    )


def planned_switch_step(switch: TrainingPhaseSwitch, workload: Workload, worker_count: int) -> int | None:
    """Return the step at which a strategy switches.

    Return None if losses decide, or if it never switches.
    """
    return switch.rule.planned_switch_step(workload.total_steps(worker_count), workload.steps_per_epoch(worker_count))


def regroup_second_phase(
    second_phase: PostSwitchPhasePlan, switch: TrainingPhaseSwitch, workers_before: int, workers: int
) -> PostSwitchPhasePlan:
    """Return the plan of the second training phase for another number of workers; its predictions stay."""
    factor = switch.learning_rate_factor(workers) / switch.learning_rate_factor(workers_before)
    optimiser = second_phase.optimiser
    return second_phase.model_copy(
        update={
            "optimiser": optimiser.model_copy(update={"rate": optimiser.rate * factor}),
            "schedule": switch.second.collective_schedule(workers),
            "worker_weights": switch.batch_shares_after_switch(workers),
        }
    )


def plan_post_switch_phase(
    strategy_phases: PhasesAndSwitch, trial: TrialSpec, cost_model: CostModel, predicted: StepTimePrediction
) -> PostSwitchPhasePlan | None:
    """Return the plan of the training phase after a strategy switch.

    Return None if there is no switch.
    """
    switch = strategy_phases.switch
    if switch is None:
        return None
    workload, workers, servers = trial.scenario.training_workload, len(cost_model.workers), strategy_phases.server_count
    scale = cost_model.payload_scale
    optimiser = switch.optimiser_after_switch(workload.scale_rate_by_batch(workers), workers)
    sent = sent_bytes_per_step(switch.second, cost_model, optimiser)
    slots = len(optimiser.init_state(np.zeros(1)).slots)
    transfer_bytes = switch.max_transfer_bytes(workers, cost_model.entries, cost_model.dtype, slots)
    return PostSwitchPhasePlan(
        planned_step=planned_switch_step(switch, workload, workers),
        optimiser=optimiser,
        schedule=switch.second.collective_schedule(workers),
        exchange_period=switch.second.describe_worker_exchange().exchange_period,
        exchanges_per_period=switch.second.describe_worker_exchange().exchanges_per_period,
        bytes_per_step=sent_bytes_by_node(sent, servers, scale),
        reply_bytes_per_step=reply_bytes_by_worker(sent, scale),
        predicted=predicted,
        is_synchronous=switch.second.describe_worker_exchange().is_synchronous,
        worker_weights=switch.batch_shares_after_switch(workers),
        latencies_s=(
            predict_latency_s(switch.first, cost_model),
            predict_latency_s(switch.second, cost_model),
        ),
        model_transfer_bytes={
            node: round(size) for node, size in sent_bytes_by_node(transfer_bytes, servers, scale).items()
        },
        compressed_traffic_ratio=compressed_traffic_ratio(switch.second, workers, cost_model.entries, cost_model.dtype),
        sums_per_exchange=switch.second.describe_worker_exchange().sums_per_exchange,
        drops_compressor_state=switch.first.describe_worker_exchange().has_compressor_state,
    )
