"""Predicted times of a trial: closed forms of the step time of each training phase, and the training time."""

from collections.abc import Sequence
from itertools import pairwise
from math import inf, isfinite
from typing import NamedTuple

from services.cluster.network import Network
from services.plan.node_plan import NodePlan
from services.scenario.scenario import Scenario
from services.strategies import PhasesAndSwitch, SinglePhaseStrategy
from services.strategies.cost_model import MAX_NEGLECTED_SHARE, CostModel, StepTimePrediction
from services.strategies.cost_model.compute_times import ComputeTimes
from services.strategies.cost_model.exchange_schedule import ExchangeSchedule
from services.strategies.server_based.prediction import ServerStepTimeModel
from services.strategies.speed_exchange import add_speed_exchange_time

MIN_ASYNCHRONOUS_EXCHANGES = 50  # per worker: at the end of a run, some workers are idle for up to one exchange
MIN_EXCHANGES_FOR_STEP = 20  # per worker: asynchronous workers begin together, and then drift apart
SHORT_RUN_REASON = (
    f"asynchronous workers exchange fewer than {MIN_ASYNCHRONOUS_EXCHANGES} times, so their different end times change "
    "the training time noticeably"
)
VERY_SHORT_RUN_REASON = (
    f"asynchronous workers exchange fewer than {MIN_EXCHANGES_FOR_STEP} times, so the exchanges with which they begin "
    "together change the mean step time noticeably"
)
FORMAT_STAGES_REASON = "the size of messages changes during the warm-up of the compressor"
MIN_STEPS_WITH_SWITCH = 50  # a switch takes about as long as one to two steps
SHORT_RUN_WITH_SWITCH_REASON = (
    f"training has fewer than {MIN_STEPS_WITH_SWITCH} steps, so the switch of the strategy changes the training time "
    "noticeably"
)
UNPLANNED_SWITCH_REASON = "losses decide when the strategy switches"


class PhasePrediction(NamedTuple):
    """Predicted times of a training phase."""

    step: StepTimePrediction  # of steps on whole batches
    training_s: float  # of all steps, with the smaller last batch of each epoch
    training_inapplicable_reason: str  # why no closed form describes `training_s`; empty if one does
    compute_times: ComputeTimes


def predict_phase(
    strategy: SinglePhaseStrategy,
    cost_model: CostModel,
    compute_times: ComputeTimes,
    step_count: int,
    steps_per_evaluation: float,
    cluster_inapplicable_reason: str,
) -> PhasePrediction:
    """Return the predicted times of a training phase.

    Args:
        strategy: strategy of the phase.
        cost_model: cost model of the planned cluster, without compute times.
        compute_times: compute times of the workers by step, on whole and on smaller batches.
        step_count: number of steps of the phase.
        steps_per_evaluation: mean number of steps from one evaluation to the next.
        cluster_inapplicable_reason: why no closed form describes this cluster; empty if closed forms do.
    """
    pattern = strategy.describe_worker_exchange()
    period, schedule = pattern.exchange_period, ExchangeSchedule(pattern.exchange_period, pattern.exchanges_per_period)
    on_whole_batches, on_all_batches = (
        add_speed_exchange_time(
            strategy.predict_step_time(cost_model.model_copy(update={"step_compute_times": times})),
            strategy.describe_worker_exchange(),
            cost_model,
        )
        for times in (compute_times.only_full_batch_rounds(period), compute_times)
    )
    mean_samples = compute_times.mean_samples_by_worker  # 0 of a worker that only serves
    exchange_count = inf if strategy.describe_worker_exchange().is_synchronous else step_count / period
    reason = cluster_inapplicable_reason or on_all_batches.inapplicable_reason
    stages_s = _predict_longer_stages_s(strategy, cost_model, compute_times, step_count)
    has_long_exchanges = on_whole_batches.exchange_s > MAX_NEGLECTED_SHARE * on_whole_batches.step_s
    if exchange_count < MIN_EXCHANGES_FOR_STEP and has_long_exchanges:
        reason = reason or VERY_SHORT_RUN_REASON
    step_reason = reason or FORMAT_STAGES_REASON * bool(strategy.list_format_stages())
    return PhasePrediction(
        on_whole_batches.model_copy(update={"inapplicable_reason": step_reason}),
        stages_s
        + on_all_batches.predict_training_s(
            step_count, step_count / steps_per_evaluation, schedule, [mean for mean in mean_samples if mean]
        ),
        reason or SHORT_RUN_REASON * (exchange_count < MIN_ASYNCHRONOUS_EXCHANGES),
        compute_times,
    )


