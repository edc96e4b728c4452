"""In which order does a link change? In that of the moments, one change after the other, however they were asked for.

A change has a number. When it is asked for again before its moment, the newer takes the older's place: whoever leads a
trial has heard of something that comes first.
"""

import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from services.runtime.scheduling import reduce_wakeup_latency

SPIN_S = 0.001  # before a moment: a sleep may end late, an empty loop does not
Program = tuple[list[str], str]  # a command and its input
Answer = dict[str, Any]
NEVER: Answer = {"applied": None}


class Change:
    """Programs that wait for their input, and what the delay line will be told; made once, or never."""

    def __init__(self, number: int, moment: float, programs: list[Program], delays: dict[str, Any]) -> None:
        self.number, self.moment, self.made = number, moment, Future[Answer]()
        self._started = [(_start(command), text) for command, text in programs]
        self._delays = delays

    def make(self, tell: Callable[[dict[str, Any]], object]) -> None:
        """At its moment, and until all programs have ended."""
        while time.monotonic() < self.moment:
            pass
        try:
            if self._delays:
                tell(self._delays)
            for program, text in self._started:
                _feed(program, text)
            complaints = [_end(program) for program, _ in self._started]
            if any(complaints):
                raise RuntimeError("; ".join(filter(None, complaints)))  # noqa: TRY301
        except Exception as error:  # noqa: BLE001 - whoever asked decides what it means
            self.made.set_exception(error)
        else:
            self.made.set_result({"applied": time.monotonic()})

    def drop(self) -> None:
        """It will not be made."""
        for program, _ in self._started:
            program.kill()
            if program.stdin:
                program.stdin.close()
            _end(program)
        self.made.set_result(NEVER)


class Changes:
    """The changes of one link that are still to come."""

    def __init__(self, tell: Callable[[dict[str, Any]], object]) -> None:
        """`tell` tells the delay line."""
        self._tell = tell
        self._pending: dict[int, Change] = {}
        self._making = False
        self._last = -1  # none yet
        self._news = threading.Condition()
        self._maker: threading.Thread | None = None

    def plan(self, number: int, moment: float, programs: list[Program], delays: dict[str, Any]) -> "Future[Answer]":
        """Take a place among the changes; when it was made, or `NEVER`.

        Raises:
            OSError: a program can't be started.
        """
        change = Change(number, moment, programs, delays)
        with self._news:
            older = self._pending.pop(number, None)
            self._pending[number] = change
            if self._maker is None:
                self._maker = threading.Thread(target=self._make, daemon=True)
                self._maker.start()
            self._news.notify_all()
        if older:
            older.drop()
        return change.made

    def forget(self) -> Answer:
        """Nothing changes any more; the number of the last change that was made."""
        with self._news:
            dropped = list(self._pending.values())
            self._pending.clear()
            self._news.wait_for(lambda: not self._making)
        for change in dropped:
            change.drop()
        return {"last": self._last}

    def _make(self) -> None:
        reduce_wakeup_latency()
        while True:
            change = self._next()
            change.make(self._tell)
            with self._news:
                self._making, self._last = False, change.number
                self._news.notify_all()

    def _next(self) -> Change:
        """The first of all, as soon as its moment is near."""
        with self._news:
            while True:
                first = min(self._pending.values(), key=lambda each: (each.moment, each.number), default=None)
                wait_s = None if first is None else first.moment - SPIN_S - time.monotonic()
                if first is not None and wait_s is not None and wait_s <= 0:
                    self._making = True
                    return self._pending.pop(first.number)
                self._news.wait(wait_s)


def _start(command: list[str]) -> subprocess.Popen[str]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=subprocess.PIPE, text=True)  # noqa: S603


def _feed(program: subprocess.Popen[str], text: str) -> None:
    """Its whole input at once; the end of it is when it may begin."""
    with suppress(BrokenPipeError):  # it has ended, and its exit code says how
        if program.stdin:
            program.stdin.write(text + "\n")
            program.stdin.close()


def _end(program: subprocess.Popen[str]) -> str:
    """Wait for it; what it complains of when it has failed."""
    with program:  # closes what is open still
        said = program.stderr.read() if program.stderr else ""
    return (said.strip() or "no message") if program.returncode else ""
