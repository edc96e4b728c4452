"""Properties of the engine that ran a trial.

They state whether the trial ran in containers or not, in virtual time or not, and with links shaped by a kernel or not.
"""

from analysis.checks.network.rates import IN_CODE_MECHANISMS
from analysis.reading.run_table import TrialLogTables


def ran_in_containers(trial: TrialLogTables) -> bool:
    """Return whether the nodes ran in containers, with CPU quotas and a kernel that shapes links.

    The name of the engine is used and not the recorded measurements, because measurements of containers may be missing.
    """
    return trial.status.get("engine") == "docker"


def ran_in_virtual_time(trial: TrialLogTables) -> bool:
    """Return whether the trial ran in virtual time, which does not depend on the load of the host."""
    return trial.status.get("engine") == "simulated"


def are_links_shaped_by_kernel(trial: TrialLogTables) -> bool:
    """Return whether a kernel shaped the links.

    Only then can links be probed and dropped packets be counted.
    """
    mechanisms = {link_shaping.get("rung") for link_shaping in (trial.status.get("shaping") or {}).values()}
    return not mechanisms <= set(IN_CODE_MECHANISMS) if mechanisms else ran_in_containers(trial)
