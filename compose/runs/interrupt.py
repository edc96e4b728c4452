"""How does Ctrl-C end a run without leaving anything behind? Once, and never in the middle of starting or removing."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# The terminal's Ctrl-C, what `kill` and service managers send, and the end of a terminal session.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside, the first signal that asks to stop raises KeyboardInterrupt; later ones change nothing.

    Somebody who presses Ctrl-C twice must not interrupt the removal that the first one began.
    """
    asked = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if not asked:
            asked = True
            raise KeyboardInterrupt

    with _handled_by(stop):
        yield


@contextmanager
def held_back() -> Iterator[None]:
    """Inside, a signal that asks to stop waits; when the body is done, it does what it would have done.

    For bodies of bounded length, after which it is known what exists.
    """
    waiting: list[tuple[int, FrameType | None]] = []
    before = {number: signal.getsignal(number) for number in STOPPING}
    try:
        with _handled_by(lambda number, frame: waiting.append((number, frame))):
            yield
    finally:
        if waiting:
            _deliver(before, *waiting[0])


@contextmanager
def _handled_by(handler: Any) -> Iterator[None]:
    """Only the main thread gets signals; elsewhere there is nothing to handle."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in STOPPING}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _deliver(handlers: dict[signal.Signals, Any], number: int, frame: FrameType | None) -> None:
    handler = handlers[signal.Signals(number)]
    if callable(handler):
        handler(number, frame)
    elif handler == signal.SIG_DFL:
        signal.raise_signal(number)
