"""Record of a strategy that was chosen among candidates: their predictions, their probes, and the chosen one."""

from typing import Self

from pydantic import Field

from services.compressors import SumQuality
from services.schema.component import FrozenRecord
from services.strategies import AnyCandidate
from services.strategies.auto import QualityGuard

# A candidate with a better quality, or earlier in the list, is chosen if its step is at most this share longer.
NEGLIGIBLE_SHARE = 0.01
MIN_PROBED_PERIODS = 3  # of local steps: the median of three periods is not disturbed by a single slow one


class CandidateRecord(FrozenRecord):
    """One candidate: its prediction, and its measured step if it was probed. Times are virtual seconds."""

    name: str  # kind, and keys that differ from the defaults
    strategy: AnyCandidate  # as declared, or as in the default list
    quality: SumQuality
    impossible_reason: str = ""  # why the trial cannot use this candidate; empty: it can
    predicted_step_s: float | None = None  # mean over the budget of the trial; None for an impossible candidate
    estimate_reason: str = ""  # why no closed form describes the training time, so that it is an estimate
    exchange_period: int = 1  # steps from one exchange to the next
    resize_period: int = 0  # steps after which the shares of a batch may change; 0: never
    # Part of `predicted_step_s` by which the first steps are longer, because messages are larger or workers have equal
    # shares of a batch until they have measured their speeds.
    warm_up_step_s: float = 0.0
    # Measured on whole batches after the warm-up, plus `warm_up_step_s`; None: not probed, or the probe failed.
    probe_step_s: float | None = None
    probe_failure: str = ""  # why the probe has no result

    @property
    def was_probed(self) -> bool:
        """Whether a probe of this candidate has run."""
        return self.probe_step_s is not None or bool(self.probe_failure)


class StrategyChoice(FrozenRecord):
    """Choice among candidates: predicted in the plan, and corrected by the measured steps of probes."""

    guard: QualityGuard
    probes: int  # largest number of candidates to probe
    probe_steps: int
    margin: float  # share by which the predicted step of a probed candidate may be longer than the least
    candidates: tuple[CandidateRecord, ...] = Field(min_length=1)
    chosen: int  # number of the candidate that the trial uses
    is_final: bool = False  # whether probes have run, or none was needed

    @classmethod
    def by_prediction(
        cls, guard: QualityGuard, probes: int, probe_steps: int, margin: float, candidates: tuple[CandidateRecord, ...]
    ) -> Self:
        """Return the choice of the candidate with the least predicted step time."""
        choice = cls(
            guard=guard, probes=probes, probe_steps=probe_steps, margin=margin, candidates=candidates, chosen=0
        )
        return choice.model_copy(update={"chosen": _first_of_fastest(choice.predicted_s_by_number)})

    @property
    def chosen_candidate(self) -> CandidateRecord:
        """The candidate that the trial uses."""
        return self.candidates[self.chosen]

    @property
    def predicted_s_by_number(self) -> dict[int, float]:
        """Predicted step times of the possible candidates by number, that of the shortest step first."""
        seconds = [(each.predicted_step_s, number) for number, each in enumerate(self.candidates)]
        return {number: step_s for step_s, number in sorted((s, number) for s, number in seconds if s is not None)}

    @property
    def numbers_to_probe(self) -> list[int]:
        """Numbers of the candidates that probes compare, before the choice is final.

        They are the candidate chosen by prediction, and those with the least predicted steps. Empty if a single
        candidate is within the margin.
        """
        seconds = self.predicted_s_by_number
        longest_s = (1 + self.margin) * min(seconds.values())
        close = [number for number, step_s in seconds.items() if step_s <= longest_s and number != self.chosen]
        return [self.chosen, *close][: self.probes] if close and self.probes > 1 else []

    def count_probe_steps(self, number: int) -> int:
        """Return the number of training steps of the probe of a candidate: whole periods.

        If the shares of a batch may change, the steps before the first change are added, because they do not count.
        """
        candidate = self.candidates[number]
        period = max(candidate.exchange_period, candidate.resize_period)
        periods = max(-(-self.probe_steps // period), MIN_PROBED_PERIODS if period > 1 else 1)
        return periods * period + candidate.resize_period

    def add_probe(self, number: int, step_s: float | None, failure: str) -> Self:
        """Return this choice with the result of a probe: a measured step in virtual seconds, or a failure.

        A measured step is one after the warm-up. The predicted mean time of the warm-up is added, so that the step is a
        mean over the budget of the trial.
        """
        candidate = self.candidates[number]
        mean_step_s = None if step_s is None else step_s + candidate.warm_up_step_s
        probed = candidate.model_copy(update={"probe_step_s": mean_step_s, "probe_failure": failure})
        return self.model_copy(
            update={"candidates": (*self.candidates[:number], probed, *self.candidates[number + 1 :])}
        )

    def finish(self) -> Self:
        """Return the final choice: the candidate with the least measured step, without probes that by prediction."""
        measured = {
            number: each.probe_step_s for number, each in enumerate(self.candidates) if each.probe_step_s is not None
        }
        chosen = _first_of_fastest(measured) if measured else self.chosen
        return self.model_copy(update={"chosen": chosen, "is_final": True})

    def explain(self, number: int) -> str:
        """Return why a candidate was or was not chosen."""
        candidate = self.candidates[number]
        if candidate.impossible_reason:
            return f"not possible: {candidate.impossible_reason}"
        if number == self.chosen:
            failure = f"; its probe failed: {candidate.probe_failure}" if candidate.probe_failure else ""
            return f"chosen{'' if candidate.probe_step_s is not None else ' by prediction'}{failure}"
        if candidate.probe_failure:
            return f"probe failed: {candidate.probe_failure}"
        if candidate.probe_step_s is not None:
            return f"probed, {self._compare(number, candidate.probe_step_s, self.chosen_candidate.probe_step_s)}"
        if not self.is_final and number in self.numbers_to_probe:
            return "to be probed"
        comparison = self._compare(number, candidate.predicted_step_s, self.chosen_candidate.predicted_step_s)
        return f"predicted {comparison}"

    def _compare(self, number: int, step_s: float | None, chosen_step_s: float | None) -> str:
        """Return how the step of a candidate compares with that of the chosen candidate."""
        if not step_s or not chosen_step_s:
            return "without a comparison"
        percentage = 100 * (step_s / chosen_step_s - 1)
        if abs(percentage) <= 100 * NEGLIGIBLE_SHARE and number > self.chosen:
            return f"at most {NEGLIGIBLE_SHARE:.0%} different, later in the list"
        digits = 0 if abs(percentage) >= 10 else 1  # noqa: PLR2004 - two significant digits
        return f"{abs(percentage):.{digits}f}% {'faster' if percentage < 0 else 'slower'}"


def _first_of_fastest(seconds_by_number: dict[int, float]) -> int:
    """Return the first number whose time is at most negligibly longer than the least."""
    longest_s = (1 + NEGLIGIBLE_SHARE) * min(seconds_by_number.values())
    return next(number for number, seconds in sorted(seconds_by_number.items()) if seconds <= longest_s)
