"""Fidelity rows about whole runs: lateness of events, the effect of dilation on results, and the time to start."""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import quantiles
from typing import Any

from benchmarks.fidelity.idle_trial import IdleTrial, make_trial, make_trial_plan
from benchmarks.fidelity.row import FidelityGate, FidelityMeasurement
from benchmarks.fidelity.training import SilentObserver, median_step_s, read_applied_events, read_steps, run_trial
from compose.engines.containers.engine import DockerEngine
from compose.runs.run import check_host_capacity
from services.schema.errors import HostError

WORKER_COUNT, MAX_START_S = 16, 30.0
SLOW_LINK = {"uplink": "100mbit", "downlink": "100mbit"}
FAST_LINK = {"uplink": "1gbit", "downlink": "1gbit"}
SMALL_MODEL_WORKLOAD = {
    "dataset": {"kind": "synthetic_regression", "samples": 3840, "features": 64, "outputs": 10},
    "model": {"kind": "mlp", "hidden": [128, 128]},  # 26 thousand parameters
    "optimiser": {"kind": "sgd", "rate": 0.01},
    "batch_per_worker": 16,
    "epochs": 1,
}
PACED_DEVICE = {"throughput": "800/s"}  # 60 steps of 20 ms
LINK_CHANGES = 10
RING_STRATEGY = {"ring": {"kind": "all_reduce"}}
ASP_STRATEGY = {"ps_asp": {"kind": "parameter_server", "synchrony": {"kind": "asp"}}}
# The time that this host adds to a message does not grow with the dilation. Steps dominated by links and
# devices (340 KB at 100 Mbit/s) show whether anything else depends on the dilation.
LARGER_MODEL_WORKLOAD = SMALL_MODEL_WORKLOAD | {"model": {"kind": "mlp", "hidden": [256, 256]}}
DILATIONS, SMALL_DILATIONS = (4, 8), (1, 2)
RATIO_GATE = FidelityGate(median_off=0.03)
STAR_CLUSTER: dict[str, Any] = {"workers": WORKER_COUNT, "worker": SLOW_LINK}
RACK_CLUSTER = STAR_CLUSTER | {
    "worker": SLOW_LINK | {"delay": "2ms"},
    "network": {"kind": "racks", "size": 4, "uplink": "200mbit"},
}


