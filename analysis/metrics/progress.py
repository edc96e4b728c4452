"""Steps and samples that a trial completed, and the final metrics of its model."""

from analysis.reading.run_table import TrialLogTables


def steps_done(trial: TrialLogTables) -> int:
    """Return the largest number of training steps that any worker completed.

    Synchronous workers all do the same number.
    """
    return int(trial.steps.groupby("node").size().max()) if len(trial.steps) else 0


def trained_sample_count(trial: TrialLogTables) -> int:
    """Return the number of samples that all workers together trained on."""
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
    """Return the last evaluated value of every metric, such as accuracy."""
    last = trial.evals.sort_values("time_s", kind="stable").groupby("metric", sort=False)["value"].last()
    return {str(metric): float(value) for metric, value in last.items()}
