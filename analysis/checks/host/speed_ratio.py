"""Were devices that are slow by their CPU quota as slow as declared?"""

from analysis.checks.evidence import in_containers
from analysis.checks.verdict import Verdict, degraded, invalid, valid
from analysis.reading.run_table import TrialTable

TOLERANCE = 0.10


def speed_ratio(trial: TrialTable) -> Verdict:
    """Invalid when the fixed kernel that a node times before training is more than 10 % off its share of a core.

    Looks at workers in containers without a paced speed and with less than a core; degraded when one timed nothing.
    """
    slow = {node.name: node.cpus for node in trial.plan.nodes if node.is_quota_device}
    if not in_containers(trial) or not slow:
        return valid("no device is slow by its CPU quota")
    told = trial.nodes.set_index("node").get("speed_ratio")
    found = {name: told.get(name) for name in slow} if told is not None else {}
    errors = {name: float(ratio) / slow[name] - 1 for name, ratio in found.items() if ratio is not None}
    if unknown := [name for name in slow if name not in errors]:
        return degraded(f"{', '.join(unknown)}: the achieved share of a core was not measured")
    worst = max(errors, key=lambda name: abs(errors[name]))
    told_worst = f"{worst} computed at {errors[worst]:+.1%} of its declared share of a core"
    return invalid(f"{told_worst} (limit {TOLERANCE:.0%})") if abs(errors[worst]) > TOLERANCE else valid(told_worst)
