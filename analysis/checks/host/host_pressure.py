"""Check that neither the host's kernel nor its hypervisor kept tasks waiting."""

from analysis.checks.engine_kind import ran_in_virtual_time
from analysis.checks.verdict import CheckVerdict, VerdictLevel, disturbed_verdict, valid_verdict
from analysis.reading.run_table import TrialLogTables

MAX_STOLEN_SHARE = 0.05  # of the CPU time, given to other virtual machines by the hypervisor
# Shares of the time in which at least one task waited for a resource. After every barrier the nodes of one host wait
# for a core; nodes whose compute time is set by the scenario have spare time for this. On a host with enough memory no
# task waits for memory or disks.
MAX_WAITING_SHARES = {"cpu": 0.9, "memory": 0.1, "io": 0.5}


def check_host_resource_pressure(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `degraded` if the host lost CPU time or kept tasks waiting for too long.

    CPU time is lost (stolen) if the hypervisor gives it to other machines. Tasks can wait for CPU, memory or disks.

    The verdict is never invalid, because a host that met every deadline emulated the declared cluster. Where the kernel
    does not count waiting tasks, the verdict is valid, and its reason states this.
    """
    if ran_in_virtual_time(trial):
        return valid_verdict("virtual time does not depend on the host")
    host = trial.status.get("host") or {}
    stolen, waiting = host.get("cpu_steal"), host.get("pressure") or {}
    if stolen is not None and stolen > MAX_STOLEN_SHARE:
        given = f"the hypervisor gave {stolen:.0%} of the host's CPU time to other machines"
        return disturbed_verdict(VerdictLevel.DEGRADED, f"{given} (limit {MAX_STOLEN_SHARE:.0%})")
    exceeded = {resource: share for resource, share in waiting.items() if share > MAX_WAITING_SHARES.get(resource, 1.0)}
    if exceeded:
        worst = max(exceeded, key=lambda resource: exceeded[resource] / MAX_WAITING_SHARES[resource])
        limit = MAX_WAITING_SHARES[worst]
        waited = f"tasks waited for {worst} {exceeded[worst]:.0%} of the time (limit {limit:.0%})"
        return disturbed_verdict(VerdictLevel.DEGRADED, waited)
    shares = ", ".join(f"{resource} {share:.0%}" for resource, share in waiting.items())
    stolen_text = "not counted" if stolen is None else f"{stolen:.1%}"
    waited_text = shares or "not counted by this kernel"
    return valid_verdict(f"share of the time in which tasks waited: {waited_text}; stolen CPU time: {stolen_text}")
