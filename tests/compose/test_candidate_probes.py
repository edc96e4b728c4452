"""Probes of candidates run before a trial on its engine, and their measured steps decide."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from scripted_engine import RunObserverStub, ScriptedEngine

from compose.engines import EngineChoice
from compose.runs.interrupted_run import read_interrupted_run
from compose.runs.run import FinishedRun, resume_run, run_scenario
from compose.runs.run_folder import ScenarioFile
from compose.runs.trials.node_runner import TrialFailed
from services.cluster.addresses import DummyAddresses
from services.plan import Plan, StrategyChoice, decode_plan, make_plan
from services.plan.trial_outcome import TrialOutcome
from services.scenario.scenario import Scenario

COLLECTIVES = ["ring", "halving_doubling", "tree"]
FAILED_PROBE = {"run": TrialFailed("worker-0 ended with exit code 1")}


class RecordingObserver(RunObserverStub):
    """Observer that keeps the lines of the terminal."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def engine_preparation_started(self, description: str) -> None:
        self.lines.append(description)


def make_scenario(**auto: Any) -> Scenario:
    links = {"uplink": "100mbit", "downlink": "100mbit"}
    return Scenario.decode(
        {
            "name": "probed",
            "workload": {
                "dataset": {"kind": "digits"},
                "model": {"kind": "linear"},
                "optimiser": {"kind": "sgd", "rate": 0.1},
                "batch": 64,
            },
            "cluster": {"workers": 4, "worker": {"throughput": "40000/s", "delay": "1ms", **links}},
            "strategies": {
                "chosen": {
                    "kind": "auto",
                    "margin": 10,
                    "candidates": [{"kind": "all_reduce", "collective": {"kind": kind}} for kind in COLLECTIVES],
                    **auto,
                }
            },
            "baseline": False,
        }
    )


def run(
    scenario: Scenario,
    runs: Path,
    measured_s: Mapping[int, float | None] | None,
    errors: Mapping[int, Mapping[str, Exception]] | None = None,
    observer: RunObserverStub | None = None,
) -> FinishedRun:
    """Run a scenario on an engine whose nodes do nothing; the steps of probes are given by candidate."""
    return run_scenario(
        ScenarioFile(scenario, "name: probed", ""),
        EngineChoice(ScriptedEngine(errors or {}), "asked for"),
        runs,
        observer or RunObserverStub(),
        measure_probe_step_s=None if measured_s is None else meter(measured_s),
    )


def meter(measured_s: Mapping[int, float | None]) -> Callable[[Path], float | None]:
    return lambda folder: measured_s[int(folder.name[-2:])]


def plans_in(folder: Path) -> dict[str, Plan]:
    return {path.parent.name: decode_plan(path.read_bytes()) for path in sorted(folder.glob("*/plan.json"))}


def collective_of(plan: Plan) -> str:
    return str(plan.strategy.model_dump()["collective"]["kind"])


def test_a_probe_overturns_a_wrong_prediction(tmp_path: Path) -> None:
    """The trial runs the strategy that was measured as the fastest, not the one that was predicted to be."""
    observer = RecordingObserver()
    predicted = run(make_scenario(), tmp_path / "without", None)
    probed = run(make_scenario(), tmp_path / "with", {0: 0.03, 1: 0.02, 2: 0.01}, observer=observer)

    [before], [after] = (plans_in(each.folder / "trials").values() for each in (predicted, probed))
    assert before.strategy_choice is not None
    assert after.strategy_choice is not None
    first = before.strategy_choice.chosen
    assert (collective_of(before), collective_of(after)) == (COLLECTIVES[first], "tree")
    assert first != 2
    assert [candidate.probe_step_s for candidate in after.strategy_choice.candidates] == [0.03, 0.02, 0.01]
    assert after.model_copy(update={"strategy_choice": None, "run": ""}) == (
        declared_plan("tree").model_copy(update={"run": ""})
    )
    assert [line.split(": ", 1)[1] for line in observer.lines][-1] == "chosen: all_reduce (collective tree)"
    assert len(observer.lines) == 4
    assert {outcome.status for outcome in probed.statuses} == {"success"}


def declared_plan(collective: str) -> Plan:
    document = make_scenario().encode()
    document["strategies"] = {"chosen": {"kind": "all_reduce", "collective": {"kind": collective}}}
    [trial] = Scenario.decode(document).trials()
    return make_plan(trial, "", "simulated", DummyAddresses())


