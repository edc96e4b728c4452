"""Trials in virtual time, analysed as for a report: with metrics and the verdict of all checks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.reading.damage import FileProblem
from analysis.reading.run_folder import TrialFolder
from analysis.results.analyse_trial import AnalysedTrial, analyse_trial
from compose.engines.simulated import MECHANISM
from compose.engines.transport_shaping import make_shaping_records
from services.cluster.addresses import DummyAddresses
from services.node.simulate import simulate_trial_to_folder
from services.plan import Plan, make_plan
from services.plan.trial_outcome import TrialOutcome
from services.scenario.scenario import Scenario, TrialSpec


def simulate_to_trial_folder(trial: TrialSpec, folder: Path) -> Plan:
    """Simulate a trial, write its files to a folder that does not exist yet or is empty, and return its plan."""
    plan = make_plan(trial, "run", "simulated", DummyAddresses())
    (folder / "logs").mkdir(parents=True)
    (folder / "plan.json").write_text(plan.model_dump_json())
    simulate_trial_to_folder(plan, folder / "logs")
    outcome = TrialOutcome(
        trial=plan.trial,
        engine="simulated",
        status="success",
        exit_codes=dict.fromkeys((node.name for node in plan.nodes), 0),
        shaping=make_shaping_records(plan, MECHANISM),
    )
    (folder / "status.json").write_text(outcome.model_dump_json())
    return plan


def analyse_document(document: Mapping[str, Any], folder: Path) -> AnalysedTrial:
    """Return the results of the only trial of a scenario."""
    (trial,) = Scenario.decode(dict(document)).trials()
    return analyse_trial_spec(trial, folder)


def analyse_trial_spec(trial: TrialSpec, folder: Path) -> AnalysedTrial:
    """Simulate a trial, and return its results; `folder` is a folder for its files, which does not exist yet."""
    simulate_to_trial_folder(trial, folder)
    analysed = analyse_trial(TrialFolder(folder))
    assert not isinstance(analysed, FileProblem), analysed
    return analysed
