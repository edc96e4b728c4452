"""Metrics in the lines that a command writes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

MAX_SHOWN_LENGTH = 200  # characters of a line in a note
EXPONENT = re.compile(r"[eE][+-]?[0-9]+")


@dataclass(frozen=True)
class MetricPatterns:
    """Regular expressions that find the values of metrics in a line."""

    pattern_by_metric: Mapping[str, str]  # each with one group, for the number

    def find_values(self, line: str) -> dict[str, float]:
        """Return the metrics that a line states, by name; a text that is no number is left out."""
        values: dict[str, float] = {}
        for metric, expression in self._expressions.items():
            if (match := expression.search(line)) and (value := _to_number(_number_text(match))) is not None:
                values[metric] = value
        return values

    @cached_property
    def _expressions(self) -> dict[str, re.Pattern[str]]:
        return {metric: re.compile(pattern) for metric, pattern in self.pattern_by_metric.items()}


def explain_missing_metrics(metrics: Sequence[str], last_lines: Iterable[str]) -> str:
    """Return a note on metrics for which no line of the command had a number, with the last lines of its output."""
    names = " and ".join(f"metrics.{name}" for name in metrics)
    shown = " | ".join(line[:MAX_SHOWN_LENGTH] for line in last_lines)
    text = f"no line of rank 0 matched {names} with a number"
    return f"{text}; its last lines were: {shown}" if shown else f"{text}: it wrote no lines"


def _number_text(match: re.Match[str]) -> str | None:
    """Return the text of the group, with an exponent that follows it: [0-9.]+ matches only the 5.8 of 5.8e-07."""
    exponent = EXPONENT.match(match.string, match.end(1)) if match[1] else None
    return match[1] if exponent is None else match[1] + exponent[0]


def _to_number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
