"""Continuation of trials from checkpoints of an interrupted attempt, or of an earlier trial that the scenario names."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from compose.runs.run_folder import ATTEMPTS_FOLDER, read_outcome
from compose.runs.trials.log_tail import LogTail
from services.checkpoints import CheckpointError
from services.checkpoints.other_worker_count import UnsupportedWorkerChange
from services.node.initial_checkpoint import EarlierTraining, find_checkpoints, write_initial_checkpoint
from services.plan import COORDINATOR, Plan, TrainingPlan, decode_plan
from services.plan.training.continued_training import (
    ContinuedTraining,
    explain_training_difference,
    list_attempt_differences,
)
from services.schema.errors import UserError
from services.schema.message_paths import path_for_messages

UNUSED_BECAUSE_OF_EVENTS = "checkpoints, because the times and steps of events count from the start of a training"


def continue_training(plan: Plan, trial_folder: Path) -> Plan:
    """Return the plan of an attempt at a trial, whose folder has the checkpoint with which it begins, if there is one.

    An attempt continues the last interrupted attempt at the same trial in this run, or the earlier trial that
    `recovery.checkpoint.initial` names. Otherwise the plan is unchanged, and the trial begins anew.

    Args:
        plan: plan of the trial.
        trial_folder: folder of the new attempt; earlier attempts are in the folder `attempts` of the run.

    Raises:
        UserError: the scenario has changed since the interrupted attempt, or the trial can't continue the earlier one.
        CheckpointError: the checkpoint can't be written.
    """
    if not isinstance(plan, TrainingPlan) or plan.recovery.checkpoint is None:
        return plan
    unused: list[str] = []
    for attempt in _list_interrupted_attempts(trial_folder):
        check_attempt(plan, attempt)
        if continued := _continue_attempt(plan, attempt, trial_folder, unused):
            return continued
    if plan.recovery.checkpoint.initial is not None:
        return _continue_earlier_trial(plan, Path(plan.recovery.checkpoint.initial), trial_folder, unused)
    if unused:
        record = ContinuedTraining(
            folder="", is_attempt=True, step=0, workers=plan.workers, unused_checkpoints=tuple(unused)
        )
        return plan.model_copy(update={"continued": record})
    return plan


def check_attempt(plan: Plan, attempt_folder: Path) -> None:
    """Check that the scenario is the one of an interrupted attempt with checkpoints.

    Raises:
        UserError: it has changed.
    """
    earlier = _read_training_plan(attempt_folder)
    if not isinstance(plan, TrainingPlan) or earlier is None or not any(find_checkpoints(attempt_folder, earlier)):
        return
    if differing := list_attempt_differences(earlier, plan):
        raise UserError(
            f"{attempt_folder}: the scenario has changed since the trial {plan.trial} was interrupted: its plan "
            f"differs in {', '.join(differing)}; restore the file resolved.yaml of the run to continue the trial, or "
            f"remove {attempt_folder / 'checkpoints'} to begin it anew"
        )


def _list_interrupted_attempts(trial_folder: Path) -> Iterator[Path]:
    """Yield the folders of attempts that were interrupted since the last one that ended, the newest first.

    Attempts whose training had not begun are left out. An attempt that other load on the host disturbed does not count
    as one that ended: it is repeated, and its repetition continues the same interrupted attempt.
    """
    paths = (trial_folder.parents[1] / ATTEMPTS_FOLDER).glob(f"{trial_folder.name}-*")
    for path in sorted(paths, key=lambda path: int(path.name.rpartition("-")[2]), reverse=True):
        outcome = read_outcome(path / "status.json")
        if outcome is not None and outcome.disturbance:
            continue
        if outcome is not None and outcome.status != "aborted":
            return
        if any(event["key"] == "run_start" for event in _coordinator_events(path)):
            yield path


def _coordinator_events(trial_folder: Path) -> Iterator[dict[str, Any]]:
    return LogTail(trial_folder / "logs" / f"{COORDINATOR}.log").read_new_events()


def _read_training_plan(trial_folder: Path) -> TrainingPlan | None:
    """Return the plan of a trial; None if there is none that can be read."""
    try:
        plan = decode_plan((trial_folder / "plan.json").read_bytes())
    except (OSError, ValueError):
        return None
    return plan if isinstance(plan, TrainingPlan) else None


def _continue_attempt(
    plan: TrainingPlan, attempt_folder: Path, trial_folder: Path, unused: list[str]
) -> TrainingPlan | None:
    """Return the plan of an attempt that continues an interrupted one; None if no checkpoint can be used.

    The reasons are added to `unused`.
    """
    earlier_plan = _read_training_plan(attempt_folder)
    found = list(find_checkpoints(attempt_folder, earlier_plan)) if earlier_plan else []
    if found and plan.events:
        if UNUSED_BECAUSE_OF_EVENTS not in unused:  # of a newer attempt
            unused.append(UNUSED_BECAUSE_OF_EVENTS)
        return None
    workers = tuple(worker.name for worker in plan.node_plans_of_role("worker"))
    for earlier in _usable_checkpoints(found, unused):
        if earlier.workers != workers:  # lost under the policy `continue`
            names = ", ".join(earlier.workers)
            unused.append(
                f"checkpoint {earlier.checkpoint.folder}: it has only the workers {names}, because the others were lost"
            )
            continue
        record = ContinuedTraining(
            folder=f"{ATTEMPTS_FOLDER}/{attempt_folder.name}",
            is_attempt=True,
            step=earlier.step,
            workers=len(earlier.workers),
            is_target_reached=_has_reached_target(earlier, attempt_folder),
        )
        if continued := _make_continued_plan(earlier, plan, record, trial_folder, unused):
            return continued
    return None


def _usable_checkpoints(
    found: Sequence[EarlierTraining | CheckpointError], unused: list[str]
) -> Iterator[EarlierTraining]:
    """Yield the checkpoints without an error; the errors are added to `unused` on the way."""
    for each in found:
        if isinstance(each, CheckpointError):
            unused.append(str(each))
        else:
            yield each


def _make_continued_plan(
    earlier: EarlierTraining, plan: TrainingPlan, record: ContinuedTraining, trial_folder: Path, unused: list[str]
) -> TrainingPlan | None:
    """Write the checkpoint with which a trial begins, and return its plan; None if a file of the earlier is damaged."""
    record = record.model_copy(update={"unused_checkpoints": tuple(unused)})
    continued = plan.model_copy(update={"continued": record})
    try:
        write_initial_checkpoint(earlier, continued, trial_folder)
    except CheckpointError as error:
        if not error.path.is_relative_to(earlier.checkpoint.folder):
            raise  # the new file can't be written
        unused.append(str(error))
        return None
    return continued


def _has_reached_target(earlier: EarlierTraining, attempt_folder: Path) -> bool:
    """Return whether an evaluation before a checkpoint reached the target, although training went on."""
    plan, target = earlier.plan, earlier.plan.target
    if target is None:
        return False
    evaluations = [event for event in _coordinator_events(attempt_folder) if event["key"] == "eval_metrics"]
    return (plan.continued is not None and plan.continued.is_target_reached) or any(
        target.is_reached(event["value"]) for event in evaluations if event["metadata"]["step"] < earlier.step
    )


def _continue_earlier_trial(
    plan: TrainingPlan, earlier_folder: Path, trial_folder: Path, unused: list[str]
) -> TrainingPlan:
    """Return the plan of an attempt that continues the trial which the scenario names."""
    if reason := explain_unusable_initial(plan, earlier_folder):
        raise UserError(f"recovery.checkpoint.initial: {reason}")
    for earlier in _usable_checkpoints(_find_initial_checkpoints(plan, earlier_folder), unused):
        record = ContinuedTraining(
            folder=str(earlier_folder), is_attempt=False, step=earlier.step, workers=len(earlier.workers)
        )
        try:
            continued = _make_continued_plan(earlier, plan, record, trial_folder, unused)
        except UnsupportedWorkerChange as error:
            raise UserError(f"recovery.checkpoint.initial: {error}") from error
        if continued:
            return continued
    raise UserError(f"recovery.checkpoint.initial: no checkpoint can be used: {'; '.join(unused)}")


def _find_initial_checkpoints(plan: TrainingPlan, earlier_folder: Path) -> list[EarlierTraining | CheckpointError]:
    """Return the checkpoints of an earlier trial before the last step of a trial, the newest first."""
    earlier = _read_training_plan(earlier_folder)
    found = find_checkpoints(earlier_folder, earlier) if earlier else ()
    return [each for each in found if isinstance(each, CheckpointError) or each.step < plan.steps]


def explain_unusable_initial(plan: Plan, earlier_folder: Path) -> str:
    """Return why a trial can't begin with a checkpoint of an earlier trial, and the remedy; empty if it can.

    The data of the files of a checkpoint are not read.
    """
    earlier = _read_training_plan(earlier_folder)
    if earlier is None or not isinstance(plan, TrainingPlan):
        return (
            f"{path_for_messages(earlier_folder)} has no readable plan.json of a training; write the folder of a trial "
            "in a run folder, such as runs/mine/20260102T030405Z-abcd/trials/001-ring-w4-r0"
        )
    found = _find_initial_checkpoints(plan, earlier_folder)
    checkpoint = next((each for each in found if isinstance(each, EarlierTraining)), None)
    if checkpoint is None:
        errors = "".join(f" ({each})" for each in found)
        return (
            f"{path_for_messages(earlier_folder)} has no complete checkpoint before step {plan.steps}, the last one of "
            f"this trial{errors}; name a trial that has one"
        )
    return explain_training_difference(earlier, plan, len(checkpoint.workers))
