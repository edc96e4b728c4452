"""Trials of a run in order, each with as many attempts as it needs.

A trial that other load on this host may have disturbed is repeated after a pause, because the load may be over by then.
The decision does not use training results or step times: repeating until a result looks good is no measurement. The
last attempt counts. Earlier attempts stay in the folder `attempts` of the run.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from compose.engines.base import EnginePreparationObserver, TrialEngine, TrialEventObserver
from compose.runs.interrupt import raise_again_if_stopped
from compose.runs.run_folder import (
    ATTEMPTS_FOLDER,
    EngineLostError,
    RunFolderError,
    count_disturbed_attempts,
    explain_write_errors,
    how_to_continue,
)
from compose.runs.trials.candidate_probes import CandidateProbes
from compose.runs.trials.continued_trials import continue_training
from compose.runs.trials.supervisor import failure_reason
from services.checkpoints.atomic_files import FULL_DISK_ERRORS
from services.plan import Plan
from services.plan.trial_outcome import TrialOutcome
from services.scenario.scenario import Scenario

FULL_DISK_BYTES = 1 << 20  # a disk with less free space counts as full: the logs of a trial need more
FIRST_PAUSE_S = 5.0  # wall seconds before the second attempt; three times as long before every further one
MAX_PAUSE_S = 60.0

# Takes the folder of a trial; returns a possible disturbance by other load on this host, or an empty text.
HostDisturbanceFinder: TypeAlias = Callable[[Path], str]


def find_no_disturbance(_: Path) -> str:
    """Return an empty text: no trial is repeated."""
    return ""


class RunObserver(TrialEventObserver, EnginePreparationObserver, Protocol):
    """Observer of the progress of a run, such as a display in the terminal."""

    def run_started(
        self, scenario: Scenario, engine_name: str, why_this_engine: str, plans: tuple[Plan, ...], run_folder: Path
    ) -> None:
        """Handle the start of a run.

        The trials are already planned, and the run folder exists.
        """

    def trial_started(self, plan: Plan, trial_number: int, trial_count: int) -> None:
        """Handle the start of a trial.

        The number of the trial is counted from 1.
        """

    def trial_disturbed(self, plan: Plan, disturbance: str, next_attempt: str, pause_s: float) -> None:
        """Handle that this host may have disturbed an attempt at a trial, which is repeated after a pause.

        Args:
            plan: of the trial.
            disturbance: what was measured.
            next_attempt: number of the next attempt, such as `2 of 3`.
            pause_s: wall seconds before the next attempt.
        """

    def trial_ended(self, plan: Plan, trial_status: str, wall_s: float) -> None:
        """Handle the end of a trial, after its folder is complete.

        The duration of the trial is in wall seconds.
        """


@dataclass
class TrialSequence:
    """Runs trials of one run, one after the other."""

    run_folder: Path
    engine: TrialEngine
    max_attempts: int
    plan_trials: Callable[[], tuple[Plan, ...]]  # plans all trials of the run with addresses that are free now
    observer: RunObserver
    find_host_disturbance: HostDisturbanceFinder
    probes: CandidateProbes

    def run_trials(self, plans: Sequence[Plan]) -> Iterator[TrialOutcome]:
        """Run one trial per plan, and yield the outcome of the last attempt at each.

        Raises:
            RunFolderError: a file in the run folder can't be written.
            EngineLostError: the engine does not answer any more.
            KeyboardInterrupt: a stop signal.
        """
        plan_by_trial = {plan.trial: plan for plan in plans}
        for trial_number, trial in enumerate([*plan_by_trial], start=1):
            raise_again_if_stopped()
            start_time = time.monotonic()
            self.observer.trial_started(plan_by_trial[trial], trial_number, len(plans))
            plan_by_trial[trial] = self.probes.plan_chosen_strategy(plan_by_trial[trial])
            for outcome in self._run_attempts(trial, plan_by_trial):
                if outcome.kept:  # networks whose addresses are not free
                    plan_by_trial |= self._plan_with_new_addresses(outcome.kept, plan_by_trial[trial])
            self.observer.trial_ended(plan_by_trial[trial], outcome.status, time.monotonic() - start_time)
            yield outcome

    def _run_attempts(self, trial: str, plan_by_trial: dict[str, Plan]) -> Iterator[TrialOutcome]:
        """Run a trial until this host did not disturb it or no attempt is left; yield the outcome of each attempt.

        Between two attempts, the caller may replace the plan.
        """
        first_number = 1 + count_disturbed_attempts(self.run_folder, trial)  # of an interrupted run that is continued
        for attempt_number in range(first_number, self.max_attempts + 1):
            outcome = self._run_attempt(plan_by_trial[trial])
            yield outcome
            if not outcome.disturbance or attempt_number == self.max_attempts:
                return
            pause_s = min(FIRST_PAUSE_S * 3 ** (attempt_number - 1), MAX_PAUSE_S)
            next_attempt = f"{attempt_number + 1} of {self.max_attempts}"
            self.observer.trial_disturbed(plan_by_trial[trial], outcome.disturbance, next_attempt, pause_s)
            time.sleep(pause_s)

    def _run_attempt(self, plan: Plan) -> TrialOutcome:
        """Run one attempt at a trial in the trial's folder, and write its outcome.

        After an interruption of the run, the attempt begins with the last checkpoint of the interrupted one. The
        outcome is written even if the attempt is interrupted. Any other error than those of
        `_end_run_if_no_trial_can_succeed` fails only this trial: the engine may be able to run the next one, and a
        sweep of hours must not end early.
        """
        trial_folder = self.run_folder / "trials" / plan.trial
        with explain_write_errors(self.run_folder):
            _set_earlier_attempt_aside(trial_folder)
            (trial_folder / "logs").mkdir(parents=True)
            (trial_folder / "plan.json").write_text(plan.model_dump_json(indent=1))
        outcome = TrialOutcome(trial=plan.trial, engine=self.engine.name, status="aborted", reason="interrupted")
        try:
            outcome = self.engine.run_trial(self._continue_training(plan, trial_folder), trial_folder, self.observer)
        except Exception as error:  # noqa: BLE001 - see the docstring; the reason names the type of the error
            reason = failure_reason(error)
            outcome = TrialOutcome(trial=plan.trial, engine=self.engine.name, status="failed", reason=reason)
        finally:
            self._write_outcome(outcome)
        if outcome.status == "failed":
            self._end_run_if_no_trial_can_succeed(plan, outcome)
        if outcome.status == "success" and (disturbance := self._find_disturbance(trial_folder)):
            outcome = outcome.model_copy(update={"disturbance": disturbance})
            self._write_outcome(outcome)
        return outcome

    def _end_run_if_no_trial_can_succeed(self, plan: Plan, outcome: TrialOutcome) -> None:
        """End the run if the engine is gone or the disk is full: all further trials would fail, too.

        The failed trial then counts as aborted, so that it runs again when the run is continued.

        Raises:
            EngineLostError: the engine does not answer any more.
            RunFolderError: the disk of the run folder is full.
        """
        if reason := self.engine.missing_software():
            self._write_outcome(outcome.model_copy(update={"status": "aborted"}))
            raise EngineLostError(
                f"{outcome.trial}: {outcome.reason}; {reason}; start the engine again, then "
                f"{how_to_continue(self.run_folder)}"
            )
        if self._is_disk_full(plan, outcome):
            self._write_outcome(outcome.model_copy(update={"status": "aborted"}))
            raise RunFolderError(
                f"{outcome.trial}: {outcome.reason}; the disk of {self.run_folder} is full; free disk space, then "
                f"{how_to_continue(self.run_folder)}"
            )

    def _is_disk_full(self, plan: Plan, outcome: TrialOutcome) -> bool:
        """Return whether a trial has failed because the disk of the run folder is full.

        The part of a checkpoint that was written before the disk was full is removed, so there may be space again.
        """
        is_checkpoint_too_large = plan.recovery.checkpoint is not None and any(
            os.strerror(number) in outcome.reason for number in FULL_DISK_ERRORS
        )
        return is_checkpoint_too_large or shutil.disk_usage(self.run_folder).free < FULL_DISK_BYTES

    def _continue_training(self, plan: Plan, trial_folder: Path) -> Plan:
        """Return the plan of an attempt, which may begin with a checkpoint; nodes read it from its file."""
        continued = continue_training(plan, trial_folder)
        with explain_write_errors(self.run_folder):
            (trial_folder / "plan.json").write_text(continued.model_dump_json(indent=1))
        return continued

    def _find_disturbance(self, trial_folder: Path) -> str:
        """Return a possible disturbance, or an empty text if a check fails with an error.

        The report runs the checks again and raises the same error, but only after all trials have run.
        """
        try:
            return self.find_host_disturbance(trial_folder)
        except Exception:  # noqa: BLE001 - see the docstring
            return ""

    def _write_outcome(self, outcome: TrialOutcome) -> None:
        with explain_write_errors(self.run_folder):
            path = self.run_folder / "trials" / outcome.trial / "status.json"
            path.write_text(outcome.model_dump_json(indent=1))

    def _plan_with_new_addresses(self, kept_networks: Sequence[str], current_plan: Plan) -> dict[str, Plan]:
        """Return new plans of all trials by name, with addresses that do not belong to networks that were kept.

        The trial of `current_plan` keeps its chosen strategy.
        """
        self.observer.engine_preparation_started(
            f"new addresses, because Docker could not remove the networks {', '.join(kept_networks)}; restart Docker "
            "to remove them"
        )
        new_plans = {plan.trial: plan for plan in self.plan_trials()}
        return new_plans | {current_plan.trial: self.probes.replan(current_plan, new_plans[current_plan.trial])}


def _set_earlier_attempt_aside(trial_folder: Path) -> None:
    """Move the folder of a trial, if it exists, to `attempts/<trial>-<number of the attempt>` in the run folder."""
    if not trial_folder.exists():
        return
    attempts_folder = trial_folder.parents[1] / ATTEMPTS_FOLDER
    attempts_folder.mkdir(exist_ok=True)
    attempt_number = 1 + len(list(attempts_folder.glob(f"{trial_folder.name}-*")))
    trial_folder.rename(attempts_folder / f"{trial_folder.name}-{attempt_number}")
