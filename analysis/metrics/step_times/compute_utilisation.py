"""Compute utilisation of a trial: the share of its step time in which workers are not blocked on the network.

Definition as in A. Douillard et al., "Streaming DiLoCo with overlapping communication", arXiv 2501.18512, 2025: a
worker that never waits for communication has a utilisation of 100 %. Communication that overlaps with computing does
not count as blocked; the steps log only the rest as `exchange`.
"""

from dataclasses import dataclass

import pandas as pd

from analysis.metrics.step_times.step_seconds import steps_of_all_complete_exchanges
from analysis.reading.run_table import TrialLogTables

NO_STEPS = "no step was logged"
NO_STEP_TIME = "steps take no time"
NOT_METERED = "exchanges of the command are not metered"
LOW_QUANTILE, HIGH_QUANTILE = 0.05, 0.95


@dataclass(frozen=True)
class ComputeUtilisation:
    """Compute utilisation of a trial, from 0 to 1, with its spread. The names of the fields are keys in summary.json.

    A round is all steps up to an exchange, for most strategies one step. If the utilisation is not known, all numbers
    are None, and `reason` states why.
    """

    share: float | None  # of all steps of all workers: 1 - blocked time / step time
    worker_min: float | None = None  # of the worker that is blocked most
    worker_max: float | None = None
    round_p5: float | None = None  # 5th percentile over the rounds of all workers
    round_p95: float | None = None
    reason: str = ""  # why the utilisation is not known; empty if it is


UNKNOWN_UTILISATION = ComputeUtilisation(None, reason=NO_STEPS)


def measure_compute_utilisation(trial: TrialLogTables) -> ComputeUtilisation:
    """Return the compute utilisation of a trial.

    Blocked time is the time of the phases `exchange` and `wait`. Steps are those of
    `steps_of_all_complete_exchanges`, as in `step_phase_seconds`.
    """
    if trial.steps.empty:
        return UNKNOWN_UTILISATION
    if trial.plan.workload_kind == "command" and trial.plan.workers > 1 and trial.collectives.empty:
        return ComputeUtilisation(None, reason=NOT_METERED)
    steps = steps_of_all_complete_exchanges(trial)
    times = pd.DataFrame(
        {
            "node": steps["node"],
            "round": steps["step"] // trial.plan.exchange_period,
            "step_s": steps["step_s"].astype(float),
            "blocked_s": steps["exchange_s"].astype(float) + steps["wait_s"],
        }
    )
    if not times["step_s"].sum():
        return ComputeUtilisation(None, reason=NO_STEP_TIME)
    by_worker, by_round = _utilisation_by(times, ["node"]), _utilisation_by(times, ["node", "round"])
    return ComputeUtilisation(
        share=_unblocked_share(times["blocked_s"].sum(), times["step_s"].sum()),
        worker_min=float(by_worker.min()),
        worker_max=float(by_worker.max()),
        round_p5=float(by_round.quantile(LOW_QUANTILE)),
        round_p95=float(by_round.quantile(HIGH_QUANTILE)),
    )


def _utilisation_by(times: pd.DataFrame, columns: list[str]) -> "pd.Series[float]":
    """Return the utilisation of each group of steps that are equal in `columns`; groups without time are left out."""
    sums = times.groupby(columns, observed=True)[["blocked_s", "step_s"]].sum()
    sums = sums[sums["step_s"] > 0]
    return (1 - sums["blocked_s"] / sums["step_s"]).clip(0.0, 1.0)


def _unblocked_share(blocked_s: float, step_s: float) -> float:
    return min(1.0, max(0.0, 1 - float(blocked_s) / float(step_s)))
