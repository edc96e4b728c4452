"""Did steps take what links and devices say, or is it this host that they show?"""

from analysis.checks.evidence import in_virtual_time
from analysis.checks.verdict import Verdict, degraded, valid
from analysis.metrics.step_seconds import step_seconds
from analysis.table import TrialTable


def host_share(trial: TrialTable) -> Verdict:
    """Degraded when the median step is longer than the closed form by more than the threshold.

    What is over is the time that this host's cores need for messages, which a dilation does not slow down with the
    cluster: a larger one makes it small. Shorter steps are fine, some forms are upper bounds. Where the closed form
    does not know how long a step should be, nothing is judged.
    """
    if reason := _unknown(trial):
        return valid(f"no closed form to compare with: {reason}")
    measured, predicted = step_seconds(trial), trial.plan.predicted.step_s
    if measured is None or predicted is None:
        return valid("no closed form to compare with: no step was predicted or measured")
    over, limit = measured["p50"] / predicted - 1, trial.plan.fidelity.host_share
    found = f"steps take {measured['p50'] * 1e3:.3g} ms where links and devices take {predicted * 1e3:.3g} ms"
    if over <= limit:
        return valid(f"{found} ({over:+.0%})")
    return degraded(f"{found}: {over:.0%} more, this host's own (limit {limit:.0%}); a larger dilation makes it less")


def _unknown(trial: TrialTable) -> str:
    plan = trial.plan
    workers = [node for node in plan.nodes if node.role == "worker"]
    reasons = {
        "virtual time has no host": in_virtual_time(trial),
        "workers do not wait for each other": plan.synchrony == "asynchronous",
        "a worker is not paced": any(node.throughput is None for node in workers),
        "speeds vary": any(node.variation for node in workers),
        "events change links or devices": bool(plan.events),
        "packets are lost or late": any(path.losses or path.jitters for path in plan.network.paths),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")
