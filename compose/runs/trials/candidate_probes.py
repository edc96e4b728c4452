"""Probes of a trial whose strategy is chosen among candidates: short trainings whose measured steps decide.

A probe runs on the engine of the run, on the cluster of the trial, right before the trial. Its files are in the folder
`probes/<trial>-<number of the candidate>` of the run. A probe belongs to no result: reports read only its step time.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from compose.engines.base import EnginePreparationObserver, TrialEngine
from compose.runs.run_folder import RunFolderError, explain_write_errors
from compose.runs.trials.supervisor import failure_reason
from services.plan import Plan, StrategyChoice, TrainingPlan, decode_plan, make_probe_plan
from services.plan.trial_outcome import TrialOutcome

PROBES_FOLDER = "probes"
NO_STEP_REASON = "no step was logged"

# Takes the folder of a probe; returns its measured step time in virtual seconds, or None if it logged no step.
ProbeMeter: TypeAlias = Callable[[Path], float | None]
# Takes the name of a trial and the number of a candidate; returns the plan of the trial under this candidate.
CandidatePlanner: TypeAlias = Callable[[str, int], TrainingPlan]


class SilentTrialObserver:
    """Observer of a probe, whose steps do not belong to the progress of the run."""

    def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None:
        """Ignore an event."""


@dataclass(frozen=True)
class CandidateProbes:
    """Probes of candidates for the trials of one run."""

    run_folder: Path
    engine: TrialEngine
    plan_candidate: CandidatePlanner
    measure_step_s: ProbeMeter | None  # None: no probe runs, and predictions decide
    observer: EnginePreparationObserver

    def plan_chosen_strategy(self, plan: Plan) -> Plan:
        """Return the plan of a trial under its finally chosen strategy; the same plan if nothing has to be chosen.

        Repeats of a trial use the choice of the first repeat, so that they are repeats of one strategy.

        Raises:
            RunFolderError: a file in the run folder can't be written.
        """
        choice = plan.strategy_choice
        if choice is None or choice.is_final:
            return plan
        final_choice = self._read_choice_of_earlier_repeat(plan) or self._probe_candidates(plan, choice)
        return self._apply_choice(final_choice, plan, choice)

    def replan(self, chosen_plan: Plan, new_plan: Plan) -> Plan:
        """Return a new plan of a trial under the strategy that was chosen for an earlier plan of the trial."""
        if chosen_plan.strategy_choice is None or new_plan.strategy_choice is None:
            return new_plan
        return self._apply_choice(chosen_plan.strategy_choice, new_plan, new_plan.strategy_choice)

    def _apply_choice(self, choice: StrategyChoice, plan: Plan, predicted_choice: StrategyChoice) -> Plan:
        """Return the plan of a trial under a choice, given its plan under the choice by prediction."""
        if choice.chosen != predicted_choice.chosen:
            plan = self.plan_candidate(plan.trial, choice.chosen)
        return plan.model_copy(update={"strategy_choice": choice})

    def _probe_candidates(self, plan: Plan, choice: StrategyChoice) -> StrategyChoice:
        """Run the probes of a trial, one after the other, and return the final choice."""
        if self.measure_step_s is None:
            return choice.finish()
        numbers = choice.numbers_to_probe
        for turn, number in enumerate(numbers, start=1):
            name = choice.candidates[number].name
            self.observer.engine_preparation_started(f"{plan.trial}: probe {turn} of {len(numbers)}: {name}")
            step_count = choice.count_probe_steps(number)
            choice = choice.add_probe(number, *self._probe(plan.trial, number, step_count, self.measure_step_s))
        choice = choice.finish()
        self.observer.engine_preparation_started(f"{plan.trial}: chosen: {choice.chosen_candidate.name}")
        return choice

    def _probe(self, trial: str, number: int, step_count: int, measure_step_s: ProbeMeter) -> tuple[float | None, str]:
        """Run the probe of a candidate; return its step time in virtual seconds, or why there is none.

        Any error fails only this probe, except if a file in the run folder can't be written.
        """
        folder = self.run_folder / PROBES_FOLDER / f"{trial}-{number:02}"
        try:
            plan = make_probe_plan(self.plan_candidate(trial, number), folder.name, step_count)
            outcome = self._run_in_folder(plan, folder)
            step_s = measure_step_s(folder) if outcome.status == "success" else None
        except RunFolderError:
            raise
        except Exception as error:  # noqa: BLE001 - see the docstring; the reason names the type of the error
            return None, failure_reason(error)
        failure = outcome.reason or NO_STEP_REASON
        return step_s, "" if step_s is not None else failure

    def _run_in_folder(self, plan: TrainingPlan, folder: Path) -> TrialOutcome:
        """Run a probe in a new folder, and write its outcome."""
        with explain_write_errors(self.run_folder):
            shutil.rmtree(folder, ignore_errors=True)  # of an interrupted run that is continued
            (folder / "logs").mkdir(parents=True)
            (folder / "plan.json").write_text(plan.model_dump_json(indent=1))
        outcome = self.engine.run_trial(plan, folder, SilentTrialObserver())
        with explain_write_errors(self.run_folder):
            (folder / "status.json").write_text(outcome.model_dump_json(indent=1))
        return outcome

    def _read_choice_of_earlier_repeat(self, plan: Plan) -> StrategyChoice | None:
        """Return the final choice of an earlier repeat of a trial; None if there is none."""
        if plan.repeat == 0:
            return None
        for path in sorted((self.run_folder / "trials").glob("*/plan.json")):
            earlier = decode_plan(path.read_bytes())
            is_repeat = (earlier.label, earlier.labels) == (plan.label, plan.labels) and earlier.repeat < plan.repeat
            if is_repeat and earlier.strategy_choice is not None and earlier.strategy_choice.is_final:
                return earlier.strategy_choice
        return None
