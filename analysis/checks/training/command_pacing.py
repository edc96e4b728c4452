"""Check that a user's command was measured and paced as declared."""

import pandas as pd

from analysis.checks.verdict import CheckVerdict, degraded_verdict, invalid_verdict, valid_verdict
from analysis.metrics.collectives import FIRST_STEADY_STEP
from analysis.reading.run_table import TrialLogTables


def check_command_pacing(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `invalid` if a step of a command was not paced although a speed is declared.

    Also invalid: on engine `local`, operations that gloo has run in place of Ensayo, since nothing shapes them there.
    Problems of the metering, and steps without collectives of the dry run, make the verdict `degraded`.
    """
    if trial.plan.workload_kind != "command":
        return valid_verdict("no command of a user ran")
    paced = {node.name for node in trial.plan.nodes if node.role == "worker" and node.throughput is not None}
    for node in trial.nodes.to_dict("records"):
        steps, deadlines = _count(node.get("steps")), _count(node.get("deadlines"))
        if node["node"] in paced and (steps == 0 or deadlines < steps):
            return invalid_verdict(
                f"{node['node']} declares a speed, but {steps - deadlines} of its {steps} steps were not paced"
            )
        fallbacks = node.get("gloo_fallback_operations") or []
        is_shaped = any(each.uplink_bps or each.downlink_bps for each in trial.plan.nodes) or trial.plan.network.paths
        if fallbacks and is_shaped and trial.plan.engine == "local":
            return invalid_verdict(f"gloo ran {', '.join(fallbacks)} of {node['node']} over links that nothing shapes")
        if node["node"] in paced and (missing := _steps_without_scheduled_collectives(trial, node["node"])):
            return degraded_verdict(
                f"{missing} steps of {node['node']} lack collectives of the dry run, by which they are paced"
            )
        if notes := node.get("notes") or []:
            return degraded_verdict(f"{node['node']}: {'; '.join(dict.fromkeys(notes[:1] + notes[-1:]))}")
    return valid_verdict("every step was paced as declared" if paced else "no worker declares a compute speed")


def _steps_without_scheduled_collectives(trial: TrialLogTables, node: str) -> int:
    """Return the number of steps in steady state in which a node did not call all collectives of the dry run."""
    scheduled = len(trial.plan.step_profile.collectives) if trial.plan.step_profile else 0
    steps = trial.steps.loc[(trial.steps["node"] == node) & (trial.steps["step"] >= FIRST_STEADY_STEP), "step"]
    calls = trial.collectives[(trial.collectives["node"] == node) & ~trial.collectives["is_extra"]]
    counts = calls.groupby("step").size().reindex(steps.unique(), fill_value=0)
    return int((counts < scheduled).sum())


def _count(value: object) -> int:
    return int(value) if isinstance(value, int | float) and not pd.isna(value) else 0