def _predict_longer_stages_s(
    strategy: SinglePhaseStrategy, cost_model: CostModel, compute_times: ComputeTimes, step_count: int
) -> float:
    """Return by how many seconds the exchanges of the first steps, with other sizes, take longer than later ones."""
    stages = strategy.list_format_stages()
    if not stages:
        return 0.0
    timed_model = cost_model.model_copy(update={"step_compute_times": compute_times})
    later_s = strategy.predict_step_time(timed_model).exchange_s
    ends = [0, *(min(stage.end_step, step_count) for stage in stages)]
    return sum(
        (end - start) * (stage.strategy.predict_step_time(timed_model).exchange_s - later_s)
        for stage, (start, end) in zip(stages, pairwise(ends), strict=True)
    )


def explain_inapplicable_forms_of_cluster(scenario: Scenario, nodes: Sequence[NodePlan], network: Network) -> str:
    """Return why no closed form describes a cluster.

    Return an empty text if closed forms do.
    """
    unpaced = [node.name for node in nodes if node.role == "worker" and node.throughput is None]
    if unpaced:
        return f"{unpaced[0]} has no declared throughput"
    if any(event.changes_times for event in scenario.events):
        return "events change links or devices"
    if any(path.losses or path.jitters for path in network.paths):
        return "packets are lost or have jitter"
    return ""


def count_saturating_workers(strategy_phases: PhasesAndSwitch, cost_model: CostModel) -> float | None:
    """Return the number of asynchronous workers that saturate the links of the servers.

    Return None if no number does. Where workers own shards, more workers are more servers, and no number of them
    saturates all links.
    """
    for phase in strategy_phases:
        algorithm = phase.server_algorithm()
        if algorithm and not algorithm.synchroniser.describe_worker_sync().runs_in_rounds:
            if set(cost_model.workers) & set(algorithm.shard_owners(cost_model.workers, cost_model.servers)):
                return None
            period = phase.describe_worker_exchange().exchange_period
            workers = ServerStepTimeModel(algorithm, period, cost_model).saturating_worker_count()
            return workers if isfinite(workers) else None
    return None


def predict_latency_s(phase_strategy: SinglePhaseStrategy, cost_model: CostModel) -> float:
    """Return the predicted time of a gradient exchange over links of unlimited rate.

    The time is in virtual seconds.
    """
    zeros = dict.fromkeys(cost_model.uplink_s_per_byte, 0.0)
    network = cost_model.network.model_copy(update={"shared_links": ()})
    ideal = cost_model.model_copy(update={"uplink_s_per_byte": zeros, "downlink_s_per_byte": zeros, "network": network})
    return phase_strategy.predict_step_time(ideal).exchange_s


def explain_inapplicable_form_of_training(predictions: Sequence[PhasePrediction], *, is_switch_planned: bool) -> str:
    """Return why no closed form describes the training time.

    Return an empty text if one does.
    """
    reasons = [prediction.training_inapplicable_reason for prediction in predictions]
    step_count = sum(len(prediction.compute_times.seconds) for prediction in predictions)
    if len(predictions) > 1 and step_count < MIN_STEPS_WITH_SWITCH:
        reasons.append(SHORT_RUN_WITH_SWITCH_REASON)
    return next(filter(None, reasons), "" if is_switch_planned else UNPLANNED_SWITCH_REASON)
