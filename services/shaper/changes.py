"""Schedule of the changes of one link.

Changes are applied one after another, in the order of their times. A change has a number. A second request with the
same number replaces the first one, if it comes before the time of the change: the engine has learned of another event
that comes earlier.
"""

import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from services.runtime.scheduling import reduce_wakeup_latency

SPIN_BEFORE_S = 0.001  # length of the busy wait before a change: a sleep may end late
CommandWithInput = tuple[list[str], str]  # a command and its input
Response = dict[str, Any]
NOT_APPLIED: Response = {"applied": None}


class ScheduledLinkChange:
    """Scheduled change of a link: programs to run and new packet delays.

    The programs start early and act when they get input. A change is applied once or cancelled; `result` has the
    response.
    """

    def __init__(self, number: int, moment: float, programs: list[CommandWithInput], delays: dict[str, Any]) -> None:
        self.number, self.moment, self.result = number, moment, Future[Response]()
        self._processes = [(_start_program(command), input_text) for command, input_text in programs]
        self._delays = delays

    def apply_at_scheduled_time(self, send_delay_settings: Callable[[dict[str, Any]], object]) -> None:
        """Wait until this link change is due, and apply it.

        Return when the programs that apply the change have ended.
        """
        while time.monotonic() < self.moment:
            pass
        try:
            if self._delays:
                send_delay_settings(self._delays)
            for process, input_text in self._processes:
                _write_input(process, input_text)
            errors = [_wait_for_exit(process) for process, _ in self._processes]
            if any(errors):
                raise RuntimeError("; ".join(filter(None, errors)))  # noqa: TRY301
        except Exception as error:  # noqa: BLE001 - reported in the response
            self.result.set_exception(error)
        else:
            self.result.set_result({"applied": time.monotonic()})

    def cancel(self) -> None:
        """Cancel this change of the link: kill the programs that wait to apply it."""
        for process, _ in self._processes:
            process.kill()
            if process.stdin:
                process.stdin.close()
            _wait_for_exit(process)
        self.result.set_result(NOT_APPLIED)


class LinkChangeSchedule:
    """Pending changes of one link, and the thread that applies them."""

    def __init__(self, send_delays: Callable[[dict[str, Any]], object]) -> None:
        """Create an empty schedule.

        `send_delays` sends new delay settings to the process that delays packets.
        """
        self._send_delays = send_delays
        self._pending: dict[int, ScheduledLinkChange] = {}
        self._is_applying = False
        self._last_applied = -1  # number of the last applied change; -1: none
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def schedule_link_change(
        self, number: int, moment: float, programs: list[CommandWithInput], delays: dict[str, Any]
    ) -> "Future[Response]":
        """Schedule a link change for a time of the monotonic clock.

        Return a future with the response. The response has the time when the change was applied, or is `NOT_APPLIED` if
        the change was replaced or cancelled.

        Raises:
            OSError: a program can't be started.
        """
        change = ScheduledLinkChange(number, moment, programs, delays)
        with self._changed:
            replaced = self._pending.pop(number, None)
            self._pending[number] = change
            if self._thread is None:
                self._thread = threading.Thread(target=self._apply_changes, daemon=True)
                self._thread.start()
            self._changed.notify_all()
        if replaced:
            replaced.cancel()
        return change.result

    def cancel_all_changes(self) -> Response:
        """Cancel all pending link changes, and respond with the number of the last applied change."""
        with self._changed:
            cancelled = list(self._pending.values())
            self._pending.clear()
            self._changed.wait_for(lambda: not self._is_applying)
        for change in cancelled:
            change.cancel()
        return {"last": self._last_applied}

    def _apply_changes(self) -> None:
        reduce_wakeup_latency()
        while True:
            change = self._wait_for_next_change()
            change.apply_at_scheduled_time(self._send_delays)
            with self._changed:
                self._is_applying, self._last_applied = False, change.number
                self._changed.notify_all()

    def _wait_for_next_change(self) -> ScheduledLinkChange:
        """Wait until shortly before the time of the next link change, and return this change."""
        with self._changed:
            while True:
                first = min(self._pending.values(), key=lambda change: (change.moment, change.number), default=None)
                wait_s = None if first is None else first.moment - SPIN_BEFORE_S - time.monotonic()
                if first is not None and wait_s is not None and wait_s <= 0:
                    self._is_applying = True
                    return self._pending.pop(first.number)
                self._changed.wait(wait_s)


def _start_program(command: list[str]) -> subprocess.Popen[str]:
    no_output = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=no_output, stderr=subprocess.PIPE, text=True)  # noqa: S603


def _write_input(process: subprocess.Popen[str], input_text: str) -> None:
    """Write the input of a process and close its standard input.

    The process starts its work when its input ends.
    """
    with suppress(BrokenPipeError):  # the process has ended; its exit code is checked later
        if process.stdin:
            process.stdin.write(input_text + "\n")
            process.stdin.close()


def _wait_for_exit(process: subprocess.Popen[str]) -> str:
    """Wait until a process has ended.

    Return the error output if the process has failed, else an empty string.
    """
    with process:  # closes its open pipes
        error_output = process.stderr.read() if process.stderr else ""
    return (error_output.strip() or "no message") if process.returncode else ""
