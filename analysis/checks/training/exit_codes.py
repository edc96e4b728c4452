"""Did every node end well?"""

from analysis.checks.verdict import Verdict, degraded, invalid, valid
from analysis.reading.run_table import TrialTable


def exit_codes(trial: TrialTable) -> Verdict:
    """Invalid when a node exited with anything but 0 or the engine says that the trial did not succeed."""
    codes: dict[str, int] = trial.status.get("exit_codes") or {}
    failed = {node: code for node, code in codes.items() if code != 0}
    if failed:
        return invalid(", ".join(f"{node} exited with {code}" for node, code in failed.items()))
    if trial.status.get("status") != "success":
        return invalid(str(trial.status.get("reason") or "the trial did not run to its end"))
    missing = [node.name for node in trial.plan.nodes if node.name not in codes]
    if missing:
        return degraded(f"{', '.join(missing)}: no exit code")
    return valid(f"all {len(codes)} nodes exited with 0")
