"""Check that all nodes of the trial exited with code 0."""

from analysis.checks.verdict import CheckVerdict, degraded_verdict, invalid_verdict, valid_verdict
from analysis.reading.fatal_losses import is_explained_by_declared_loss
from analysis.reading.run_table import TrialLogTables


def check_exit_codes(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `invalid` if a node exited with a code other than 0.

    The verdict is also `invalid` if the engine reports no success. Nodes without which the training went on do not
    count. If a declared event ended the trial, as its failure policy requires, the reason names this event instead of
    exit codes; the trial has no complete training, so the verdict stays `invalid`.
    """
    if is_explained_by_declared_loss(trial):
        return invalid_verdict(str(trial.status["reason"]))
    codes: dict[str, int] = trial.status.get("exit_codes") or {}
    lost = trial.membership.lost_node_names
    failed = {node_name: code for node_name, code in codes.items() if code != 0 and node_name not in lost}
    if failed:
        return invalid_verdict(", ".join(f"{node_name} exited with code {code}" for node_name, code in failed.items()))
    if trial.status.get("status") != "success":
        return invalid_verdict(str(trial.status.get("reason") or "the trial did not run to its end"))
    missing = [node.name for node in trial.plan.nodes if node.name not in codes]
    if missing:
        return degraded_verdict(f"no exit code was recorded for {', '.join(missing)}")
    if ended_by_loss := sorted(name for name in lost if codes[name] != 0):
        return valid_verdict(f"all nodes exited with code 0, except {', '.join(ended_by_loss)}, which were lost")
    return valid_verdict(f"all {len(codes)} nodes exited with code 0")
