"""Gates of the benchmark: each limit, what was measured, and whether the limit is met."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.recovery.cases import (
    MAX_GOODPUT_ERROR,
    MAX_LOSS_DEVIATIONS,
    MAX_RECOVERY_S,
    MAX_RETURN_S,
)
from benchmarks.recovery.kill_outcomes import KillOutcome
from benchmarks.recovery.measurements import LongTrial, RecoveryMeasurements
from benchmarks.recovery.trials import MeasuredTrial

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Gate:
    """One limit, and whether it is met."""

    description: str
    measured: str
    limit: str
    is_met: bool


def list_gates(measured: RecoveryMeasurements) -> Iterator[Gate]:
    """Yield all gates of the benchmark."""
    continued, rejoined = measured.continued, measured.rejoined
    yield from _training_gates("`continue`, 4 → 3 workers", continued)
    yield _time_gate("`continue`: kill to last worker that continues", continued, _recovery_s, MAX_RECOVERY_S)
    yield from _training_gates("`rejoin`, 4 → 3 → 4 workers", rejoined)
    yield _time_gate("`rejoin`: kill to first step of all four workers", rejoined, _return_s, MAX_RETURN_S)
    if measured.long is not None:
        yield from _list_long_gates(measured.long)


def _training_gates(name: str, trials: Sequence[MeasuredTrial]) -> Iterator[Gate]:
    yield _count_gate(f"{name}: target reached", [trial.reaches_target for trial in trials])
    yield _count_gate(f"{name}: samples equal the budget", [trial.uses_budget_exactly for trial in trials])


def _count_gate(description: str, is_met: Sequence[bool]) -> Gate:
    return Gate(description, f"{sum(is_met)} of {len(is_met)} trials", "all trials", all(is_met))


def _recovery_s(outcome: KillOutcome) -> float | None:
    return outcome.recovery_s


def _return_s(outcome: KillOutcome) -> float | None:
    return outcome.return_s


def _time_gate(
    description: str,
    trials: Sequence[MeasuredTrial],
    seconds_of: Callable[[KillOutcome], float | None],
    at_most_s: float,
) -> Gate:
    """Return the gate of a time that every kill must keep; a kill without it misses the gate."""
    seconds = [seconds_of(outcome) for trial in trials for outcome in trial.outcomes]
    is_met = len(seconds) == len(trials) and all(value is not None and value <= at_most_s for value in seconds)
    return Gate(description, f"{describe_seconds(seconds)} s", f"every kill ≤ {at_most_s:g} s", is_met)


def describe_seconds(seconds: Sequence[float | None]) -> str:
    """Return the median and the range of seconds, and how many are missing."""
    known = [value for value in seconds if value is not None]
    if not known:
        return NOT_MEASURED
    missing = f", {len(seconds) - len(known)} missing" if len(known) < len(seconds) else ""
    return f"{median(known):.2f} ({min(known):.2f} – {max(known):.2f}){missing}"


def _list_long_gates(long: LongTrial) -> Iterator[Gate]:
    trial, name = long.trial, f"{long.declared_kills} kills of 8 workers"
    yield Gate(
        f"{name}: kills that ended a process",
        str(len(trial.outcomes)),
        str(long.declared_kills),
        len(trial.outcomes) == long.declared_kills,
    )
    yield _count_gate(f"{name}: target reached", [trial.reaches_target])
    yield Gate(
        f"{name}: samples that count", f"{trial.result.samples:,}", f"{trial.budget:,}", trial.uses_budget_exactly
    )
    if not trial.result.is_finished or trial.result.goodput.share is None:
        reason = trial.result.status_reason or trial.result.goodput.reason
        yield Gate(f"{name}: final loss and goodput", f"{NOT_MEASURED}: {reason}", "measured", is_met=False)
        return
    yield Gate(
        f"{name}: final loss, from the mean of undisturbed seeds",
        f"{long.loss_deviations:+.2f} standard deviations",
        f"± {MAX_LOSS_DEVIATIONS:g}",
        long.has_loss_of_other_seeds,
    )
    yield Gate(
        f"{name}: goodput / closed form",
        f"{trial.result.goodput.share:.4f} / {long.expected.goodput:.4f} = {1 + long.goodput_error:.3f}",
        f"1 ± {MAX_GOODPUT_ERROR:g}",
        abs(long.goodput_error) <= MAX_GOODPUT_ERROR,
    )
