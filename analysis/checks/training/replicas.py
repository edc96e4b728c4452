"""Check that all workers of a synchronous strategy have equal model parameters after the same step."""

from math import inf

import pandas as pd

from analysis.checks.verdict import CheckVerdict, degraded_verdict, invalid_verdict, valid_verdict
from analysis.metrics.worker_seconds import list_membership_changes
from analysis.reading.run_table import TrialLogTables


def check_model_replicas_agree(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `invalid` if synchronous workers have different model parameters.

    Compared are the parameters that workers of a synchronous strategy report after the same step.

    Sums are computed in a fixed order, so replicas must be equal bit by bit.
    """
    if trial.plan.workers == 1:
        return valid_verdict("there is one replica")
    if trial.plan.sync_or_async == "asynchronous":
        return valid_verdict("replicas of an asynchronous strategy may differ")
    by_step = _comparable_hashes(trial).groupby("step")
    if not len(by_step):
        return _judge_missing_hashes(trial)
    differing = by_step["sha256"].agg("nunique") > 1
    if differing.any():
        return invalid_verdict(f"replicas differ at step {differing[differing].index[0]}")
    if any(
        hashes["node"].nunique() < _count_model_replicas(trial, int(hashes["step"].iloc[0])) for _, hashes in by_step
    ):
        return degraded_verdict("not every worker reported a hash of its parameters")
    return valid_verdict(f"replicas agree at all {len(by_step)} compared steps")


def _comparable_hashes(trial: TrialLogTables) -> pd.DataFrame:
    """Return the hashes that must be equal after the same step, each the last one that a worker reported for a step.

    After a change of the workers, steps are repeated, and sums are rounded in another order. So workers that were lost
    and have joined again are compared from the last change on only, all others after all steps.
    """
    hashes = trial.parameter_hashes
    is_worker = hashes["node"].str.startswith("worker")
    was_lost = hashes["node"].isin(trial.membership.lost_node_names)
    is_member = hashes["node"].isin(_list_last_members(trial)) & (hashes["step"] > _find_last_first_step(trial))
    return hashes[is_worker & (~was_lost | is_member)].drop_duplicates(["node", "step"], keep="last")


def _list_last_members(trial: TrialLogTables) -> tuple[str, ...]:
    """Return the workers of the last membership epoch; none if the workers have not changed."""
    epochs = trial.membership.epochs
    return epochs[-1].workers if epochs else ()


def _find_last_first_step(trial: TrialLogTables) -> float:
    """Return the step from which workers continued in the last membership epoch; infinite if they did not."""
    changes = list_membership_changes(trial.membership)
    first_step = changes[-1].first_step if changes else None
    return inf if first_step is None else first_step


def _judge_missing_hashes(trial: TrialLogTables) -> CheckVerdict:
    if trial.plan.workload_kind == "command":
        return valid_verdict("the parameters of the command are not known, so they are not compared")
    return degraded_verdict("no worker reported a hash of its parameters")


def _count_model_replicas(trial: TrialLogTables, finished_step: int) -> int:
    """Return how many workers hold the model after a step.

    After a strategy switch that turned workers into servers, the number is smaller.
    """
    after, switch_record = trial.plan.second_phase, trial.switch_record
    never_lost_count = trial.plan.workers - len(trial.membership.lost_node_names)
    if after is None or switch_record is None or not switch_record.committed:
        if finished_step > _find_last_first_step(trial):
            return len(_list_last_members(trial))
        return never_lost_count
    if finished_step <= int(switch_record.committed["step"]):
        return never_lost_count
    return never_lost_count - len(after.new_server_names)
