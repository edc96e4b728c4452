"""Steps and samples that a trial completed, and the final metrics of its model."""

from analysis.reading.run_table import TrialLogTables


def steps_done(trial: TrialLogTables) -> int:
    """Return the largest number of training steps that any worker completed.

    Synchronous workers all do the same number.
    """
    return int(trial.steps.groupby("node").size().max()) if len(trial.steps) else 0


def trained_sample_count(trial: TrialLogTables) -> int:
    """Return the number of samples that all workers together trained on.

    If the workers have changed, it is the coordinator's count: workers have repeated steps, and a lost worker has lost
    the last lines of its log.
    """
    if trial.membership.epochs and len(trial.evals):
        return int(trial.evals["samples"].max())
    return int(trial.steps["samples"].sum())


def samples_per_second(trial: TrialLogTables) -> float | None:
    """Return the samples per second of all workers together, evaluation included.

    The seconds are those from the log event `run_start` to `run_stop`.

    None where the trial took no time or did not end.
    """
    if not trial.seconds:
        return None
    return trained_sample_count(trial) / trial.seconds


def final_eval_metrics(trial: TrialLogTables) -> dict[str, float]:
    """Return the last evaluated value of every metric, such as accuracy.

    Metrics of a command have the order of the scenario, with that of the target first.
    """
    last = trial.evals.sort_values("time_s", kind="stable").groupby("metric", sort=False)["value"].last()
    values = {str(metric): float(value) for metric, value in last.items()}
    declared = [name for name in trial.plan.metric_names if name in values]
    return {name: values[name] for name in dict.fromkeys((*declared, *values))}
