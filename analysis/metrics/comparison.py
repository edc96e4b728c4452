"""Which differences between strategies hold over the repeats, and does any learn too well to be true?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from analysis.results.result import Group, Of, baseline_of, basis, on_shared_seeds, same_seeds
from analysis.statistics.guard import Convergence, convergence
from analysis.statistics.holm import holm
from analysis.statistics.paired import Comparison, compare


@dataclass(frozen=True)
class Difference:
    """Two strategies on as many workers under one condition, paired by the seeds that both ran to their end."""

    ours: Group
    theirs: Group
    of: Of
    found: Comparison
    p_adjusted: float  # for all comparisons of the run (Holm)

    @property
    def partial(self) -> bool:
        """Whether some repeats have no partner, such as one whose other side failed."""
        return self.found.pairs < max(len(self.ours.trials), len(self.theirs.trials))


def differences(found: Sequence[Group]) -> tuple[Difference, ...]:
    """Every pair that shares two seeds or more and took time; the faster of a pair, over all repeats, comes first.

    By time to target where one of both ever reached it, else by seconds per sample.
    """
    pairs = [pair for pair in combinations([group for group in found if not group.baseline], 2) if _comparable(*pair)]
    compared = [_compared(*pair) for pair in pairs]
    adjusted = holm(np.array([each.p_value for *_, each in compared]))
    return tuple(Difference(*each, float(p)) for each, p in zip(compared, adjusted, strict=True))


def difference_of(one: Group, other: Group, found: Iterable[Difference]) -> Difference | None:
    """What was found of these two, whichever is faster; None where they could not be paired."""
    names = {one.name, other.name}
    return next((each for each in found if {each.ours.name, each.theirs.name} == names), None)


def guards(found: Sequence[Group]) -> dict[str, Convergence]:
    """Samples-to-target of each repeated group beside its baseline's, by `Group.name`; p adjusted for all (Holm).

    What needs significantly fewer is suspicious: sharing work cannot make a sample teach more. Who has no baseline to
    be held against is left out; `unguarded` says why.
    """
    tested = {group.name: _guarded(group, found) for group in _repeated(found) if not _lack(group, found)}
    adjusted = holm(np.array([each.p_value for each in tested.values()]))
    return {name: replace(each, p_value=float(p)) for (name, each), p in zip(tested.items(), adjusted, strict=True)}


def unguarded(found: Sequence[Group]) -> str:
    """Why some that repeatedly reached the target are not held against a baseline; empty where all are."""
    lacks = dict.fromkeys(_lack(group, found) for group in _repeated(found) if group.reached)
    return " or ".join(filter(None, lacks))


def _repeated(found: Sequence[Group]) -> list[Group]:
    return [group for group in found if not group.baseline and len(group.trials) > 1]


def _lack(group: Group, found: Sequence[Group]) -> str:
    baseline = baseline_of(group, found)
    if baseline is None:
        return "no baseline"
    if len(baseline.trials) == 1:
        return "a baseline that ran once"
    return "" if np.isfinite(baseline.samples_by_repeat).all() else "a baseline that missed its target"


def _guarded(group: Group, found: Sequence[Group]) -> Convergence:
    sides = (group, *filter(None, [baseline_of(group, found)]))
    samples, reference = (each.samples_by_repeat for each in sides)
    ours, theirs = (each.evaluation_samples for each in sides)
    return convergence(samples, reference, (ours, theirs))


def _comparable(one: Group, other: Group) -> bool:
    if (one.condition, one.workers) != (other.condition, other.workers):
        return False
    of, pair = basis((one, other)), on_shared_seeds(one, other)
    return same_seeds(pair) and all(each.times(of).all() for each in pair)


def _compared(one: Group, other: Group) -> tuple[Group, Group, Of, Comparison]:
    of = basis((one, other))
    if one.seconds(of) > other.seconds(of):
        one, other = other, one
    ours, theirs = on_shared_seeds(one, other)
    found = compare(ours.times(of), theirs.times(of), (ours.evaluation(of), theirs.evaluation(of)))
    return one, other, of, found
