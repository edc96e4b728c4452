"""Fidelity rows about whole runs: lateness of events, the effect of dilation on results, and the time to start."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

from benchmarks.fidelity.idle_trial import IdleTrial, make_trial, make_trial_plan
from benchmarks.fidelity.row import FidelityGate, FidelityMeasurement
from benchmarks.fidelity.training import SilentObserver, median_step_s, read_applied_events, read_steps
from benchmarks.fidelity.trial_cases import (
    MeasuredCase,
    TrialCase,
    TrialRow,
    auto_dilated_cases,
    measurement_of_trials,
    paired_values,
)
from compose.engines.containers.engine import DockerEngine
from compose.host.capacity_check import CapacityCheck
from compose.runs.run import check_host_capacity
from services.plan import Plan
from services.scenario.scenario import AUTO, TrialSpec
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
DILATIONS, SMALL_DILATIONS = (4, 8), (1, 2)  # fixed: the rows compare them
RATIO_GATE = FidelityGate(median_off=0.03)
STAR_CLUSTER: dict[str, Any] = {"workers": WORKER_COUNT, "worker": SLOW_LINK}
RACK_CLUSTER = STAR_CLUSTER | {
    "worker": SLOW_LINK | {"delay": "2ms"},
    "network": {"kind": "racks", "size": 4, "uplink": "200mbit"},
}
START_CLUSTERS = {f"{WORKER_COUNT} nodes": STAR_CLUSTER, f"{WORKER_COUNT} nodes in racks with delays": RACK_CLUSTER}


class DilatedSteps(NamedTuple):
    """Median virtual step time of a trial, and the number of its updates by staleness."""

    step_s: float
    update_counts: Counter[int]


def measure_start(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:
    """Measure the time from the command until all nodes run behind verified links. Images are built before."""
    dilations = {label: _check_start_capacity(cluster, engine).dilation for label, cluster in START_CLUSTERS.items()}
    start_times_s: defaultdict[str, list[float]] = defaultdict(list)
    failures: defaultdict[str, list[str]] = defaultdict(list)
    for _ in range(rounds):
        for label, cluster in START_CLUSTERS.items():
            try:
                start_times_s[label].append(_measure_start_time_s(cluster, engine))
            except HostError as error:
                failures[label].append(f"failed: {error}")
    return [
        FidelityMeasurement(
            what=f"{label} from command to verified network, dilation {dilations[label]:g}",
            unit="s",
            declared=0.0,
            samples=tuple(start_times_s[label]),
            gate=FidelityGate(at_most=MAX_START_S),
            trials=rounds,
            failed_trials=len(failures[label]),
            defects=tuple(failures[label]),
        )
        for label in START_CLUSTERS
    ]


def _measure_start_time_s(cluster: Mapping[str, Any], configured_engine: DockerEngine) -> float:
    started = time.monotonic()
    engine = type(configured_engine)()  # a new engine also has to find its image and to check the kernel
    check = _check_start_capacity(cluster, engine)
    engine.prepare(SilentObserver())
    plan = make_trial_plan(_make_start_trial(cluster), engine, check.dilation, check.calibrated_alpha_s)
    with IdleTrial(plan, engine, runs_link_probes=True):
        return time.monotonic() - started


def _check_start_capacity(cluster: Mapping[str, Any], engine: DockerEngine) -> CapacityCheck:
    return check_host_capacity(_make_start_trial(cluster).scenario, engine)


def _make_start_trial(cluster: Mapping[str, Any]) -> TrialSpec:
    return make_trial(cluster, dilation=AUTO)


def _make_event_cases(engine: DockerEngine) -> list[TrialCase[float]]:
    changes = [_link_change(number) for number in range(LINK_CHANGES)]
    cluster = {"workers": 4, "worker": PACED_DEVICE | SLOW_LINK}
    trial = make_trial(cluster, workload=SMALL_MODEL_WORKLOAD, events=changes)
    return auto_dilated_cases(trial.scenario, engine, _read_late_ms)


def _read_late_ms(folder: Path, plan: Plan) -> float:
    """Return the 99th percentile of the lateness of events, in milliseconds of wall time."""
    late_s = [abs(event["lateness_s"]) * plan.dilation for event in read_applied_events(folder)]
    if len(late_s) < 2 * LINK_CHANGES:  # the start and the end of each change
        raise HostError(f"only {len(late_s)} of {2 * LINK_CHANGES} link changes were applied")
    return 1e3 * float(quantiles(late_s, n=100, method="inclusive")[-1])


def _link_change(number: int) -> dict[str, Any]:
    nodes = [f"worker-{number % 4}"]
    return {"kind": "link", "at": {"time": f"{200 + 100 * number}ms"}, "lasts": "50ms", "of": nodes, "uplink": "50mbit"}


def _summarise_events(measured: Sequence[MeasuredCase[float]]) -> Iterator[FidelityMeasurement]:
    (events,) = measured
    what = f"lateness of events at the 99th percentile, dilation {events.plan.dilation:g}"
    yield measurement_of_trials(what, "ms", 0.0, events.values, FidelityGate(at_most=50.0), measured)


def _make_ring_cases(engine: DockerEngine) -> list[TrialCase[DilatedSteps]]:
    return [
        *(_make_dilated_case(engine, RING_STRATEGY, dilation, LARGER_MODEL_WORKLOAD) for dilation in DILATIONS),
        *(_make_dilated_case(engine, RING_STRATEGY, dilation, SMALL_MODEL_WORKLOAD) for dilation in SMALL_DILATIONS),
    ]


def _make_asp_cases(engine: DockerEngine) -> list[TrialCase[DilatedSteps]]:
    return [_make_dilated_case(engine, ASP_STRATEGY, dilation, LARGER_MODEL_WORKLOAD) for dilation in DILATIONS]


def _make_dilated_case(
    engine: DockerEngine, strategies: Mapping[str, Any], dilation: int, workload: Mapping[str, Any]
) -> TrialCase[DilatedSteps]:
    cluster = {"workers": 4, "worker": PACED_DEVICE | SLOW_LINK, "server": FAST_LINK}
    trial = make_trial(cluster, workload=workload, strategies=strategies, dilation=dilation)
    return TrialCase(trial.id, trial, engine, _read_dilated_steps)


def _read_dilated_steps(folder: Path, plan: Plan) -> DilatedSteps:
    staleness = (row["staleness"] for row in read_steps(folder, plan))
    return DilatedSteps(median_step_s(folder, plan), Counter(value for value in staleness if value is not None))


def _summarise_ring(measured: Sequence[MeasuredCase[DilatedSteps]]) -> Iterator[FidelityMeasurement]:
    """Yield the ratios of virtual step times at a dilation and at half of it, for large and small messages."""
    yield _compare_steps("ring", measured[:2], RATIO_GATE)
    yield _compare_steps(
        "ring of small messages, dominated by the host's cost per message", measured[2:], FidelityGate()
    )


def _compare_steps(
    description: str, measured: Sequence[MeasuredCase[DilatedSteps]], gate: FidelityGate
) -> FidelityMeasurement:
    single, double = measured
    what = f"{description}: step at dilation {double.plan.dilation:g} over {single.plan.dilation:g}"
    ratios = [at_double.step_s / at_single.step_s for at_single, at_double in paired_values(single, double)]
    return measurement_of_trials(what, "", 1.0, ratios, gate, measured)


def _summarise_asp(measured: Sequence[MeasuredCase[DilatedSteps]]) -> Iterator[FidelityMeasurement]:
    """Yield step times and differences of the distributions of staleness at two dilations."""
    yield _compare_steps("ps_asp", measured, RATIO_GATE)
    pairs = [(single.update_counts, double.update_counts) for single, double in paired_values(*measured)]
    pooled_counts = sum((single for single, _ in pairs), Counter()), sum((double for _, double in pairs), Counter())
    pooled = [pooled_counts] if pairs else []  # nothing if all trials failed
    what = f"ps_asp: updates with a different staleness at dilation {DILATIONS[1]} than at {DILATIONS[0]}"
    for description, compared, gate in (
        (f"of {pooled_counts[0].total()} in all", pooled, FidelityGate(at_most=3.0)),
        ("in each pair of trials, some of them by chance alone", pairs, FidelityGate()),
    ):
        percents = [100 * _total_variation(*counts) for counts in compared]
        yield measurement_of_trials(f"{what}, {description}", "%", 0.0, percents, gate, measured)


def _total_variation(first_counts: Counter[int], second_counts: Counter[int]) -> float:
    """Return the total variation distance of two distributions of staleness, from 0 to 1.

    This is the share of updates whose staleness would have to change for both distributions to be equal.
    """
    first_total, second_total = first_counts.total(), second_counts.total()
    values = first_counts | second_counts
    return sum(abs(first_counts[value] / first_total - second_counts[value] / second_total) for value in values) / 2


EVENTS = TrialRow(_make_event_cases, _summarise_events)  # changes of links, whose lateness counts in wall time
DILATION = TrialRow(_make_ring_cases, _summarise_ring)
STALENESS = TrialRow(_make_asp_cases, _summarise_asp)  # asynchronous workers
