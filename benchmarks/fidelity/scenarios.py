"""The rows about scenarios: do engines and the closed form agree on a step, also where links are fast?"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.fidelity.idle_trial import plan_of, trial_of
from benchmarks.fidelity.row import Gate, Line
from benchmarks.fidelity.training import slowest_step_s, step_s, trained
from compose.engines.base import Engine
from compose.engines.containers.engine import DockerEngine
from compose.engines.local import LocalEngine
from compose.host.admission import Admission
from compose.runs.run import decide_admission
from compose.scenario_files.load import find_scenario, load_scenario
from services.scenario.scenario import AUTO, Scenario
from services.schema.errors import UserError

FORM = "closed form"
ALIKE = 0.10  # what all three may differ from each other
# 1.1 million parameters at 25 Gbit/s: 2.6 ms on the links beside 5 ms of computing, and messages large enough for
# their own cost to be a small part.
FAST_WORKLOAD = {
    "dataset": {"kind": "synthetic_regression", "samples": 3840, "features": 64, "outputs": 10},
    "model": {"kind": "mlp", "hidden": [1024, 1024]},
    "optimiser": {"kind": "sgd", "rate": 0.01},
    "batch_per_worker": 16,
    "epochs": 1,
}
FAST_CLUSTER = {"workers": 8, "worker": {"link": "25gbe", "throughput": "3200/s"}}


class Stepped(NamedTuple):
    """A trial's step in virtual seconds, of its slowest worker."""

    measured: float
    predicted: float


def engines_racks(engine: DockerEngine, rounds: int) -> list[Line]:  # noqa: ARG001 - see `_compared`
    """Racks with little between them."""
    return list(_compared("racks", engine))


def engines_incast(engine: DockerEngine, rounds: int) -> list[Line]:  # noqa: ARG001
    """Many workers into one server and into four."""
    return list(_compared("incast", engine))


def engines_wan(engine: DockerEngine, rounds: int) -> list[Line]:  # noqa: ARG001
    """Two regions."""
    return list(_compared("wan", engine))


def fast_ring(engine: DockerEngine, rounds: int) -> list[Line]:
    """Eight workers in a ring whose links no laptop carries, as slow as admission decides."""
    trial = trial_of(FAST_CLUSTER, workload=FAST_WORKLOAD, dilation=AUTO)
    admission = decide_admission(trial.scenario, engine)
    found = []
    for _ in range(rounds):
        plan = plan_of(trial, engine, admission.dilation, admission.alpha_s)
        with trained(engine, plan) as folder:
            found.append(step_s(folder, plan) / plan.predicted.step_s)
    what = f"ring of 8 at 25 Gbit/s, dilation auto ({admission.dilation:g}): step over {FORM}"
    return [Line(what=what, unit="ratio", declared=1.0, samples=tuple(found), gate=Gate(median_off=ALIKE))]


def _compared(name: str, engine: DockerEngine) -> Iterator[Line]:
    """A shipped scenario on both engines: docker over local, both over the closed form; every trial has to be near.

    Every trial runs once: a sample is the ratio of two medians over many steps.
    """
    scenario = load_scenario(find_scenario(name))
    stepped = {each.name: _steps(scenario, each) for each in (engine, LocalEngine())}
    samples: defaultdict[str, list[float]] = defaultdict(list)
    for on_docker, on_local in zip(stepped["docker"], stepped["local"], strict=True):
        samples[f"docker over {FORM}"].append(on_docker.measured / on_docker.predicted)
        samples[f"local over {FORM}"].append(on_local.measured / on_local.predicted)
        samples["docker over local"].append(on_docker.measured / on_local.measured)
    for what, found in samples.items():
        told = f"{name}, median step of the slowest worker in each of {len(found)} trials: {what}"
        yield Line(what=told, unit="ratio", declared=1.0, samples=tuple(found), gate=Gate(each_off=ALIKE))


def _steps(scenario: Scenario, engine: Engine) -> list[Stepped]:
    """Of every trial but the baselines, which send nothing."""
    admission, scenario = _admitted(scenario, engine)
    found = []
    for trial in (trial for trial in scenario.trials() if not trial.baseline):
        plan = plan_of(trial, engine, admission.dilation, admission.alpha_s)
        with trained(engine, plan) as folder:
            found.append(Stepped(slowest_step_s(folder, plan), plan.predicted.step_s))
    return found


def _admitted(scenario: Scenario, engine: Engine) -> tuple[Admission, Scenario]:
    """Under its own dilation where this host carries that, else under the least that it does carry."""
    try:
        return decide_admission(scenario, engine), scenario
    except UserError:
        slower = scenario.model_copy(update={"dilation": AUTO})
        return decide_admission(slower, engine), slower
