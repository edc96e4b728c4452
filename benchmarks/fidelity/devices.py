"""The rows about devices: is a node that is slow by its CPU quota as slow as declared?"""

import time
from collections import defaultdict

import numpy as np

from benchmarks.fidelity.idle_trial import BEGIN_S, Lab, plan_of, trial_of
from benchmarks.fidelity.row import Gate, Line
from compose.engines.containers.engine import DockerEngine

SHARES = (0.5, 0.25)
STEP_CPU_S, BURN_S = 0.005, 2.0


def quotas(engine: DockerEngine, rounds: int) -> list[Line]:
    """Steps of equal work on a share of a core: their mean and their 95th percentile, relative to what is wanted."""
    groups = [{"name": f"{share:g}", "ranks": [rank], "cpus": share} for rank, share in enumerate(SHARES)]
    means: defaultdict[float, list[float]] = defaultdict(list)
    slowest: defaultdict[float, list[float]] = defaultdict(list)
    with Lab(plan_of(trial_of({"workers": len(SHARES), "groups": groups}), engine), engine) as lab:
        for _ in range(rounds):
            for rank, share in enumerate(SHARES):
                asked = {"do": "burn", "until": time.monotonic() + BEGIN_S + BURN_S, "step_cpu_s": STEP_CPU_S}
                (answer,) = lab.programs([(f"worker-{rank}", asked)])
                relative = np.array(answer["steps_s"]) * share / answer["cpu_s_per_step"]
                means[share].append(float(relative.mean()))
                slowest[share].append(float(np.percentile(relative, 95)))
    return [
        line
        for share in SHARES
        for line in (
            _line(f"quota {share:g}, mean step", means[share], Gate(median_off=0.02)),
            _line(f"quota {share:g}, step at the 95th percentile", slowest[share], Gate(at_most=1.6)),
        )
    ]


def _line(what: str, found: list[float], gate: Gate) -> Line:
    return Line(what=what, unit="x wanted", declared=1.0, samples=tuple(found), gate=gate)
