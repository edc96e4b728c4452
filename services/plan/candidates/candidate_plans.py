"""Plans of a trial whose strategy is chosen among candidates: of each candidate, and of their probes."""

from collections.abc import Callable
from typing import TypeAlias

from services.plan.candidates.strategy_choice import CandidateRecord, StrategyChoice
from services.plan.training.training_plan import TrainingPlan
from services.scenario.conflicts.training_conflicts import explain_impossible_candidate
from services.scenario.scenario import TrialSpec
from services.strategies import AnyCandidate, AutoStrategy
from services.strategies.auto import describe_candidate

PlanTrial: TypeAlias = Callable[[TrialSpec], TrainingPlan]  # plans a trial whose strategy is not `auto`


def plan_best_candidate(trial: TrialSpec, auto: AutoStrategy, plan_trial: PlanTrial) -> TrainingPlan:
    """Return the plan of a trial under the candidate with the least predicted step time, with the choice.

    At least one candidate must be possible in the scenario of the trial.
    """
    candidates, plans, warm_up_s = auto.list_candidates(), dict[int, TrainingPlan](), dict[int, float]()
    records = []
    for number, candidate in enumerate(candidates):
        reason = explain_impossible_candidate(trial.scenario, trial.label, candidate)
        if not reason:
            plans[number] = plan_trial(trial.with_strategy(candidate))
            warm_up_s[number] = _predict_warm_up_s(plans[number], trial, candidate, plan_trial)
        records.append(_make_record(candidate, reason, plans.get(number), warm_up_s.get(number, 0.0)))
    choice = StrategyChoice.by_prediction(auto.quality, auto.probes, auto.probe_steps, auto.margin, tuple(records))
    return plans[choice.chosen].model_copy(update={"strategy_choice": choice})


def _predict_warm_up_s(plan: TrainingPlan, trial: TrialSpec, candidate: AnyCandidate, plan_trial: PlanTrial) -> float:
    """Return by how many seconds the first steps lengthen a trial, for its plan.

    In these steps, messages are larger, or workers have equal shares of a batch until they have measured their speeds.
    """
    equal_shares_s = _predict_equal_shares_s(plan)
    if not plan.format_stages:
        return equal_shares_s
    without_stages = plan_trial(trial.with_strategy(candidate.after_format_stages()))
    return equal_shares_s + plan.predicted_s - without_stages.predicted_s


def _predict_equal_shares_s(plan: TrainingPlan) -> float:
    """Return by how many seconds equal shares of a batch lengthen the steps before the first change of the shares.

    The result is 0 if shares never change, or if a worker has no declared speed.
    """
    balance = plan.balance
    if balance is None or balance.equal_compute_s is None or balance.balanced_compute_s is None:
        return 0.0
    return balance.resize_period * (balance.equal_compute_s - balance.balanced_compute_s)


def _make_record(
    candidate: AnyCandidate, impossible_reason: str, plan: TrainingPlan | None, warm_up_s: float
) -> CandidateRecord:
    return CandidateRecord(
        name=describe_candidate(candidate),
        strategy=candidate,
        quality=candidate.describe_quality().level,
        impossible_reason=impossible_reason,
        predicted_step_s=plan.predicted_s / plan.steps if plan else None,
        warm_up_step_s=warm_up_s / plan.steps if plan else 0.0,
        estimate_reason=plan.training_inapplicable_reason if plan else "",
        exchange_period=candidate.describe_worker_exchange().exchange_period,
        resize_period=candidate.describe_worker_exchange().balance.resize_period,
    )


def make_probe_plan(candidate_plan: TrainingPlan, probe_name: str, step_count: int) -> TrainingPlan:
    """Return the plan of a probe: a few steps of a trial under a candidate, without events and without a target.

    Model, data, batch, cluster and links are those of the trial. All steps train whole batches, so that probes with
    different numbers of steps can be compared. A warm-up with larger messages is left out, because it would be most of
    a probe but is little of the trial.

    Args:
        candidate_plan: plan of the trial under the candidate.
        probe_name: name of the probe's folder, used as the name of its trial.
        step_count: least number of training steps; the probe trains whole epochs if they are shorter.
    """
    whole_batches = max(1, candidate_plan.train_samples // candidate_plan.batch)
    steps_per_epoch = min(step_count, whole_batches)
    epochs = -(-step_count // steps_per_epoch)
    samples = min(steps_per_epoch * candidate_plan.batch, candidate_plan.train_samples)
    return candidate_plan.model_copy(
        update={
            "trial": probe_name,
            "strategy": candidate_plan.strategy.training_phases().first.after_format_stages(),
            "format_stages": (),
            "epochs": epochs,
            "train_samples": samples,
            "steps_per_epoch": steps_per_epoch,
            "steps": epochs * steps_per_epoch,
            "evaluate_every": epochs * samples,
            "target": None,
            "stop_at_target": False,
            "events": (),
            "horizon_s": None,
            "failure_interval_s": None,
        }
    )
