"""Fidelity rows about scenarios: step times of the engines against each other and against the closed form."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.fidelity.idle_trial import make_trial
from benchmarks.fidelity.row import FidelityGate, FidelityMeasurement
from benchmarks.fidelity.training import median_step_s, slowest_worker_step_s
from benchmarks.fidelity.trial_cases import (
    MeasuredCase,
    TrialCase,
    TrialRow,
    auto_dilated_cases,
    measurement_of_trials,
    paired_values,
)
from compose.engines.containers.engine import DockerEngine
from compose.engines.local import LocalEngine
from compose.scenario_files.load import find_scenario, load_scenario
from services.plan import Plan

CLOSED_FORM = "closed form"
MAX_RATIO_ERROR = 0.10  # largest relative difference between two engines, or between an engine and the closed form
# Shipped scenarios with one or two epochs of four and without the middle values of their sweeps: every trial runs three
# times on each engine.
SCENARIO_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "racks": {"workload.epochs": 2, "sweep": {"cluster.network.uplink": ["400mbit", "100mbit"]}},
    "incast": {"workload.epochs": 2, "sweep": {"workers": [2, 8]}},
    "wan": {"workload.epochs": 1, "sweep": {"cluster.network.between.0.delay": ["1ms", "40ms"]}},
}
# 1.1 million parameters at 25 Gbit/s: 2.6 ms of transfer beside 5 ms of compute. The messages are so large that the
# host's cost per message is a small part.
FAST_WORKLOAD = {
    "dataset": {"kind": "synthetic_regression", "samples": 3840, "features": 64, "outputs": 10},
    "model": {"kind": "mlp", "hidden": [1024, 1024]},
    "optimiser": {"kind": "sgd", "rate": 0.01},
    "batch_per_worker": 16,
    "epochs": 1,
}
FAST_CLUSTER = {"workers": 8, "worker": {"link": "25gbe", "throughput": "3200/s"}}


def make_engine_comparison(scenario_name: str) -> TrialRow[float]:
    """Return the row that compares the engines `docker` and `local` on the trials of a shipped scenario."""
    return TrialRow(partial(_make_engine_cases, scenario_name), partial(_compare_engines, scenario_name))


def _make_engine_cases(scenario_name: str, docker_engine: DockerEngine) -> list[TrialCase[float]]:
    scenario = load_scenario(find_scenario(scenario_name), SCENARIO_SETTINGS[scenario_name])
    engines = (docker_engine, LocalEngine())
    cases_of_engines = [auto_dilated_cases(scenario, engine, _step_over_closed_form) for engine in engines]
    return [case for cases_of_trial in zip(*cases_of_engines, strict=True) for case in cases_of_trial]


def _step_over_closed_form(folder: Path, plan: Plan) -> float:
    return slowest_worker_step_s(folder, plan) / plan.predicted.step_s


def _compare_engines(scenario_name: str, measured: Sequence[MeasuredCase[float]]) -> Iterator[FidelityMeasurement]:
    """Yield the step times of both engines relative to the closed form and to each other, over all trials."""
    on_docker, on_local = measured[::2], measured[1::2]
    docker_label, local_label = (
        f"{cases[0].plan.engine} at dilation {cases[0].plan.dilation:g}" for cases in (on_docker, on_local)
    )
    docker_over_local = [
        docker_ratio * docker_case.plan.predicted.step_s / (local_ratio * local_case.plan.predicted.step_s)
        for docker_case, local_case in zip(on_docker, on_local, strict=True)
        for docker_ratio, local_ratio in paired_values(docker_case, local_case)
    ]
    for label, ratios, cases in (
        (f"{docker_label} over {CLOSED_FORM}", _all_values(on_docker), on_docker),
        (f"{local_label} over {CLOSED_FORM}", _all_values(on_local), on_local),
        (f"{docker_label} over {local_label}", docker_over_local, measured),
    ):
        what = f"{scenario_name}, median step of the slowest worker, {len(on_docker)} trials: {label}"
        yield measurement_of_trials(what, "", 1.0, ratios, FidelityGate(each_off=MAX_RATIO_ERROR), cases)


def _all_values(measured: Sequence[MeasuredCase[float]]) -> list[float]:
    return [value for case in measured for value in case.values]


def _make_fast_ring_cases(engine: DockerEngine) -> list[TrialCase[float]]:
    scenario = make_trial(FAST_CLUSTER, workload=FAST_WORKLOAD).scenario
    return auto_dilated_cases(
        scenario, engine, lambda folder, plan: median_step_s(folder, plan) / plan.predicted.step_s
    )


def _summarise_fast_ring(measured: Sequence[MeasuredCase[float]]) -> Iterator[FidelityMeasurement]:
    (ring,) = measured
    what = f"ring of 8 at 25 Gbit/s, dilation {ring.plan.dilation:g}: step over {CLOSED_FORM}"
    yield measurement_of_trials(what, "", 1.0, ring.values, FidelityGate(median_off=MAX_RATIO_ERROR), measured)


# Ring of eight workers with links of 25 Gbit/s, for which every host needs a large dilation.
FAST_RING = TrialRow(_make_fast_ring_cases, _summarise_fast_ring)
