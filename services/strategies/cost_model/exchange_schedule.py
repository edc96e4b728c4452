"""Steps after which workers exchange vectors, where they do not exchange after every step."""

from math import gcd
from typing import NamedTuple


class ExchangeSchedule(NamedTuple):
    """Schedule of exchanges that are spread evenly over the steps of a period.

    With H steps and P exchanges per period, exchange k = 1, 2, … follows after ⌈k·H/P⌉ steps. So the steps from one
    exchange to the next differ by one at most, and every P-th exchange follows exactly H steps later.
    """

    period: int  # steps
    exchanges: int = 1  # per period; at most `period`

    def reduce(self) -> "ExchangeSchedule":
        """Return the same schedule with the shortest period; it has one exchange if all distances are equal."""
        divisor = gcd(self.period, self.exchanges)
        return ExchangeSchedule(self.period // divisor, self.exchanges // divisor)

    @property
    def mean_steps_per_exchange(self) -> float:
        """Mean steps from one exchange to the next."""
        return self.period / self.exchanges

    @property
    def min_steps_per_exchange(self) -> int:
        """Fewest steps from one exchange to the next."""
        return self.period // self.exchanges

    def steps_before_exchange(self, earlier_exchanges: int) -> int:
        """Return the steps from the exchange before to the next one, given the number of earlier exchanges."""
        return self._steps_until(earlier_exchanges + 1) - self._steps_until(earlier_exchanges)

    def steps_since_exchange(self, step_count: int) -> int:
        """Return the steps since the last exchange, after `step_count` steps."""
        return step_count - self._steps_until(self.count_exchanges(step_count))

    def count_exchanges(self, step_count: int, *, ends_with_exchange: bool = False) -> int:
        """Return the number of exchanges in `step_count` steps.

        With `ends_with_exchange`, one more follows after the last step if the schedule has none there.
        """
        count = step_count * self.exchanges // self.period
        return count + (ends_with_exchange and step_count > self._steps_until(count))

    def list_round_starts(self, step_count: int) -> list[int]:
        """Return the numbers of the steps that follow an exchange, and of the first step, among `step_count` steps."""
        starts = (self._steps_until(number) for number in range(self.count_exchanges(step_count) + 1))
        return [start for start in starts if start < step_count]

    def _steps_until(self, exchange: int) -> int:
        return -(-exchange * self.period // self.exchanges)  # rounded up