def measure_start(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:
    """Measure the time from the command until all nodes run behind verified links. Images are built before."""
    return [
        _measure_start_time(f"{WORKER_COUNT} nodes from command to verified network", STAR_CLUSTER, engine, rounds),
        _measure_start_time(
            f"{WORKER_COUNT} nodes in racks with delays, from command to verified network", RACK_CLUSTER, engine, rounds
        ),
    ]


def _measure_start_time(
    description: str, cluster: Mapping[str, Any], configured_engine: DockerEngine, rounds: int
) -> FidelityMeasurement:
    start_times_s = []
    for _ in range(rounds):
        started = time.monotonic()
        engine = type(configured_engine)()  # a new engine also has to find its image and to check the kernel
        trial = make_trial(cluster)
        check = check_host_capacity(trial.scenario, engine)
        engine.prepare(SilentObserver())
        with IdleTrial(
            make_trial_plan(trial, engine, check.dilation, check.calibrated_alpha_s), engine, runs_link_probes=True
        ):
            start_times_s.append(time.monotonic() - started)
    gate = FidelityGate(at_most=MAX_START_S)
    return FidelityMeasurement(what=description, unit="s", declared=0.0, samples=tuple(start_times_s), gate=gate)


def measure_event_lateness(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:
    """Measure how late changes of links take effect, in wall time."""
    changes = [_link_change(number) for number in range(LINK_CHANGES)]
    trial = make_trial(
        {"workers": 4, "worker": PACED_DEVICE | SLOW_LINK}, workload=SMALL_MODEL_WORKLOAD, events=changes
    )
    lateness_ms = []
    for _ in range(rounds):
        plan = make_trial_plan(trial, engine)
        with run_trial(engine, plan) as folder:
            late_s = [abs(event["lateness_s"]) * plan.dilation for event in read_applied_events(folder)]
        if len(late_s) < 2 * LINK_CHANGES:  # the start and the end of each change
            raise HostError(f"only {len(late_s)} of {2 * LINK_CHANGES} link changes were applied")
        lateness_ms.append(1e3 * quantiles(late_s, n=100, method="inclusive")[-1])
    what, gate = "lateness of events at the 99th percentile", FidelityGate(at_most=50.0)
    return [FidelityMeasurement(what=what, unit="ms", declared=0.0, samples=tuple(lateness_ms), gate=gate)]


def _link_change(number: int) -> dict[str, Any]:
    nodes = [f"worker-{number % 4}"]
    return {"kind": "link", "at": {"time": f"{200 + 100 * number}ms"}, "lasts": "50ms", "of": nodes, "uplink": "50mbit"}


def measure_dilation(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:
    """Measure the ratio of virtual step times at a dilation and at half of it, for large and small messages."""
    large_ratios, small_ratios = [], []
    for _ in range(rounds):
        single_s, double_s = (_run_dilated(engine, RING_STRATEGY, dilation)[0] for dilation in DILATIONS)
        large_ratios.append(double_s / single_s)
        single_s, double_s = (
            _run_dilated(engine, RING_STRATEGY, dilation, SMALL_MODEL_WORKLOAD)[0] for dilation in SMALL_DILATIONS
        )
        small_ratios.append(double_s / single_s)
    return [
        _ratio_measurement(f"ring: step at dilation {DILATIONS[1]} over {DILATIONS[0]}", large_ratios),
        _ratio_measurement(
            f"ring of small messages, dominated by the host's cost per message: step at dilation {SMALL_DILATIONS[1]} "
            f"over {SMALL_DILATIONS[0]}",
            small_ratios,
            FidelityGate(),
        ),
    ]


def measure_staleness(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:
    """Measure step times and the distribution of staleness at two dilations, for an asynchronous strategy."""
    step_ratios, differences = [], []
    counts_by_dilation: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for _ in range(rounds):
        (single_s, single), (double_s, double) = (_run_dilated(engine, ASP_STRATEGY, factor) for factor in DILATIONS)
        step_ratios.append(double_s / single_s)
        differences.append(100 * _total_variation(single, double))
        for dilation, counts in zip(DILATIONS, (single, double), strict=True):
            counts_by_dilation[dilation] += counts
    pooled_difference = 100 * _total_variation(*(counts_by_dilation[dilation] for dilation in DILATIONS))
    updates = counts_by_dilation[DILATIONS[0]].total()
    what = f"ps_asp: updates with a different staleness at dilation {DILATIONS[1]} than at {DILATIONS[0]}"
    return [
        _ratio_measurement(f"ps_asp: step at dilation {DILATIONS[1]} over {DILATIONS[0]}", step_ratios),
        FidelityMeasurement(
            what=f"{what}, of {updates} in all",
            unit="%",
            declared=0.0,
            samples=(pooled_difference,),
            gate=FidelityGate(at_most=3.0),
        ),
        FidelityMeasurement(
            what=f"{what}, of {updates // rounds} per round, some of them by chance alone",
            unit="%",
            declared=0.0,
            samples=tuple(differences),
            gate=FidelityGate(),
        ),
    ]


def _ratio_measurement(description: str, ratios: list[float], gate: FidelityGate = RATIO_GATE) -> FidelityMeasurement:
    return FidelityMeasurement(what=description, unit="ratio", declared=1.0, samples=tuple(ratios), gate=gate)


def _run_dilated(
    engine: DockerEngine,
    strategies: Mapping[str, Any],
    dilation: int,
    workload: Mapping[str, Any] = LARGER_MODEL_WORKLOAD,
) -> tuple[float, Counter[int]]:
    """Run a trial at a dilation. Return its median virtual step time and the number of updates by staleness."""
    cluster = {"workers": 4, "worker": PACED_DEVICE | SLOW_LINK, "server": FAST_LINK}
    plan = make_trial_plan(make_trial(cluster, workload=workload, strategies=strategies, dilation=dilation), engine)
    with run_trial(engine, plan) as folder:
        staleness = (row["staleness"] for row in read_steps(folder, plan))
        return median_step_s(folder, plan), Counter(value for value in staleness if value is not None)


def _total_variation(first_counts: Counter[int], second_counts: Counter[int]) -> float:
    """Return the total variation distance of two distributions of staleness, from 0 to 1.

    This is the share of updates whose staleness would have to change for both distributions to be equal.
    """
    first_total, second_total = first_counts.total(), second_counts.total()
    values = first_counts | second_counts
    return sum(abs(first_counts[value] / first_total - second_counts[value] / second_total) for value in values) / 2
