"""Did the host's kernel or its hypervisor keep nodes from what they needed?"""

from analysis.checks.evidence import in_virtual_time
from analysis.checks.verdict import Verdict, degraded, valid
from analysis.reading.run_table import TrialTable

MOST_STOLEN = 0.05  # share of the cores that a hypervisor gave to others
# Shares of the time in which some task waited. Waiting for a core is what nodes of one host do after every barrier, and
# paced ones have time for it; memory and disks hold up nobody who was set up well.
MOST_STALLED = {"cpu": 0.9, "memory": 0.1, "io": 0.5}


def host_pressure(trial: TrialTable) -> Verdict:
    """Degraded when cores were stolen or tasks stalled for more than the limits above.

    Only degraded, as for a busy host. A kernel that does not count pressure is named, and no reason for doubt.
    """
    if in_virtual_time(trial):
        return valid("virtual time does not depend on the host")
    host = trial.status.get("host") or {}
    stolen, stalled = host.get("cpu_steal"), host.get("pressure") or {}
    if stolen is not None and stolen > MOST_STOLEN:
        return degraded(f"{stolen:.0%} of the host's cores were given to other machines (limit {MOST_STOLEN:.0%})")
    over = {what: share for what, share in stalled.items() if share > MOST_STALLED.get(what, 1.0)}
    if over:
        what = max(over, key=lambda each: over[each] / MOST_STALLED[each])
        return degraded(f"tasks waited for {what} {over[what]:.0%} of the time (limit {MOST_STALLED[what]:.0%})")
    told = ", ".join(f"{what} {share:.0%}" for what, share in stalled.items()) or "not counted by this kernel"
    lost = "not counted" if stolen is None else f"{stolen:.1%}"
    return valid(f"share of the time in which tasks waited: {told}; cores stolen: {lost}")
