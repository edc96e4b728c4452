"""Check that trials can begin with the checkpoint of the earlier trial that the scenario names."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from compose.runs.trials.continued_trials import explain_unusable_initial
from compose.scenario_files.swept_trial import SweptTrial
from services.scenario.run_settings import EngineName
from services.scenario.sweep import SweepPoint
from services.schema.conflicts import KeyConflict

KEY_PATH = ("recovery", "checkpoint", "initial")


def find_unusable_initial_checkpoints(
    trials: Sequence[SweptTrial], resolve_engine_name: Callable[[], EngineName]
) -> Iterator[tuple[KeyConflict, SweepPoint]]:
    """Yield a conflict for each strategy that can't continue the earlier trial, with the swept values of its trial.

    Args:
        trials: all trials to check.
        resolve_engine_name: returns the engine that will run the trials; it is called only if there is such a key.
    """
    conflicts: dict[str, tuple[KeyConflict, SweepPoint]] = {}
    for swept in trials:
        checkpoint = swept.trial.scenario.recovery.checkpoint
        if checkpoint is None or checkpoint.initial is None:
            continue
        reason = _explain_keys(swept, checkpoint.initial) or explain_unusable_initial(
            swept.plan_without_events(resolve_engine_name()), Path(checkpoint.initial)
        )
        if reason and swept.trial.label not in conflicts:
            name = "the baseline" if swept.trial.baseline else f"strategy {swept.trial.label}"
            message = f"{name} can't continue the earlier trial: {reason}"
            if swept.trial.baseline:
                message += "; or write baseline: false"
            conflicts[swept.trial.label] = (KeyConflict(KEY_PATH, message), swept.identity.sweep_point)
    yield from conflicts.values()


def _explain_keys(swept: SweptTrial, initial: str) -> str:
    """Return which other key of the scenario makes the key impossible, and the remedy; empty if none does."""
    if not Path(initial).is_absolute():
        return f"{initial} is a relative path; write an absolute path in a sweep"
    if swept.declared.repeats > 1:
        return f"its checkpoint has one seed, and the scenario has {swept.declared.repeats} repeats; write repeats: 1"
    return ""
