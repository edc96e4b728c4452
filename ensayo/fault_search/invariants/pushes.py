"""Invariant: servers apply each pushed vector once, in every shard."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ensayo.fault_search.simulation import TrialEvidence


def find_repeated_or_lost_pushes(evidence: TrialEvidence) -> Iterator[str]:
    """Yield each push that a server did not apply or drop exactly once, and each skipped version of a shard."""
    phase = evidence.plan.strategy.training_phases().first_phase_with_servers
    if phase is None or (evidence.has_changed_workers and phase.describe_worker_exchange().is_synchronous):
        return  # synchronous workers push again after a recovery, and servers go back to an earlier version
    owners = evidence.plan.shard_owners
    pushes_by_owner = {owner: _count_pushes(evidence, owner) for owner in owners}
    for owner, pushes in pushes_by_owner.items():
        yield from _find_wrong_pushes(owner, pushes, evidence)
        versions = sorted({row["version"] for row in evidence.rows(owner, "shard_updates")})
        if versions and versions != list(range(versions[0], versions[0] + len(versions))):
            yield f"the versions of {owner} have gaps: {versions}"
        lost_ranks = {rank for rank, name in enumerate(evidence.pushing_workers) if name in evidence.lost_nodes}
        different = set(pushes) ^ set(pushes_by_owner[owners[0]])
        if difference := {(rank, step) for rank, step in different if rank not in lost_ranks}:
            yield f"{owner} and {owners[0]} have different pushes (rank, step): {sorted(difference)}"


def _find_wrong_pushes(owner: str, pushes: Counter[tuple[int, int]], evidence: TrialEvidence) -> Iterator[str]:
    """Yield each push of a server that is repeated, missing or not of its worker."""
    for (rank, step), count in sorted(pushes.items()):
        name = evidence.pushing_workers[rank]
        if count > 1:
            yield f"{owner} applied or dropped the push of {name} for step {step} {count} times"
        if name not in evidence.lost_nodes and step not in _steps_of_worker(evidence, name):
            yield f"{owner} has a push of {name} for step {step}, which this worker did not compute"
    for rank in sorted({rank for rank, _ in pushes}):
        yield from _find_gaps(owner, rank, sorted(step for pusher, step in pushes if pusher == rank), evidence)


def _count_pushes(evidence: TrialEvidence, owner: str) -> Counter[tuple[int, int]]:
    """Return how often a server has applied or dropped each push, by rank and step."""
    rows: list[dict[str, Any]] = [row for key in ("shard_updates", "shard_drops") for row in evidence.rows(owner, key)]
    return Counter((row["worker"], row["push_step"]) for row in rows)


def _steps_of_worker(evidence: TrialEvidence, worker_name: str) -> set[int]:
    return {row["step"] for row in evidence.rows(worker_name, "node_steps")}


def _find_gaps(owner: str, rank: int, push_steps: list[int], evidence: TrialEvidence) -> Iterator[str]:
    """Yield the steps for which the push of a worker is missing, between its first and its last push.

    At a strategy switch, a straggler may skip the last steps that other workers have computed. It pushes nothing for
    these steps, so they are not missing.
    """
    name = evidence.pushing_workers[rank]
    periods = {phase.describe_worker_exchange().exchange_period for phase in evidence.plan.strategy.training_phases()}
    missing = set(range(push_steps[0], push_steps[-1] + 1)) - set(push_steps)
    if evidence.plan.strategy.training_phases().switch and name not in evidence.lost_nodes:
        missing &= _steps_of_worker(evidence, name)
    if periods == {1} and missing:
        yield f"{owner} lacks pushes of {name} for steps {sorted(missing)}"
