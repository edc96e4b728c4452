"""Metrics in the lines that a command writes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class MetricPatterns:
    """Regular expressions that find the values of metrics in a line."""

    pattern_by_metric: Mapping[str, str]  # each with one group, for the number

    def find_values(self, line: str) -> dict[str, float]:
        """Return the metrics that a line states, by name; a text that is no number is left out."""
        values: dict[str, float] = {}
        for metric, expression in self._expressions.items():
            if (match := expression.search(line)) and (value := _to_number(match[1])) is not None:
                values[metric] = value
        return values

    @cached_property
    def _expressions(self) -> dict[str, re.Pattern[str]]:
        return {metric: re.compile(pattern) for metric, pattern in self.pattern_by_metric.items()}


def _to_number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
