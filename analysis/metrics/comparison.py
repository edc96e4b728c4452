"""Which differences between strategies hold over the repeats, and does any learn too well to be true?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from analysis.results.result import (
    TimeMetric,
    TrialGroup,
    choose_time_metric,
    find_baseline,
    have_same_seeds,
    restrict_to_shared_seeds,
)
from analysis.statistics.guard import Convergence, convergence
from analysis.statistics.holm import holm
from analysis.statistics.paired import Comparison, compare


@dataclass(frozen=True)
class Difference:
    """Two strategies on as many workers under one condition, paired by the seeds that both ran to their end."""

    ours: TrialGroup
    theirs: TrialGroup
    of: TimeMetric
    found: Comparison
    p_adjusted: float  # for all comparisons of the run (Holm)

    @property
    def partial(self) -> bool:
        """Whether some repeats have no partner, such as one whose other side failed."""
        return self.found.pairs < max(len(self.ours.trials), len(self.theirs.trials))


def differences(found: Sequence[TrialGroup]) -> tuple[Difference, ...]:
    """Every pair that shares two seeds or more and took time; the faster of a pair, over all repeats, comes first.

    By time to target where one of both ever reached it, else by seconds per sample.
    """
    pairs = [
        pair for pair in combinations([group for group in found if not group.is_baseline], 2) if _comparable(*pair)
    ]
    compared = [_compared(*pair) for pair in pairs]
    adjusted = holm(np.array([each.p_value for *_, each in compared]))
    return tuple(Difference(*each, float(p)) for each, p in zip(compared, adjusted, strict=True))


def difference_of(one: TrialGroup, other: TrialGroup, found: Iterable[Difference]) -> Difference | None:
    """What was found of these two, whichever is faster; None where they could not be paired."""
    names = {one.name, other.name}
    return next((each for each in found if {each.ours.name, each.theirs.name} == names), None)


def guards(found: Sequence[TrialGroup]) -> dict[str, Convergence]:
    """Samples-to-target of each repeated group beside its baseline's, by `Group.name`; p adjusted for all (Holm).

    What needs significantly fewer is suspicious: sharing work cannot make a sample teach more. Who has no baseline to
    be held against is left out; `unguarded` says why.
    """
    tested = {group.name: _guarded(group, found) for group in _repeated(found) if not _lack(group, found)}
    adjusted = holm(np.array([each.p_value for each in tested.values()]))
    return {name: replace(each, p_value=float(p)) for (name, each), p in zip(tested.items(), adjusted, strict=True)}


def unguarded(found: Sequence[TrialGroup]) -> str:
    """Why some that repeatedly reached the target are not held against a baseline; empty where all are."""
    lacks = dict.fromkeys(_lack(group, found) for group in _repeated(found) if group.has_reached_target)
    return " or ".join(filter(None, lacks))


def _repeated(found: Sequence[TrialGroup]) -> list[TrialGroup]:
    return [group for group in found if not group.is_baseline and len(group.trials) > 1]


def _lack(group: TrialGroup, found: Sequence[TrialGroup]) -> str:
    baseline = find_baseline(group, found)
    if baseline is None:
        return "no baseline"
    if len(baseline.trials) == 1:
        return "a baseline that ran once"
    return "" if np.isfinite(baseline.samples_to_target_by_seed).all() else "a baseline that missed its target"


def _guarded(group: TrialGroup, found: Sequence[TrialGroup]) -> Convergence:
    sides = (group, *filter(None, [find_baseline(group, found)]))
    samples, reference = (each.samples_to_target_by_seed for each in sides)
    ours, theirs = (each.evaluation_interval_samples for each in sides)
    return convergence(samples, reference, (ours, theirs))


def _comparable(one: TrialGroup, other: TrialGroup) -> bool:
    if (one.condition, one.workers) != (other.condition, other.workers):
        return False
    of, pair = choose_time_metric((one, other)), restrict_to_shared_seeds(one, other)
    return have_same_seeds(pair) and all(each.times_s(of).all() for each in pair)


def _compared(one: TrialGroup, other: TrialGroup) -> tuple[TrialGroup, TrialGroup, TimeMetric, Comparison]:
    of = choose_time_metric((one, other))
    if one.mean_time_s(of) > other.mean_time_s(of):
        one, other = other, one
    ours, theirs = restrict_to_shared_seeds(one, other)
    found = compare(
        ours.times_s(of), theirs.times_s(of), (ours.evaluation_interval_s(of), theirs.evaluation_interval_s(of))
    )
    return one, other, of, found
