"""The rows about whole runs: events on time, dilation that changes nothing, many nodes up soon."""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import quantiles
from typing import Any

from benchmarks.fidelity.idle_trial import Lab, plan_of, trial_of
from benchmarks.fidelity.row import Gate, Line
from benchmarks.fidelity.training import Nobody, applied, step_s, steps, trained
from compose.engines.containers.engine import DockerEngine
from compose.runs.run import decide_admission
from services.schema.errors import HostError

NODES, READY_S = 16, 30.0
LINK = {"uplink": "100mbit", "downlink": "100mbit"}
FAST = {"uplink": "1gbit", "downlink": "1gbit"}
WORKLOAD = {
    "dataset": {"kind": "synthetic_regression", "samples": 3840, "features": 64, "outputs": 10},
    "model": {"kind": "mlp", "hidden": [128, 128]},  # 26 thousand parameters
    "optimiser": {"kind": "sgd", "rate": 0.01},
    "batch_per_worker": 16,
    "epochs": 1,
}
PACED = {"throughput": "800/s"}  # 60 steps of 20 ms
CHANGES = 10
RING = {"ring": {"kind": "all_reduce"}}
ASP = {"ps_asp": {"kind": "parameter_server", "synchrony": {"kind": "asp"}}}
# What this host adds to a message does not grow with the dilation. Steps in which links and devices decide show
# whether anything else depends on it: 340 KB at 100 Mbit/s.
LARGER = WORKLOAD | {"model": {"kind": "mlp", "hidden": [256, 256]}}
DILATIONS, SMALL_DILATIONS = (4, 8), (1, 2)
PLAIN: dict[str, Any] = {"workers": NODES, "worker": LINK}
FAR = PLAIN | {"worker": LINK | {"delay": "2ms"}, "network": {"kind": "racks", "size": 4, "uplink": "200mbit"}}


def start(engine: DockerEngine, rounds: int) -> list[Line]:
    """From the command to nodes whose links are shaped and verified, images being built."""
    return [
        _start(f"{NODES} nodes from command to verified network", PLAIN, engine, rounds),
        _start(f"{NODES} nodes in racks with delays, from command to verified network", FAR, engine, rounds),
    ]


def _start(what: str, cluster: Mapping[str, Any], known: DockerEngine, rounds: int) -> Line:
    found = []
    for _ in range(rounds):
        began, engine = time.monotonic(), type(known)()  # a new one has yet to look for its image and try the kernel
        trial = trial_of(cluster)
        admission = decide_admission(trial.scenario, engine)
        engine.prepare(Nobody())
        with Lab(plan_of(trial, engine, admission.dilation, admission.alpha_s), engine, proves=True):
            found.append(time.monotonic() - began)
    return Line(what=what, unit="s", declared=0.0, samples=tuple(found), gate=Gate(at_most=READY_S))


def events(engine: DockerEngine, rounds: int) -> list[Line]:
    """How late changes of links take effect, in wall time."""
    changes = [_change(number) for number in range(CHANGES)]
    trial = trial_of({"workers": 4, "worker": PACED | LINK}, workload=WORKLOAD, events=changes)
    found = []
    for _ in range(rounds):
        plan = plan_of(trial, engine)
        with trained(engine, plan) as folder:
            late_s = [abs(event["lateness_s"]) * plan.dilation for event in applied(folder)]
        if len(late_s) < 2 * CHANGES:  # each begins and ends
            raise HostError(f"{len(late_s)} of {2 * CHANGES} changes were applied")
        found.append(1e3 * quantiles(late_s, n=100, method="inclusive")[-1])
    what = "lateness of events at the 99th percentile"
    return [Line(what=what, unit="ms", declared=0.0, samples=tuple(found), gate=Gate(at_most=50.0))]


def _change(number: int) -> dict[str, Any]:
    of = [f"worker-{number % 4}"]
    return {"kind": "link", "at": {"time": f"{200 + 100 * number}ms"}, "lasts": "50ms", "of": of, "uplink": "50mbit"}


def dilation(engine: DockerEngine, rounds: int) -> list[Line]:
    """Virtual step time at twice the dilation over that at the single one."""
    found, small = [], []
    for _ in range(rounds):
        single_s, double_s = (_dilated(engine, RING, factor)[0] for factor in DILATIONS)
        found.append(double_s / single_s)
        single_s, double_s = (_dilated(engine, RING, factor, WORKLOAD)[0] for factor in SMALL_DILATIONS)
        small.append(double_s / single_s)
    return [
        _ratio(f"ring: step at dilation {DILATIONS[1]} over {DILATIONS[0]}", found),
        _ratio(
            f"ring of small messages, whose own cost decides: step at dilation {SMALL_DILATIONS[1]} over "
            f"{SMALL_DILATIONS[0]}",
            small,
            Gate(),
        ),
    ]


def staleness(engine: DockerEngine, rounds: int) -> list[Line]:
    """The same of a strategy that never waits, whose staleness should be distributed alike too."""
    found, apart = [], []
    ages: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for _ in range(rounds):
        (single_s, single), (double_s, double) = (_dilated(engine, ASP, factor) for factor in DILATIONS)
        found.append(double_s / single_s)
        apart.append(100 * _apart(single, double))
        for factor, stale in zip(DILATIONS, (single, double), strict=True):
            ages[factor] += stale
    pooled = 100 * _apart(*(ages[factor] for factor in DILATIONS))
    updates = ages[DILATIONS[0]].total()
    what = f"ps_asp: updates of another staleness at dilation {DILATIONS[1]} than at {DILATIONS[0]}"
    each = f"{what}, of {updates // rounds} in a round, where chance alone makes some"
    return [
        _ratio(f"ps_asp: step at dilation {DILATIONS[1]} over {DILATIONS[0]}", found),
        Line(what=f"{what}, of {updates} in all", unit="%", declared=0.0, samples=(pooled,), gate=Gate(at_most=3.0)),
        Line(what=each, unit="%", declared=0.0, samples=tuple(apart), gate=Gate()),
    ]


def _ratio(what: str, found: list[float], gate: Gate = Gate(median_off=0.03)) -> Line:  # noqa: B008 - it is frozen
    return Line(what=what, unit="ratio", declared=1.0, samples=tuple(found), gate=gate)


def _dilated(
    engine: DockerEngine, strategies: Mapping[str, Any], factor: int, workload: Mapping[str, Any] = LARGER
) -> tuple[float, Counter[int]]:
    """Median virtual step and how many updates had each staleness."""
    cluster = {"workers": 4, "worker": PACED | LINK, "server": FAST}
    plan = plan_of(trial_of(cluster, workload=workload, strategies=strategies, dilation=factor), engine)
    with trained(engine, plan) as folder:
        ages = (row["staleness"] for row in steps(folder, plan))
        return step_s(folder, plan), Counter(age for age in ages if age is not None)


def _apart(one: Counter[int], other: Counter[int]) -> float:
    """Share of updates that would have to change their staleness for the two to be the same: total variation."""
    return sum(abs(one[age] / one.total() - other[age] / other.total()) for age in one | other) / 2
