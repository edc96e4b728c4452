"""Did steps take what links and devices say, or is it this host that they show?"""

from analysis.checks.evidence import in_virtual_time
from analysis.checks.verdict import Level, Verdict, degraded, valid
from analysis.reading.run_table import TrialTable
from analysis.reading.training_phases import Phase, phases


def host_share(trial: TrialTable) -> Verdict:
    """Degraded when the median step is longer than the closed form by more than the threshold.

    What is over is the time that this host's cores need for messages, which a dilation does not slow down with the
    cluster: a larger one makes it small. Shorter steps are fine, some forms are upper bounds. Where the closed form
    does not know how long a step should be, nothing is judged.
    """
    if reason := _unknown(trial):
        return valid(f"no closed form to compare with: {reason}")
    judged = [phase for phase in phases(trial) if phase.synchrony == "synchronous"]
    if not judged:
        return valid("no closed form to compare with: workers do not wait for each other")
    return max((_judge(trial, phase) for phase in judged), key=lambda verdict: list(Level).index(verdict.level))


def _judge(trial: TrialTable, phase: Phase) -> Verdict:
    measured, predicted = float(phase.steps["step_s"].astype(float).median()), phase.predicted.step_s
    if phase.steps.empty or predicted is None:
        return valid("no closed form to compare with: no step was predicted or measured")
    over, limit = measured / predicted - 1, trial.plan.fidelity.host_share
    when = f" {phase.name} the switch" if phase.name else ""
    found = f"steps{when} take {measured * 1e3:.3g} ms where links and devices take {predicted * 1e3:.3g} ms"
    if over <= limit:
        return valid(f"{found} ({over:+.0%})")
    return degraded(f"{found}: {over:.0%} more, this host's own (limit {limit:.0%}); a larger dilation makes it less")


def _unknown(trial: TrialTable) -> str:
    plan = trial.plan
    workers = [node for node in plan.nodes if node.role == "worker"]
    reasons = {
        "virtual time has no host": in_virtual_time(trial),
        "a worker is not paced": any(node.throughput is None for node in workers),
        "speeds vary": any(node.variation for node in workers),
        "events change links or devices": bool(plan.events),
        "packets are lost or late": any(path.losses or path.jitters for path in plan.network.paths),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")
