"""Check that workers whose speed is set by a CPU quota were as slow as declared."""

from analysis.checks.engine_kind import ran_in_containers
from analysis.checks.verdict import CheckVerdict, VerdictLevel, degraded_verdict, disturbed_verdict, valid_verdict
from analysis.reading.run_table import TrialLogTables

SPEED_TOLERANCE = 0.10


def check_worker_speed_fits_quota(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `invalid` if a worker's speed does not fit its declared share of a core.

    A measured speed fits if it is off by at most 10 %.

    Checked are workers in containers that have less than one core and no paced speed. Each of them measures the time of
    a fixed computation before training. The verdict is degraded if a worker recorded no time.
    """
    declared = {node.name: node.cpus for node in trial.plan.nodes if node.is_slowed_by_cpu_quota}
    if not ran_in_containers(trial) or not declared:
        return valid_verdict("no worker's speed is set by a CPU quota")
    ratios = trial.nodes.set_index("node").get("speed_ratio")
    measured = {name: ratios.get(name) for name in declared} if ratios is not None else {}
    errors = {name: float(ratio) / declared[name] - 1 for name, ratio in measured.items() if ratio is not None}
    if unknown := [name for name in declared if name not in errors]:
        return degraded_verdict(f"the achieved share of a core was not measured for {', '.join(unknown)}")
    worst = max(errors, key=lambda name: abs(errors[name]))
    difference = f"the speed of {worst} was {errors[worst]:+.1%} off its declared share of a core"
    if abs(errors[worst]) > SPEED_TOLERANCE:
        return disturbed_verdict(VerdictLevel.INVALID, f"{difference} (limit {SPEED_TOLERANCE:.0%})")
    return valid_verdict(difference)
