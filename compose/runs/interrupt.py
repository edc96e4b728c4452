"""Handling of Ctrl-C and other stop signals, so that an interrupted run leaves nothing behind.

A stop signal takes effect once, and never while containers or processes are being started or removed.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# Ctrl-C in a terminal; `kill` and service managers; the end of a terminal session.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _FirstStopRaiser:
    """Signal handler that raises KeyboardInterrupt once."""

    def __init__(self) -> None:
        self.has_raised = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        if not self.has_raised:
            self.has_raised = True
            raise KeyboardInterrupt


@contextmanager
def raise_on_first_stop_signal() -> Iterator[None]:
    """Raise KeyboardInterrupt on the first stop signal inside the `with` block.

    Later stop signals are ignored. A second Ctrl-C must not interrupt the clean-up that the first Ctrl-C has started.
    Blocks may be nested; the inner one then handles the signals.

    Python and libraries may raise another exception from the KeyboardInterrupt: an interrupted import of a C++ module
    ends with ImportError, and an interrupted `__set_name__` of a class with RuntimeError. This block raises
    KeyboardInterrupt instead.

    Raises:
        KeyboardInterrupt: a stop signal; or one in the outer block, where other code has caught the exception.
    """
    raise_again_if_stopped()
    with _install_stop_handler(_FirstStopRaiser()):
        try:
            yield
        except Exception as error:
            if any(isinstance(cause, KeyboardInterrupt) for cause in _causes_of(error)):
                raise KeyboardInterrupt from error
            raise


def _causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the explicit causes (`__cause__`) of an exception, the direct one first.

    The implicit `__context__` is left out: an error in the clean-up after Ctrl-C must stay visible.
    """
    while error.__cause__ is not None:
        error = error.__cause__
        yield error


def raise_again_if_stopped() -> None:
    """Raise KeyboardInterrupt if a stop signal has raised it before, but the program has gone on.

    Libraries may catch every exception, for example while they are imported. Call this function where nothing has to be
    removed yet, or where the caller removes it.
    """
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, _FirstStopRaiser) and handler.has_raised and _is_main_thread():
        raise KeyboardInterrupt


@contextmanager
def defer_stop_signals() -> Iterator[None]:
    """Defer stop signals until the end of the `with` block.

    The first of them is then delivered. The body must take a bounded time. After it, the caller knows which containers
    and processes exist.
    """
    deferred: list[tuple[int, FrameType | None]] = []
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        with _install_stop_handler(lambda number, frame: deferred.append((number, frame))):
            yield
    finally:
        if deferred:
            _replay_signal(before, *deferred[0])


@contextmanager
def _install_stop_handler(stop_signal_handler: Any) -> Iterator[None]:
    """Install a handler for stop signals during the `with` block.

    Outside the main thread this does nothing, since only the main thread receives signals.
    """
    if not _is_main_thread():
        yield
        return
    before = {number: signal.signal(number, stop_signal_handler) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, previous_handler in before.items():
            signal.signal(number, previous_handler)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _replay_signal(handler_by_signal: dict[signal.Signals, Any], signal_number: int, frame: FrameType | None) -> None:
    """Deliver a signal to its handler.

    If the signal had the default handler, the signal is raised again.
    """
    handler = handler_by_signal[signal.Signals(signal_number)]
    if callable(handler):
        handler(signal_number, frame)
    elif handler == signal.SIG_DFL:
        signal.raise_signal(signal_number)
