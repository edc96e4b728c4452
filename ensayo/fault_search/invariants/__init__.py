"""Invariants that hold in every simulated trial, whatever its fault schedule.

Each invariant is a function that yields one sentence for each violation.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from ensayo.fault_search.fault_schedule import FaultSchedule
from ensayo.fault_search.invariants.checkpoints import find_missed_checkpoints
from ensayo.fault_search.invariants.conservation import find_lost_gradients
from ensayo.fault_search.invariants.ends import find_missing_end
from ensayo.fault_search.invariants.pushes import find_repeated_or_lost_pushes
from ensayo.fault_search.invariants.replicas import find_changed_result, find_unequal_replicas
from ensayo.fault_search.invariants.samples import find_wrong_sample_counts
from ensayo.fault_search.simulation import TrialEvidence, simulate_schedule

Invariant: TypeAlias = Callable[[TrialEvidence], Iterator[str]]

INVARIANTS_OF_FINISHED_TRIALS: dict[str, Invariant] = {
    "samples_equal_budget": find_wrong_sample_counts,
    "pushes_applied_once": find_repeated_or_lost_pushes,
    "replicas_are_equal": find_unequal_replicas,
    "timing_changes_no_bit": find_changed_result,
    "gradients_are_conserved": find_lost_gradients,
    "checkpoints_are_written": find_missed_checkpoints,
}
ENDS = "trial_ends"
REPLAYS = "replay_is_identical"
REPLAY_EVERY = 10  # seeds: a replay takes as long as the trial


class Violation(NamedTuple):
    """Invariant that a trial violates, and how."""

    invariant: str
    explanation: str


def find_violation(schedule: FaultSchedule) -> Violation | None:
    """Simulate a fault schedule, and return the first violated invariant; None if all hold."""
    evidence = simulate_schedule(schedule)
    for explanation in find_missing_end(evidence):
        return Violation(ENDS, explanation)
    if schedule.seed % REPLAY_EVERY == 0 and simulate_schedule(schedule).digest != evidence.digest:
        return Violation(REPLAYS, "two simulations of this schedule wrote different logs")
    if evidence.error is not None:
        return None
    for name, find_violations in INVARIANTS_OF_FINISHED_TRIALS.items():
        for explanation in find_violations(evidence):
            return Violation(name, explanation)
    return None
