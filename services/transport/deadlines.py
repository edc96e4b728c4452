"""Timer for the deadlines of repeated operations.

This timer is cheaper than one event-loop timer per message.
"""

import asyncio
from collections.abc import Callable


class DeadlineTimer:
    """Timer that calls `on_timeout` if an operation does not finish in time.

    It can be used for many operations.
    """

    def __init__(self, timeout_wall_s: float, on_timeout: Callable[[], object]) -> None:
        self._timeout_wall_s = timeout_wall_s
        self._on_timeout = on_timeout
        self._deadline: float | None = None
        self._is_scheduled = False

    def start(self) -> None:
        """Start the time limit of an operation."""
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._timeout_wall_s
        if not self._is_scheduled:
            self._schedule_check(self._timeout_wall_s)

    def stop(self) -> None:
        """Stop the time limit, because the operation has finished in time."""
        self._deadline = None

    def _schedule_check(self, delay_s: float) -> None:
        self._is_scheduled = True
        asyncio.get_running_loop().call_later(delay_s, self._check_deadline)

    def _check_deadline(self) -> None:
        """Call `on_timeout` if the deadline of the current operation has passed.

        Otherwise check again later.
        """
        self._is_scheduled = False
        if self._deadline is None:
            return
        remaining_s = self._deadline - asyncio.get_running_loop().time()
        if remaining_s > 0:
            self._schedule_check(remaining_s)
        else:
            self._on_timeout()
