"""Intervals of time, and the seconds that they cover together."""

from collections.abc import Iterable
from typing import TypeAlias

Interval: TypeAlias = tuple[float, float]  # begin and end, in seconds


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """Return disjoint intervals that cover the same time, in order."""
    merged: list[Interval] = []
    for begin, end in sorted(interval for interval in intervals if interval[0] < interval[1]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def covered_seconds(intervals: Iterable[Interval]) -> float:
    """Return the seconds that lie in at least one interval."""
    return sum(end - begin for begin, end in merge(intervals))


def seconds_outside(intervals: Iterable[Interval], others: Iterable[Interval]) -> float:
    """Return the seconds that lie in at least one interval and in none of the others."""
    others = list(others)
    return covered_seconds([*intervals, *others]) - covered_seconds(others)
