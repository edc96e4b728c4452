"""What does a swept condition do to each strategy?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.result import Group
from analysis.summary import Summary
from analysis.wording import number


@dataclass(frozen=True)
class Effect:
    """One strategy on one number of workers under the two conditions that differ most."""

    before: Group
    after: Group

    @property
    def strategy(self) -> str:
        """Its label in the scenario."""
        return self.before.strategy

    @property
    def ratio(self) -> float:
        """Time for the same samples after / before."""
        return cost_s(self.after) / cost_s(self.before)


def ladders(summary: Summary) -> list[list[Group]]:
    """By strategy, the groups on its most workers under two or more conditions, in the scenario's order."""
    found = []
    for strategy in summary.strategies:
        own = [group for group in summary.groups if group.strategy == strategy]
        most = max((group.workers for group in own), default=0)
        ladder = [group for group in own if group.workers == most]
        if len(ladder) > 1:
            found.append(sorted(ladder, key=lambda group: summary.conditions.index(group.condition)))
    return found


def effects(found: Sequence[Sequence[Group]]) -> list[Effect]:
    """Every strategy between the two conditions that differ most for anybody; the least affected first."""
    pairs = [_extremes(ladder) for ladder in found if all(cost_s(group) for group in ladder)]
    if not pairs:
        return []
    low, high = max(pairs, key=lambda pair: Effect(*pair).ratio)
    ends = low.condition, high.condition
    return sorted(_between(found, *ends), key=lambda effect: effect.ratio)


def finding(summary: Summary) -> str:
    """As in "from uplink 2gbit to uplink 1gbit, the same samples take 1.0 times as long with aware, 1.9 with flat"."""
    told = effects(ladders(summary))
    if not told:
        return ""
    least, *others = told
    parts = [f"{number(least.ratio)} times as long with {least.strategy}"]
    parts += [f"{number(effect.ratio)} with {effect.strategy}" for effect in others]
    return f"from {least.before.condition} to {least.after.condition}, the same samples take {', '.join(parts)}"


def cost_s(group: Group) -> float:
    """Seconds per sample, mean over the repeats; all workers together."""
    return float(group.seconds_per_sample.mean())


def _extremes(ladder: Sequence[Group]) -> tuple[Group, Group]:
    ranked = sorted(ladder, key=cost_s)
    return ranked[0], ranked[-1]


def _between(found: Sequence[Sequence[Group]], first: str, last: str) -> Iterator[Effect]:
    for ladder in found:
        by_condition = {group.condition: group for group in ladder}
        if {first, last} <= by_condition.keys() and cost_s(by_condition[first]):
            yield Effect(by_condition[first], by_condition[last])
