"""Rules for the value of a log line."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

ROUNDING_TOLERANCE = 1e-5  # a quotient of decimal numbers that is this close to a whole number counts as whole


class LoggedValueRule(NamedTuple):
    """Rule for the value of a log line: a predicate, and a text that describes the allowed values.

    The text is used in messages.
    """

    description: str
    predicate: Callable[[Any], bool]

    def is_applicable_to(self, logged_value: Any) -> bool:
        """Return whether the predicate of this rule can be computed for a value.

        A numeric bound, for example, needs a number.
        """
        try:
            self.predicate(logged_value)
        except (TypeError, KeyError):
            return False
        return True

    def accepts(self, logged_value: Any) -> bool:
        """Return whether a value satisfies the rule.

        Return False if the predicate cannot be computed for the value.
        """
        try:
            return bool(self.predicate(logged_value))
        except (TypeError, KeyError, ValueError, ArithmeticError):
            return False


ANY_VALUE = LoggedValueRule("anything", lambda _value: True)
NOT_EMPTY = LoggedValueRule("not empty", lambda value: value != "")


def make_allowed_values_rule(*allowed_values: float | str) -> LoggedValueRule:
    """Return the rule that a value must be one of `allowed_values`."""
    return LoggedValueRule(" or ".join(str(value) for value in allowed_values), lambda value: value in allowed_values)


def rule_at_least(lower_bound: float) -> LoggedValueRule:
    """Return the rule that a value must be at least `lower_bound`."""
    return LoggedValueRule(f"at least {lower_bound:g}", lambda value: value >= lower_bound)


def rule_greater_than(lower_bound: float) -> LoggedValueRule:
    """Return the rule that a value must be greater than `lower_bound`."""
    return LoggedValueRule(f"above {lower_bound:g}", lambda value: value > lower_bound)


def right_open_range_rule(low: float, high: float) -> LoggedValueRule:
    """Return the rule that a value must be at least `low` and below `high`."""
    return LoggedValueRule(f"from {low:g} to below {high:g}", lambda value: low <= value < high)


def closed_range_rule(low: float, high: float) -> LoggedValueRule:
    """Return the rule that a value must be at least `low` and at most `high`."""
    return LoggedValueRule(f"from {low:g} to {high:g}", lambda value: low <= value <= high)


def left_open_range_rule(low: float, high: float) -> LoggedValueRule:
    """Return the rule that a value must be above `low` and at most `high`."""
    return LoggedValueRule(f"of {high:g} or less, above {low:g}", lambda value: low < value <= high)


def multiple_of_rule(unit: float) -> LoggedValueRule:
    """Return the rule that a value must be a whole multiple of `unit`."""
    return LoggedValueRule(f"a multiple of {unit:g}", lambda value: is_whole(value / unit))


def power_of_two_times_rule(unit: float) -> LoggedValueRule:
    """Return the rule that a value must be `unit`, multiplied or divided by a power of two."""
    return LoggedValueRule(f"{unit:g} times a power of two", lambda value: is_whole(math.log2(value / unit)))


def is_whole(number: float) -> bool:
    """Return whether a number is whole, except for the rounding of a division."""
    return abs(round(number) - number) < ROUNDING_TOLERANCE