def test_probes_are_no_trials_of_the_run(tmp_path: Path) -> None:
    """Reports and resumed runs read the folder of trials only."""
    finished = run(make_scenario(probe_steps=7), tmp_path, {0: 0.03, 1: 0.02, 2: 0.01})

    [trial] = plans_in(finished.folder / "trials")
    probes = plans_in(finished.folder / "probes")
    assert [*probes] == [f"{trial}-{number:02}" for number in range(3)]
    assert {plan.steps for plan in probes.values()} == {7}
    assert [collective_of(plan) for plan in probes.values()] == COLLECTIVES
    assert [outcome.trial for outcome in finished.statuses] == [trial]
    assert json.loads((finished.folder / "manifest.json").read_text())["trials"] == [trial]
    outcomes = [path.read_bytes() for path in finished.folder.glob("probes/*/status.json")]
    assert {TrialOutcome.model_validate_json(text).status for text in outcomes} == {"success"}


def test_repeats_use_the_choice_of_the_first_repeat(tmp_path: Path) -> None:
    """Repeats under different strategies would be no repeats."""
    scenario = make_scenario().model_copy(update={"repeats": 3})
    finished = run(scenario, tmp_path, {0: 0.03, 1: 0.02, 2: 0.01})

    plans = [*plans_in(finished.folder / "trials").values()]
    assert [plan.seed for plan in plans] == [1, 2, 3]
    assert [collective_of(plan) for plan in plans] == ["tree"] * 3
    assert len(plans_in(finished.folder / "probes")) == 3


@pytest.mark.parametrize(
    ("failed", "measured_s", "chosen"),
    [({1}, {0: 0.03, 2: 0.01}, 2), ({1, 2}, {0: 0.03}, 0)],
)
def test_a_failed_probe_is_recorded_and_the_others_decide(
    tmp_path: Path, failed: set[int], measured_s: dict[int, float | None], chosen: int
) -> None:
    order = choice_by_prediction(tmp_path).numbers_to_probe
    errors = {turn: FAILED_PROBE for turn, number in enumerate(order) if number in failed}

    finished = run(make_scenario(), tmp_path / "probed", measured_s, errors)

    [plan] = plans_in(finished.folder / "trials").values()
    choice = plan.strategy_choice
    assert choice is not None
    assert {number for number in range(3) if choice.candidates[number].probe_failure} == failed
    assert choice.explain(1) == "probe failed: worker-0 ended with exit code 1"
    assert choice.chosen == chosen
    assert [outcome.status for outcome in finished.statuses] == ["success"]


def choice_by_prediction(folder: Path) -> StrategyChoice:
    """Return the choice of a run without probes, before it is final."""
    [plan] = plans_in(run(make_scenario(), folder / "predicted", None).folder / "trials").values()
    assert plan.strategy_choice is not None
    return plan.strategy_choice.model_copy(update={"is_final": False})


def test_predictions_decide_if_no_probe_logs_a_step(tmp_path: Path) -> None:
    finished = run(make_scenario(), tmp_path / "probed", dict.fromkeys(range(3)))

    [plan] = plans_in(finished.folder / "trials").values()
    assert plan.strategy_choice is not None
    assert plan.strategy_choice.chosen == choice_by_prediction(tmp_path).chosen
    assert {candidate.probe_failure for candidate in plan.strategy_choice.candidates} == {"no step was logged"}


@pytest.mark.parametrize("auto", [{"probes": 0}, {"probes": 1}, {"margin": 0}])
def test_nothing_is_probed_without_something_to_compare(tmp_path: Path, auto: dict[str, Any]) -> None:
    finished = run(make_scenario(**auto), tmp_path, {})

    assert not (finished.folder / "probes").exists()


def test_an_interrupted_run_probes_again_and_keeps_the_choice_of_finished_repeats(tmp_path: Path) -> None:
    """A repeat that was finished before the interruption has the choice for all other repeats."""

    class InterruptingObserver(RunObserverStub):
        def trial_started(self, plan: Plan, trial_number: int, trial_count: int) -> None:
            if trial_number == 2:
                raise KeyboardInterrupt

    scenario = make_scenario().model_copy(update={"repeats": 2})
    interrupted = run(scenario, tmp_path, {0: 0.03, 1: 0.02, 2: 0.01}, observer=InterruptingObserver())
    assert interrupted.interrupted

    resumed = resume_run(
        read_interrupted_run(interrupted.folder),
        EngineChoice(ScriptedEngine({}), "asked for"),
        "",
        RunObserverStub(),
        measure_probe_step_s=meter({}),
    )

    assert not resumed.interrupted
    assert [collective_of(plan) for plan in plans_in(resumed.folder / "trials").values()] == ["tree", "tree"]
