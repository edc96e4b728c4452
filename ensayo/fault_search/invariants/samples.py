"""Invariant: the samples of a trial equal its budget."""

from collections import Counter
from collections.abc import Iterator

from ensayo.fault_search.simulation import TrialEvidence


def find_wrong_sample_counts(evidence: TrialEvidence) -> Iterator[str]:
    """Yield each count of samples that differs from the budget of the trial.

    A synchronous trial uses the budget exactly. An asynchronous trial may exceed it by less than a batch, because
    workers compute their last steps at the same time.
    """
    plan, used = evidence.plan, evidence.run_stop["samples_count"]
    is_exact = plan.is_synchronous and (plan.second_phase is None or plan.second_phase.is_synchronous)
    largest = plan.sample_budget + (0 if is_exact else plan.batch)
    if not plan.sample_budget <= used <= largest:
        yield f"the run counted {used} samples; its budget is {plan.sample_budget}, and at most {largest} are allowed"
    if evidence.has_changed_workers:
        return  # workers repeat steps, and a lost worker loses the last lines of its log
    rows = [(name, row) for name in evidence.worker_names for row in evidence.rows(name, "node_steps")]
    for (name, step), count in Counter((name, row["step"]) for name, row in rows).items():
        if count > 1:
            yield f"{name} computed step {step} {count} times"
    if is_exact:
        yield from _find_wrong_batches(evidence)
    computed, dropped = sum(row["samples"] for _, row in rows), _count_dropped_samples(evidence)
    if computed - dropped != used:
        yield f"the workers computed {computed} samples and servers dropped {dropped}, but the run counted {used}"


def _find_wrong_batches(evidence: TrialEvidence) -> Iterator[str]:
    """Yield each step in which the workers together did not compute the global batch."""
    samples_by_step = Counter[int]()
    for name in evidence.worker_names:
        for row in evidence.rows(name, "node_steps"):
            samples_by_step[row["step"]] += row["samples"]
    for step, samples in sorted(samples_by_step.items()):
        if samples != (batch := evidence.plan.data_order.batch_size(step)):
            yield f"the workers computed {samples} samples in step {step}, not {batch}"


def _count_dropped_samples(evidence: TrialEvidence) -> int:
    """Return the samples of the pushes that the first server dropped, which do not count as progress."""
    owners = evidence.plan.shard_owners
    return sum(row["samples"] for row in evidence.rows(owners[0], "shard_drops")) if owners else 0
