"""Were links at the end what they should be, or did somebody change them behind our back?"""

from analysis.checks.verdict import UNDISTURBED, Verdict, degraded, invalid, valid
from analysis.reading.run_table import TrialTable


def unchanged(trial: TrialTable) -> Verdict:
    """Invalid when a kernel had something that nobody had told it; degraded when it could not be read again."""
    if trial.status.get("engine") != "docker":
        return valid("our own code shapes links, and nobody else can")
    shaping = trial.status.get("shaping") or {}
    changed = {name: shaped["changed_meanwhile"] for name, shaped in shaping.items() if shaped.get("changed_meanwhile")}
    if changed:
        return invalid("; ".join(f"{name}: {', '.join(what)}" for name, what in changed.items()), UNDISTURBED)
    if unread := [name for name, shaped in shaping.items() if shaped.get("unread")]:
        return degraded(f"{', '.join(unread)}: its link was not read again after the run")
    return valid("links were the same after the run")
