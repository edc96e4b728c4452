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
    """Every strategy between the two conditions that differ most for anybody; the most affected first."""
    pairs = [(low, high) for ladder in found for low, high in [_extremes(ladder)]]
    if not pairs:
        return []
    low, high = max(pairs, key=lambda pair: Effect(*pair).ratio)
    ends = low.condition, high.condition
    return sorted(_between(found, *ends), key=lambda effect: -effect.ratio)


def finding(summary: Summary) -> str:
    """As in "from uplink 2gbit to uplink 1gbit, the same samples take 1.9 times as long with flat, 1.0 with aware"."""
    told = effects(ladders(summary))
    if not told:
        return ""
    most, *others = told
    parts = [f"{number(most.ratio)} times as long with {most.strategy}"]
    parts += [f"{number(effect.ratio)} with {effect.strategy}" for effect in others]
    return f"from {most.before.condition} to {most.after.condition}, the same samples take {', '.join(parts)}"


def cost_s(group: Group) -> float:
    """Seconds per sample, mean over the repeats; all workers together."""
    return float(group.seconds_per_sample.mean())


def _extremes(ladder: Sequence[Group]) -> tuple[Group, Group]:
    ranked = sorted(ladder, key=cost_s)
    return ranked[0], ranked[-1]


def _between(found: Sequence[Sequence[Group]], first: str, last: str) -> Iterator[Effect]:
    for ladder in found:
        by_condition = {group.condition: group for group in ladder}
        if {first, last} <= by_condition.keys():
            yield Effect(by_condition[first], by_condition[last])
