"""Rehearsal of runs of the real cluster: short trials of the scenario `four-l40s` on any engine."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.fidelity.idle_trial import make_trial_plan
from benchmarks.fidelity.training import SilentObserver, read_steps, read_verdict_reasons, run_trial
from benchmarks.real_cluster.measured_runs import MeasuredRun, plain_compute_s
from compose.engines.base import TrialEngine
from compose.runs.run import check_host_capacity
from compose.scenario_files.load import find_scenario, load_scenario
from services.plan import Plan
from services.scenario.scenario import AUTO, Scenario
from services.schema.errors import HostError

SCENARIO = "four-l40s"
LINK_RATES = {"200m": "200mbit", "5g": "5gbit"}  # bandwidth in the file -> rate in the scenario
STRATEGY_KINDS = {"diloco": "diloco", "localsgd": "local_sgd"}  # algorithm in the file -> strategy
MIN_ROUNDS, MIN_STEPS = 2, 4  # of a trial in virtual time, in which all rounds are equal
TRAIN_SHARE = 0.8  # of the samples of the dataset


@dataclass(frozen=True)
class RehearsalCase:
    """Runs that the rehearsal does not distinguish: repeats of one algorithm with one period and bandwidth."""

    algorithm: str
    period_steps: int
    bandwidth: str

    @property
    def name(self) -> str:
        """Name of the case as an argument of the benchmark, such as "diloco:8:5g"."""
        return f"{self.algorithm}:{self.period_steps}:{self.bandwidth}"


@dataclass(frozen=True)
class RehearsedTimes:
    """Mean times of a rehearsed trial over workers and steps, in virtual milliseconds."""

    compute_ms: float
    plain_step_ms: float | None  # None: every step exchanges
    exchange_step_ms: float
    blocked_ms_exchange: float  # in a step with an exchange
    dilation: float
    verdict_reasons: str  # why the verdict of the trial is not valid; empty if it is

    def mean_step_ms(self, run: MeasuredRun) -> float:
        """Return the mean step time over as many plain steps and exchanges as a measured run counts."""
        return run.mean_of_steps(self.plain_step_ms, self.exchange_step_ms)

    def compute_utilisation(self, run: MeasuredRun) -> float:
        """Return mean compute time / mean step time over as many steps and exchanges as a measured run counts."""
        return self.compute_ms / self.mean_step_ms(run)


def case_of(run: MeasuredRun) -> RehearsalCase:
    """Return the case to which a measured run belongs."""
    return RehearsalCase(run.algorithm, run.period_steps, run.bandwidth)


def list_cases(runs: Iterable[MeasuredRun]) -> list[RehearsalCase]:
    """Return the cases of measured runs, each once, in their order."""
    return list(dict.fromkeys(map(case_of, runs)))


@dataclass(frozen=True)
class Rehearsal:
    """Rehearsal of the cases of measured runs on one engine."""

    engine: TrialEngine
    runs: Sequence[MeasuredRun]  # of which only the plain step times are used
    rounds: int = MIN_ROUNDS  # exchanges of a trial, at least

    def rehearse(self, cases: Iterable[RehearsalCase]) -> dict[RehearsalCase, RehearsedTimes]:
        """Run one trial of each case, and return their times.

        Raises:
            HostError: a trial failed.
            UserError: this host can't carry a trial.
        """
        self.engine.prepare(SilentObserver())
        return {case: self._rehearse_case(case) for case in cases}

    def make_settings(self, case: RehearsalCase) -> dict[str, Any]:
        """Return the values of a case that replace those of the scenario."""
        steps = max(self.rounds * case.period_steps, MIN_STEPS)
        batch_per_worker = self._scenario.training_workload.batch_per_worker or 1
        train_samples = steps * self._scenario.training_workload.global_batch_size(self._scenario.cluster.workers)
        throughput = batch_per_worker / plain_compute_s(self.runs, case.algorithm)
        return {
            "workload.dataset.samples": round(train_samples / TRAIN_SHARE),
            "cluster.worker.throughput": f"{throughput:.6g}/s",
            "cluster.worker.uplink": LINK_RATES[case.bandwidth],
            "strategies": {case.algorithm: {"kind": STRATEGY_KINDS[case.algorithm], "period": case.period_steps}},
            "sweep": {},
            "dilation": AUTO,
        }

    @cached_property
    def _scenario(self) -> Scenario:
        return load_scenario(find_scenario(SCENARIO))

    def _rehearse_case(self, case: RehearsalCase) -> RehearsedTimes:
        scenario = load_scenario(find_scenario(SCENARIO), self.make_settings(case), self.engine.name)
        check = check_host_capacity(scenario, self.engine)
        (trial,) = scenario.trials()
        plan = make_trial_plan(trial, self.engine, check.dilation, check.calibrated_alpha_s)
        with run_trial(self.engine, plan) as folder:
            return _read_times(folder, plan, case.period_steps)


def _read_times(trial_path: Path, plan: Plan, period_steps: int) -> RehearsedTimes:
    """Return the times of a finished trial, whose exchanges follow every `period_steps` steps."""
    rows = read_steps(trial_path, plan)
    exchange_rows = [row for row in rows if (row["step"] + 1) % period_steps == 0]
    plain_rows = [row for row in rows if (row["step"] + 1) % period_steps]
    if not exchange_rows:
        raise HostError(f"trial {plan.trial} has logged no exchange")
    return RehearsedTimes(
        compute_ms=_mean_ms(rows, "compute_s"),
        plain_step_ms=_mean_ms(plain_rows, "step_s") if plain_rows else None,
        exchange_step_ms=_mean_ms(exchange_rows, "step_s"),
        blocked_ms_exchange=_mean_ms(exchange_rows, "exchange_s") + _mean_ms(exchange_rows, "wait_s"),
        dilation=plan.dilation,
        verdict_reasons=read_verdict_reasons(trial_path),
    )


def _mean_ms(rows: Iterable[dict[str, Any]], column: str) -> float:
    return 1e3 * mean(float(row[column]) for row in rows)
