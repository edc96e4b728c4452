"""Check that the workers' shares of every batch add up to the batch."""

from analysis.checks.verdict import CheckVerdict, invalid_verdict, valid_verdict
from analysis.metrics.step_times.step_seconds import select_full_batch_steps
from analysis.reading.run_table import TrialLogTables


def check_batch_shares(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `invalid` if samples of a batch were processed twice, or not at all.

    All workers compute the shares themselves, from the same speeds. If they differed, samples would be missing.
    """
    if trial.plan.balance is None:
        return valid_verdict("all workers have equal shares of a batch")
    steps = select_full_batch_steps(trial.steps, trial.plan)
    by_step = steps.groupby("step")["samples"].agg(["sum", "count"])
    sums = by_step.loc[by_step["count"] == trial.plan.workers, "sum"].astype(int)
    wrong = sums[sums != trial.plan.batch]
    if len(wrong):
        return invalid_verdict(
            f"the shares of the workers at step {wrong.index[0]} add up to {wrong.iloc[0]} samples, but the batch has "
            f"{trial.plan.batch}"
        )
    return valid_verdict(f"the shares add up to the batch in all {len(sums)} steps on whole batches")
