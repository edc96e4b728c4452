"""Fidelity row about CPU quotas: whether a node with a share of a core is as slow as declared."""

import time
from collections import defaultdict

import numpy as np

from benchmarks.fidelity.idle_trial import PROGRAM_START_S, IdleTrial, make_trial, make_trial_plan
from benchmarks.fidelity.row import FidelityGate, FidelityMeasurement
from compose.engines.containers.engine import DockerEngine

CPU_SHARES = (0.5, 0.25)
STEP_CPU_S, COMPUTE_TIME_S = 0.005, 2.0


def measure_cpu_quotas(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:
    """Measure steps of equal work on a share of a core: mean and 95th percentile over the expected step time."""
    groups = [{"name": f"{share:g}", "ranks": [rank], "cpus": share} for rank, share in enumerate(CPU_SHARES)]
    means: defaultdict[float, list[float]] = defaultdict(list)
    slowest: defaultdict[float, list[float]] = defaultdict(list)
    with IdleTrial(
        make_trial_plan(make_trial({"workers": len(CPU_SHARES), "groups": groups}), engine), engine
    ) as idle_trial:
        for _ in range(rounds):
            for rank, share in enumerate(CPU_SHARES):
                end_s = time.monotonic() + PROGRAM_START_S + COMPUTE_TIME_S
                request = {"program": "run_equal_steps", "end_s": end_s, "step_cpu_s": STEP_CPU_S}
                (result,) = idle_trial.run_programs([(f"worker-{rank}", request)])
                relative = np.array(result["steps_s"]) * share / result["cpu_s_per_step"]
                means[share].append(float(relative.mean()))
                slowest[share].append(float(np.percentile(relative, 95)))
    return [
        measurement
        for share in CPU_SHARES
        for measurement in (
            _step_measurement(f"quota {share:g}, mean step", means[share], FidelityGate(median_off=0.02)),
            _step_measurement(
                f"quota {share:g}, step at the 95th percentile", slowest[share], FidelityGate(at_most=1.6)
            ),
        )
    ]


def _step_measurement(description: str, relative_steps: list[float], gate: FidelityGate) -> FidelityMeasurement:
    return FidelityMeasurement(
        what=description, unit="times the requested step", declared=1.0, samples=tuple(relative_steps), gate=gate
    )
