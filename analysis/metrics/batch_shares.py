"""Load balancing: shares of a batch that each worker has processed over time, and what their changes have gained."""

from dataclasses import dataclass

import pandas as pd

from analysis.metrics.step_times.step_seconds import select_full_batch_steps
from analysis.reading.run_table import TrialLogTables


@dataclass(frozen=True)
class BatchShareInterval:
    """Shares of whole batches in consecutive steps. The names of the fields are keys in summary.json.

    Times are virtual seconds, means over the steps on whole batches.
    """

    first_step: int
    last_step: int
    samples: list[int]  # per step, by rank
    slowest_compute_s: float  # compute time of the slowest worker of a step
    spread: float  # difference between the slowest and the fastest worker of a step, relative to the slowest


@dataclass(frozen=True)
class BatchBalanceResult:
    """Load balancing of one trial. The names of the fields are keys in summary.json."""

    shares: list[BatchShareInterval]  # in the order of steps; the first are those at the start
    # Predicted compute time of a step with equal shares; None where speeds vary or are not declared.
    equal_compute_s: float | None
    speedup_bound: float | None  # largest ratio of `equal_compute_s` and the compute time of a step

    @property
    def adjustment_count(self) -> int:
        """Number of changes of the shares."""
        return len(self.shares) - 1

    @property
    def compute_speedup(self) -> float | None:
        """Predicted compute time of a step with equal shares, divided by the measured one with the last shares."""
        last_s = self.shares[-1].slowest_compute_s
        return self.equal_compute_s / last_s if self.equal_compute_s and last_s else None

    @property
    def share_of_bound(self) -> float | None:
        """Part of the largest possible speedup that was reached."""
        return self.compute_speedup / self.speedup_bound if self.compute_speedup and self.speedup_bound else None


def measure_batch_balance(trial: TrialLogTables) -> BatchBalanceResult | None:
    """Return the shares of a trial with load balancing; None with equal shares, or without steps on whole batches."""
    if trial.plan.balance is None:
        return None
    samples = _pivot_by_worker(trial, "samples").dropna().astype(int)  # steps that all workers have logged
    if samples.empty:
        return None
    compute_s = _pivot_by_worker(trial, "compute_s").astype(float).loc[samples.index]
    has_changed = (samples != samples.shift()).any(axis=1)
    shares = []
    for _, steps in samples.groupby(has_changed.cumsum()):
        times_s = compute_s.loc[steps.index]
        slowest_s, fastest_s = times_s.max(axis=1), times_s.min(axis=1)
        spread = ((slowest_s - fastest_s) / slowest_s.where(slowest_s > 0)).fillna(0.0)
        shares.append(
            BatchShareInterval(
                int(steps.index[0]),
                int(steps.index[-1]),
                steps.iloc[0].astype(int).tolist(),
                float(slowest_s.mean()),
                float(spread.mean()),
            )
        )
    plan, has_constant_speeds = trial.plan, not any(node.variation for node in trial.plan.nodes)
    equal_s = trial.plan.balance.equal_compute_s if has_constant_speeds and not plan.events else None
    return BatchBalanceResult(shares, equal_s, trial.plan.balance.speedup_bound)


def _pivot_by_worker(trial: TrialLogTables, column: str) -> pd.DataFrame:
    """Return a column of the steps on whole batches; the index contains steps, the columns are ranks."""
    steps = select_full_batch_steps(trial.steps, trial.plan)
    return steps.drop_duplicates(["step", "rank"]).pivot_table(
        index="step", columns="rank", values=column, observed=True
    )
