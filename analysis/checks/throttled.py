"""Were nodes held back that nobody declared slow?"""

from analysis.checks.evidence import in_containers
from analysis.checks.verdict import Verdict, degraded, valid
from analysis.table import TrialTable

FEWEST_PERIODS = 100  # one throttled period of three says nothing about a run


def throttled(trial: TrialTable) -> Verdict:
    """Degraded when a node ran out of its CPU quota in more than the threshold's share of its scheduling periods.

    A worker without a paced speed whose share of a core is below one is meant to be held back and is not looked at;
    nor is the coordinator, which nobody who trains waits for, and which evaluates in bursts.
    Only degraded: a paced worker that was held back and still met its deadlines was as fast as declared.
    """
    if not in_containers(trial):
        return valid("no node runs under a quota")
    free = [node.name for node in trial.plan.nodes if node.role != "coordinator" and not node.is_quota_device]
    counted = trial.status.get("throttling") or {}
    if unknown := [name for name in free if name not in counted]:
        return degraded(f"{', '.join(unknown)}: whether the CPU quota held it back was not recorded")
    shares = {name: _share(counted[name]) for name in free}
    if not shares:
        return valid("no node runs under a quota that it should not feel")
    worst = max(shares, key=lambda name: shares[name])
    limit = trial.plan.fidelity.throttled
    found = f"{worst} was held back in {shares[worst]:.1%} of its scheduling periods"
    return degraded(f"{found} (limit {limit:.1%})") if shares[worst] > limit else valid(f"{found}, no other more")


def _share(counted: dict[str, float]) -> float:
    return counted["throttled_periods"] / max(counted["periods"], FEWEST_PERIODS)
