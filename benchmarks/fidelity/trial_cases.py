"""Trials that rows run several times: every case equally often, in turns, and every trial counts.

A trial that failed or whose verdict is not valid is counted and never run again. The rows run trials directly, so the
repeats of trials that the host disturbed (`attempts` of a scenario) take no part.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from benchmarks.fidelity.idle_trial import make_trial_plan
from benchmarks.fidelity.row import FidelityGate, FidelityMeasurement
from benchmarks.fidelity.training import read_verdict_reasons, run_trial
from compose.engines.base import TrialEngine
from compose.engines.containers.engine import DockerEngine
from compose.runs.run import check_host_capacity
from services.plan import Plan
from services.scenario.scenario import AUTO, Scenario, TrialSpec
from services.schema.errors import EnsayoError

TRIALS_PER_CASE = 3
# Engine -> wall seconds of a trial beside training, and as many seconds more for each node, on a host with two cores:
# start, probe of links, evaluation, verdict, removal.
TRIAL_OVERHEAD_S = {"docker": (2.0, 1.5), "local": (1.0, 0.7), "simulated": (0.0, 0.0)}

Value = TypeVar("Value")
ReadTrial = Callable[[Path, Plan], Value]  # folder of a finished trial, its plan -> what the row needs of it


@dataclass(frozen=True)
class TrialSample(Generic[Value]):
    """Result of one trial, valid or not."""

    value: Value | None  # None: the trial failed
    defect: str = ""  # why the trial failed or its verdict is not valid; empty if it is valid


@dataclass(frozen=True)
class TrialCase(Generic[Value]):
    """One trial of a row, and what the row reads from its folder."""

    label: str
    trial: TrialSpec
    engine: TrialEngine
    read: ReadTrial[Value]
    auto_dilation: float = 1.0  # dilation if the trial has `dilation: auto`
    alpha_s: float = 0.0  # latency of a message for predictions

    @cached_property
    def plan(self) -> Plan:
        """Plan with the dilation and the predicted step time of all trials of this case."""
        return self._make_plan()

    def estimate_trial_s(self) -> float:
        """Return the estimated wall seconds of one trial."""
        per_trial_s, per_node_s = TRIAL_OVERHEAD_S[self.engine.name]
        return self.plan.estimated_training_wall_s + per_trial_s + per_node_s * len(self.plan.nodes)

    def run(self) -> TrialSample[Value]:
        """Run the trial once, under a new run name, and return its result."""
        try:
            plan = self._make_plan()
            with run_trial(self.engine, plan) as folder:
                return TrialSample(self.read(folder, plan), read_verdict_reasons(folder))
        except EnsayoError as error:
            return TrialSample(None, f"failed: {error}")

    def _make_plan(self) -> Plan:
        return make_trial_plan(self.trial, self.engine, self.auto_dilation, self.alpha_s)


@dataclass(frozen=True)
class MeasuredCase(Generic[Value]):
    """Samples of all trials of a case."""

    case: TrialCase[Value]
    samples: tuple[TrialSample[Value], ...]

    @property
    def plan(self) -> Plan:
        """Plan with the dilation and the predicted step time of the trials."""
        return self.case.plan

    @property
    def values(self) -> tuple[Value, ...]:
        """Values of the trials that did not fail."""
        return tuple(sample.value for sample in self.samples if sample.value is not None)


@dataclass(frozen=True)
class TrialRow(Generic[Value]):
    """Row that runs trials."""

    make_cases: Callable[[DockerEngine], Sequence[TrialCase[Value]]]
    summarise: Callable[[Sequence[MeasuredCase[Value]]], Iterable[FidelityMeasurement]]

    def measure(self, engine: DockerEngine) -> list[FidelityMeasurement]:
        """Run all cases of the row and return its measurements."""
        return list(self.summarise(run_in_turns(self.make_cases(engine))))

    def estimate_wall_s(self, engine: DockerEngine) -> float:
        """Return the estimated wall seconds of the row, from the plans of its trials."""
        return TRIALS_PER_CASE * sum(case.estimate_trial_s() for case in self.make_cases(engine))


def auto_dilated_cases(
    scenario: Scenario, engine: TrialEngine, read: ReadTrial[Value], label: str = ""
) -> list[TrialCase[Value]]:
    """Return a case for each trial of a scenario except baselines, which send nothing.

    The dilation is the one that users get from `dilation: auto` on this host.
    """
    auto_dilated = scenario.model_copy(update={"dilation": AUTO})
    check = check_host_capacity(auto_dilated, engine)
    return [
        TrialCase(label or trial.id, trial, engine, read, check.dilation, check.calibrated_alpha_s)
        for trial in auto_dilated.trials()
        if not trial.baseline
    ]


def run_in_turns(cases: Sequence[TrialCase[Value]]) -> list[MeasuredCase[Value]]:
    """Run every case once, then every case a second time, and so on, and return all samples by case."""
    rounds = [[case.run() for case in cases] for _ in range(TRIALS_PER_CASE)]
    return [MeasuredCase(case, samples) for case, samples in zip(cases, zip(*rounds, strict=True), strict=True)]


def paired_values(first: MeasuredCase[Value], second: MeasuredCase[Value]) -> Iterator[tuple[Value, Value]]:
    """Yield the values of two cases round by round, without rounds in which a trial failed."""
    for one, other in zip(first.samples, second.samples, strict=True):
        if one.value is not None and other.value is not None:
            yield one.value, other.value


def measurement_of_trials(
    description: str,
    unit: str,
    declared: float,
    values: Iterable[float],
    gate: FidelityGate,
    cases: Iterable[MeasuredCase[Value]],
) -> FidelityMeasurement:
    """Return a measurement with the values that were computed from the trials of some cases."""
    samples = [sample for case in cases for sample in case.samples]
    return FidelityMeasurement(
        what=description,
        unit=unit,
        declared=declared,
        samples=tuple(values),
        gate=gate,
        trials=len(samples),
        failed_trials=sum(sample.value is None for sample in samples),
        defects=tuple(sample.defect for sample in samples if sample.defect),
    )
