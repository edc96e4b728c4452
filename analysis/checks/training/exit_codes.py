"""Check that all nodes of the trial exited with code 0."""

from analysis.checks.verdict import CheckVerdict, degraded_verdict, invalid_verdict, valid_verdict
from analysis.reading.run_table import TrialLogTables


def check_exit_codes(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `invalid` if a node exited with a code other than 0.

    The verdict is also `invalid` if the engine reports no success.
    """
    codes: dict[str, int] = trial.status.get("exit_codes") or {}
    failed = {node_name: code for node_name, code in codes.items() if code != 0}
    if failed:
        return invalid_verdict(", ".join(f"{node_name} exited with code {code}" for node_name, code in failed.items()))
    if trial.status.get("status") != "success":
        return invalid_verdict(str(trial.status.get("reason") or "the trial did not run to its end"))
    missing = [node.name for node in trial.plan.nodes if node.name not in codes]
    if missing:
        return degraded_verdict(f"no exit code was recorded for {', '.join(missing)}")
    return valid_verdict(f"all {len(codes)} nodes exited with code 0")
