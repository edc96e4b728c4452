"""Check that CPU quotas did not slow down nodes that were not declared slow."""

from analysis.checks.engine_kind import ran_in_containers
from analysis.checks.verdict import CheckVerdict, degraded_verdict, valid_verdict
from analysis.reading.run_table import TrialLogTables


def check_cpu_throttling(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `degraded` if a CPU quota throttled a node for too long.

    The share of the run in which the node was throttled is compared with a limit.

    The limit is a threshold of the trial. The share is of time, not of scheduling periods, because the kernel counts
    only periods in which a node ran, and in a run with time dilation a node is idle in most periods.

    Two kinds of nodes are not checked. A worker without a paced speed whose share of a core is below one is meant to be
    throttled. The coordinator evaluates in bursts, and no worker waits for it.
    The verdict is not invalid: a paced worker that was throttled and met its deadlines was as fast as declared.
    """
    if not ran_in_containers(trial):
        return valid_verdict("no node has a CPU quota")
    checked = [node.name for node in trial.plan.nodes if node.role != "coordinator" and not node.is_slowed_by_cpu_quota]
    counters = trial.status.get("throttling") or {}
    if unknown := [name for name in checked if name not in counters]:
        return degraded_verdict(f"throttling by the CPU quota was not recorded for {', '.join(unknown)}")
    if not checked:
        return valid_verdict("every CPU quota is meant to slow its node down")
    if not (run_s := (trial.status.get("timings_s") or {}).get("run")):
        return degraded_verdict("the duration of the run was not recorded, so the share of throttled time is unknown")
    shares = {name: counters[name]["throttled_s"] / run_s for name in checked}
    worst = max(shares, key=lambda name: shares[name])
    limit = trial.plan.fidelity.throttled
    measured = f"the CPU quota throttled {worst} for {shares[worst]:.1%} of the run"
    if shares[worst] > limit:
        return degraded_verdict(f"{measured} (limit {limit:.1%})")
    return valid_verdict(f"{measured}, the most of all nodes")
