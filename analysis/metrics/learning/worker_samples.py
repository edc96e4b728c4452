"""Samples of each worker: how many it owns, and how many it has processed."""

from dataclasses import dataclass

from analysis.reading.run_table import TrialLogTables


@dataclass(frozen=True)
class WorkerSampleCounts:
    """Numbers of training samples of one worker. The names of the fields are keys in summary.json."""

    worker: str  # name of the node
    processed: int  # in all steps; a sample of two epochs counts twice
    owned: int | None = None  # samples of the worker's part; None if workers share all samples

    @property
    def passes(self) -> float | None:
        """Mean number of times that the worker has processed each sample of its part."""
        return self.processed / self.owned if self.owned else None


def count_worker_samples(trial: TrialLogTables) -> list[WorkerSampleCounts]:
    """Return the numbers of samples of each worker, by rank."""
    plan = trial.plan
    processed = trial.steps.groupby("rank")["samples"].sum().to_dict() if len(trial.steps) else {}
    owned = plan.part_sizes or (None,) * plan.workers
    return [
        WorkerSampleCounts(f"worker-{rank}", int(processed.get(rank, 0)), owned[rank]) for rank in range(plan.workers)
    ]
