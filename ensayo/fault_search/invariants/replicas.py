"""Invariants of synchronous training: replicas are equal, and timing changes no bit of the result."""

from collections import defaultdict
from collections.abc import Iterator

from ensayo.fault_search.simulation import TrialEvidence, simulate_without_faults
from services.strategies import SinglePhaseStrategy


def find_unequal_replicas(evidence: TrialEvidence) -> Iterator[str]:
    """Yield each step after which workers have different parameters, under strategies with equal replicas."""
    if not all(phase.describe_worker_exchange().has_equal_replicas for phase in _phases(evidence)):
        return
    digests = defaultdict[int, dict[str, str]](dict)
    for name in evidence.worker_names:
        if name in evidence.lost_nodes:
            continue  # after a loss, steps are repeated, and sums are rounded in another order
        for event in evidence.events[name]["node_hash"]:
            digests[event["metadata"]["step"]][name] = event["value"]
    for step, by_worker in sorted(digests.items()):
        if len(set(by_worker.values())) > 1:
            short = {name: digest[:8] for name, digest in by_worker.items()}
            yield f"the parameters of the workers differ before step {step}: {short}"


def find_changed_result(evidence: TrialEvidence) -> Iterator[str]:
    """Yield a difference between the result of a synchronous trial and that of the trial without faults."""
    if not all(phase.describe_worker_exchange().is_synchronous for phase in _phases(evidence)):
        return
    if evidence.has_changed_workers and evidence.plan.recovery.on_failure != "restore":
        return  # sums over other workers are rounded in another order
    expected = simulate_without_faults(evidence.schedule)
    if evidence.final_params_sha256 != expected.final_params_sha256:
        yield (
            f"the final parameters {evidence.final_params_sha256[:8]} differ from {expected.final_params_sha256[:8]}, "
            "those of the trial without faults"
        )


def _phases(evidence: TrialEvidence) -> tuple[SinglePhaseStrategy, ...]:
    return tuple(evidence.plan.strategy.training_phases())
