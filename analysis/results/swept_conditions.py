"""What does a swept condition do to each strategy?"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from analysis.report.wording import listed, number
from analysis.results.result import Group
from analysis.results.summary import Summary

ENDS = ("before", "after")
MOST = 4  # strategies of which a sentence tells each


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
    if len(told) == 1 and len(ladder := _longest(summary)) > len(ENDS):
        return _step_by_step(ladder)
    least, *others = told
    parts = [f"{number(least.ratio)} times as long with {least.strategy}"]
    shown, rest = (others, "") if len(others) < MOST else (others[-1:], ", others in between")
    parts += [f"{number(effect.ratio)} with {effect.strategy}{rest}" for effect in shown]
    return f"from {least.before.condition} to {least.after.condition}, the same samples take {', '.join(parts)}"


def _longest(summary: Summary) -> list[Group]:
    return max(ladders(summary), key=len)


def _step_by_step(ladder: Sequence[Group]) -> str:
    """Of one strategy under three conditions or more each, beside the first: how much another step brings."""
    first, *others = ladder
    ratios = listed(number(cost_s(group) / cost_s(first)) for group in others)
    under = listed(values(group.condition for group in others))
    return f"with {under} the same samples take {first.strategy} {ratios} times as long as with {first.condition}"


def values(conditions: Iterable[str]) -> list[str]:
    """Conditions with the key that is swept told once: "fraction 0.0", "0.125"."""
    names = list(conditions)
    keys = {name.rpartition(" ")[0] for name in names}
    return [*names[:1], *(name.rpartition(" ")[2] for name in names[1:])] if len(keys) == 1 else names


def cost_s(group: Group) -> float:
    """Seconds per sample, olympic mean over the repeats; all workers together."""
    return group.seconds("time_to_samples")


def _extremes(ladder: Sequence[Group]) -> tuple[Group, Group]:
    ranked = sorted(ladder, key=cost_s)
    return ranked[0], ranked[-1]


def _between(found: Sequence[Sequence[Group]], first: str, last: str) -> Iterator[Effect]:
    for ladder in found:
        by_condition = {group.condition: group for group in ladder}
        if {first, last} <= by_condition.keys() and cost_s(by_condition[first]):
            yield Effect(by_condition[first], by_condition[last])
