"""Were nodes held back that nobody declared slow?"""

from analysis.checks.evidence import in_containers
from analysis.checks.verdict import Verdict, degraded, valid
from analysis.reading.run_table import TrialTable


def throttled(trial: TrialTable) -> Verdict:
    """Degraded when a CPU quota kept a node waiting for more than the threshold's share of the run.

    Time is what counts: the kernel numbers only those periods in which a node ran at all, and a paced node of a dilated
    run is idle in most.

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
    if not free:
        return valid("no node runs under a quota that it should not feel")
    if not (run_s := (trial.status.get("timings_s") or {}).get("run")):
        return degraded("how long the nodes ran was not recorded, so what the CPU quota cost them is not known")
    shares = {name: counted[name]["throttled_s"] / run_s for name in free}
    worst = max(shares, key=lambda name: shares[name])
    limit = trial.plan.fidelity.throttled
    found = f"{worst} was held back for {shares[worst]:.1%} of the run by its CPU quota"
    return degraded(f"{found} (limit {limit:.1%})") if shares[worst] > limit else valid(f"{found}, no other more")
