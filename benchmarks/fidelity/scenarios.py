"""Fidelity rows about scenarios: step times of the engines against each other and against the closed form."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.fidelity.idle_trial import make_trial, make_trial_plan
from benchmarks.fidelity.row import FidelityGate, FidelityMeasurement
from benchmarks.fidelity.training import median_step_s, run_trial, slowest_worker_step_s
from compose.engines.base import TrialEngine
from compose.engines.containers.engine import DockerEngine
from compose.engines.local import LocalEngine
from compose.host.capacity_check import CapacityCheck
from compose.runs.run import check_host_capacity
from compose.scenario_files.load import find_scenario, load_scenario
from services.scenario.scenario import AUTO, Scenario
from services.schema.errors import UserError

CLOSED_FORM = "closed form"
MAX_RATIO_ERROR = 0.10  # largest relative difference between two engines, or between an engine and the closed form
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


class TrialStep(NamedTuple):
    """Measured and predicted step time of the slowest worker of a trial, in virtual seconds."""

    measured_s: float
    predicted_s: float


def compare_engines_racks(
    engine: DockerEngine,
    rounds: int,  # noqa: ARG001 - see `_compare_engines`
) -> list[FidelityMeasurement]:
    """Compare the engines on the scenario `racks`: racks with slow links between them."""
    return list(_compare_engines("racks", engine))


def compare_engines_incast(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:  # noqa: ARG001
    """Compare the engines on the scenario `incast`: many workers that push to one server or to four."""
    return list(_compare_engines("incast", engine))


def compare_engines_wan(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:  # noqa: ARG001
    """Compare the engines on the scenario `wan`: workers in two regions."""
    return list(_compare_engines("wan", engine))


def measure_fast_ring(engine: DockerEngine, rounds: int) -> list[FidelityMeasurement]:
    """Measure a ring of eight workers with links of 25 Gbit/s, which need the dilation that `auto` chooses."""
    trial = make_trial(FAST_CLUSTER, workload=FAST_WORKLOAD, dilation=AUTO)
    check = check_host_capacity(trial.scenario, engine)
    ratios = []
    for _ in range(rounds):
        plan = make_trial_plan(trial, engine, check.dilation, check.calibrated_alpha_s)
        with run_trial(engine, plan) as folder:
            ratios.append(median_step_s(folder, plan) / plan.predicted.step_s)
    what = f"ring of 8 at 25 Gbit/s, dilation auto ({check.dilation:g}): step over {CLOSED_FORM}"
    gate = FidelityGate(median_off=MAX_RATIO_ERROR)
    return [FidelityMeasurement(what=what, unit="ratio", declared=1.0, samples=tuple(ratios), gate=gate)]


def _compare_engines(scenario_name: str, engine: DockerEngine) -> Iterator[FidelityMeasurement]:
    """Run a shipped scenario on engines docker and local. Yield the ratios of their step times.

    Every trial runs once, whatever the number of rounds: a sample is the ratio of two medians over many steps.
    """
    scenario = load_scenario(find_scenario(scenario_name))
    steps = {each.name: _measure_trial_steps(scenario, each) for each in (engine, LocalEngine())}
    samples: defaultdict[str, list[float]] = defaultdict(list)
    for on_docker, on_local in zip(steps["docker"], steps["local"], strict=True):
        samples[f"docker over {CLOSED_FORM}"].append(on_docker.measured_s / on_docker.predicted_s)
        samples[f"local over {CLOSED_FORM}"].append(on_local.measured_s / on_local.predicted_s)
        samples["docker over local"].append(on_docker.measured_s / on_local.measured_s)
    gate = FidelityGate(each_off=MAX_RATIO_ERROR)
    for label, ratios in samples.items():
        what = f"{scenario_name}, median step of the slowest worker in each of {len(ratios)} trials: {label}"
        yield FidelityMeasurement(what=what, unit="ratio", declared=1.0, samples=tuple(ratios), gate=gate)


def _measure_trial_steps(scenario: Scenario, engine: TrialEngine) -> list[TrialStep]:
    """Run all trials of a scenario except baselines, which send nothing, and return their step times."""
    check, scenario = _check_scenario_capacity(scenario, engine)
    steps = []
    for trial in (trial for trial in scenario.trials() if not trial.baseline):
        plan = make_trial_plan(trial, engine, check.dilation, check.calibrated_alpha_s)
        with run_trial(engine, plan) as folder:
            steps.append(TrialStep(slowest_worker_step_s(folder, plan), plan.predicted.step_s))
    return steps


def _check_scenario_capacity(scenario: Scenario, engine: TrialEngine) -> tuple[CapacityCheck, Scenario]:
    """Return a scenario with its capacity check. If this host is too slow for its dilation, change that to `auto`."""
    try:
        return check_host_capacity(scenario, engine), scenario
    except UserError:
        auto_dilated = scenario.model_copy(update={"dilation": AUTO})
        return check_host_capacity(auto_dilated, engine), auto_dilated
