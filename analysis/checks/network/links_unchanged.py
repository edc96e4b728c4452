"""Check that the kernel's settings of links were the same at the end of the run as at its start."""

from analysis.checks.verdict import CHANGED_LINKS_REMEDY, CheckVerdict, degraded_verdict, invalid_verdict, valid_verdict
from analysis.reading.run_table import TrialLogTables


def check_links_unchanged_in_run(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `invalid` if the kernel's settings of a link changed during the run.

    The verdict is degraded if the settings were not read again after the run, except for nodes that were lost.
    """
    if trial.status.get("engine") != "docker":
        return valid_verdict("Ensayo's own code shapes the links; other programs cannot change them")
    shaping = trial.status.get("shaping") or {}
    if changed := {name: parts for name, link in shaping.items() if (parts := link.get("changed_meanwhile"))}:
        links = (f"{name}: link changed during the run: {', '.join(parts)}" for name, parts in changed.items())
        reason = "; ".join(links)
        return invalid_verdict(reason, CHANGED_LINKS_REMEDY)
    lost = trial.membership.lost_node_names  # their links have ended with them
    if unread := [name for name, link in shaping.items() if link.get("unread") and name not in lost]:
        return degraded_verdict(f"links were not read again after the run: {', '.join(unread)}")
    return valid_verdict("the links were unchanged after the run")
