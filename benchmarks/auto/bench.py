"""Measurement of strategy `auto` (`make bench-auto`): the chosen strategy against all fixed candidates.

All trials run in virtual time. For each case, one trial runs with strategy `auto`, with its probes, and one trial with
each candidate that the scenario allows, declared as a strategy of its own. The result is the mean step of the first,
divided by the least mean step of the others.

- The gate is a ratio of at most 1.1 in 80 % of the cases, and of at most 1.5 in every case.
- Each measured case is saved in `runs/auto.json`. An interrupted measurement goes on with the missing cases if the
  commit is the same; cases of another commit are measured anew.
- With --write, the results page is written. This needs a checkout without uncommitted changes.
- --cases lab-exact,jitter measures only these cases.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.metrics.step_times.step_seconds import step_time_statistics
from analysis.reading.run_folder import TrialFolder
from analysis.reading.run_table import read_trial_tables
from analysis.results.probe import measure_probe_step_s
from benchmarks.auto.cases import CASES, AutoCase
from benchmarks.auto.results_page import RESULTS_PAGE, MeasuredCase, describe_outcome, format_cases_table, render_page
from compose.engines import EngineChoice, create_engine
from compose.runs.git_commit import git_commit_of_checkout
from compose.runs.run import run_scenario
from compose.runs.run_folder import ScenarioFile
from compose.scenario_files.load import load_scenario
from services.cluster.addresses import DummyAddresses
from services.plan import Plan, StrategyChoice, decode_plan, make_plan
from services.scenario.scenario import Scenario

AUTO_LABEL = "chosen"
SHORT_COMMIT_DIGITS = 7
STATE_FILE = Path("runs") / "auto.json"
EXIT_GATE, EXIT_USAGE = 1, 2


class MeasurementState:
    """Measured cases in a file, for a measurement that may be interrupted. Cases of other commits do not count."""

    def __init__(self, path: Path, commit: str) -> None:
        self._path = path
        self._commit = commit
        content: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        self._cases = {name: entry for name, entry in content.items() if entry["commit"] == commit}

    def read_case(self, case: AutoCase) -> MeasuredCase | None:
        """Return the measured steps of a case; None if it has not been measured."""
        if (entry := self._cases.get(case.name)) is None:
            return None
        return MeasuredCase(
            case=case,
            choice=StrategyChoice.model_validate(entry["choice"]),
            predicted_number=entry["predicted_number"],
            chosen_step_s=entry["chosen_step_s"],
            step_s={int(number): seconds for number, seconds in entry["step_s"].items()},
        )

    def save_case(self, measured: MeasuredCase) -> None:
        """Add the measured steps of a case, and save all cases."""
        self._cases[measured.case.name] = {
            "commit": self._commit,
            "choice": measured.choice.model_dump(mode="json"),
            "predicted_number": measured.predicted_number,
            "chosen_step_s": measured.chosen_step_s,
            "step_s": dict(measured.step_s),
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(self._cases), encoding="utf-8")
        unfinished.replace(self._path)


def main(command_line: Sequence[str] | None = None) -> int:
    """Measure the cases, print the table, and write the page if --write is given. Return the exit code."""
    arguments = _parse_arguments(command_line)
    names = [name for name in arguments.cases.split(",") if name] or [case.name for case in CASES]
    commit = _current_commit()
    if problem := _find_usage_problem(names, commit, writes_page=arguments.write):
        sys.stderr.write(f"{problem}\n")
        return EXIT_USAGE
    state = MeasurementState(arguments.state, commit)
    measured = [_measure_missing(case, state) for case in CASES if case.name in names]
    outcome = describe_outcome(measured)
    sys.stdout.write("\n".join([*format_cases_table(measured), "", *outcome.lines, ""]))
    if arguments.write:
        RESULTS_PAGE.write_text(render_page(measured, commit), encoding="utf-8")
    return 0 if outcome.is_gate_met else EXIT_GATE


def _parse_arguments(command_line: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.auto", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="", help="comma-separated names of cases; default: all")
    parser.add_argument("--state", type=Path, default=STATE_FILE, help="file of the measured cases")
    parser.add_argument("--write", action="store_true", help=f"also write {RESULTS_PAGE.name}")
    return parser.parse_args(command_line)


def _find_usage_problem(names: Sequence[str], commit: str, *, writes_page: bool) -> str:
    """Return why the measurement cannot start; empty if it can."""
    known = [case.name for case in CASES]
    if unknown := [name for name in names if name not in known]:
        return f"unknown case {unknown[0]}; cases are {', '.join(known)}"
    if writes_page and (len(names) < len(known) or not commit or "+dirty" in commit):
        return f"--write needs all cases and a commit; this checkout is {commit or 'no checkout'}: commit all changes"
    return ""


def _current_commit() -> str:
    """Return the abbreviated commit, with +dirty if the checkout has uncommitted changes; empty outside a checkout."""
    head = git_commit_of_checkout()
    return head["id"][:SHORT_COMMIT_DIGITS] + ("+dirty" if head["dirty"] else "") if head else ""


def _measure_missing(case: AutoCase, state: MeasurementState) -> MeasuredCase:
    """Return the measured steps of a case: those in the state, or else new ones, which are saved."""
    if saved := state.read_case(case):
        return saved
    started_s = time.monotonic()
    measured = measure_case(case)
    seconds = time.monotonic() - started_s
    sys.stderr.write(f"{case.name}: {measured.ratio:.3f} of the best of {len(measured.step_s)}, {seconds:.0f} s\n")
    state.save_case(measured)
    return measured


def measure_case(case: AutoCase) -> MeasuredCase:
    """Run strategy `auto` and all candidates of a case, and return their mean steps."""
    predicted = _predict_choice(case)
    fixed = {
        f"c{number}": candidate.strategy.model_dump(mode="json")
        for number, candidate in enumerate(predicted.candidates)
        if not candidate.impossible_reason
    }
    scenario = load_scenario(case.make_document({AUTO_LABEL: case.auto_strategy, **fixed}))
    trials = _run_trials(scenario)
    choice = trials[AUTO_LABEL].plan.strategy_choice
    if choice is None:
        raise TypeError(f"case {case.name}: the plan has no choice")
    return MeasuredCase(
        case=case,
        choice=choice,
        predicted_number=predicted.chosen,
        chosen_step_s=trials[AUTO_LABEL].mean_step_s,
        step_s={int(label[1:]): trial.mean_step_s for label, trial in trials.items() if label != AUTO_LABEL},
    )


def _predict_choice(case: AutoCase) -> StrategyChoice:
    """Return the choice of a case by prediction."""
    [trial] = load_scenario(case.make_document({AUTO_LABEL: case.auto_strategy})).trials()
    choice = make_plan(trial, "", "simulated", DummyAddresses()).strategy_choice
    if choice is None:
        raise TypeError(f"case {case.name}: the plan has no choice")
    return choice


@dataclass(frozen=True)
class MeasuredTrial:
    """Plan of a trial, and its mean step over all workers and steps in virtual seconds."""

    plan: Plan
    mean_step_s: float


def _run_trials(scenario: Scenario) -> dict[str, MeasuredTrial]:
    """Run all trials of a scenario in virtual time, and return their mean steps by strategy."""
    with tempfile.TemporaryDirectory(prefix="ensayo-bench-auto-") as folder:
        run = run_scenario(
            ScenarioFile(scenario, "", ""),
            EngineChoice(create_engine("simulated"), "bench"),
            Path(folder),
            SilentRunObserver(),
            measure_probe_step_s=measure_probe_step_s,
        )
        if failures := [f"{outcome.trial}: {outcome.reason}" for outcome in run.statuses if outcome.reason]:
            raise RuntimeError("; ".join(failures))
        trials = (_read_trial(path) for path in sorted((run.folder / "trials").iterdir()))
        return {trial.plan.label: trial for trial in trials}


def _read_trial(trial_path: Path) -> MeasuredTrial:
    statistics = step_time_statistics(read_trial_tables(TrialFolder(trial_path)))
    if statistics is None:
        raise RuntimeError(f"{trial_path.name} logged no step")
    return MeasuredTrial(decode_plan((trial_path / "plan.json").read_bytes()), statistics["mean"])


class SilentRunObserver:
    """Observer that ignores all notifications of a run."""

    def engine_preparation_started(self, description: str) -> None:
        """Ignore what the engine prepares."""

    def run_started(
        self, scenario: Scenario, engine_name: str, why_this_engine: str, plans: tuple[Plan, ...], run_folder: Path
    ) -> None:
        """Ignore the start of the run."""

    def trial_started(self, plan: Plan, trial_number: int, trial_count: int) -> None:
        """Ignore the start of a trial."""

    def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None:
        """Ignore an event."""

    def trial_disturbed(self, plan: Plan, disturbance: str, next_attempt: str, pause_s: float) -> None:
        """Ignore disturbances."""

    def trial_ended(self, plan: Plan, trial_status: str, wall_s: float) -> None:
        """Ignore the end of a trial."""
