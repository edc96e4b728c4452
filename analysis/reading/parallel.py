"""Work shared among the cores of this machine."""

import atexit
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context, parent_process
from threading import Thread
from types import ModuleType, TracebackType
from typing import ParamSpec, Self, TypeVar

from services.schema.errors import HostError

MUCH_BYTES = 40_000_000  # of logs: another process takes about two seconds to begin, as long as these to read

KILLED = (
    "a process that helped was killed, most often for lack of memory; on one core nobody helps, "
    "and less memory is needed: taskset -c 0 ensayo …"
)

Item = TypeVar("Item")
Result = TypeVar("Result")
Given = ParamSpec("Given")


class Team:
    """This process and, unless it works alone, one more for each other core, which end with the `with` block.

    Raises HostError at its end where another was killed.

    Others begin anew, when first asked: who asks may have threads, which no fork survives. They do not outlive it, and
    do not import its program. What they are given, and what they give, is pickled.
    """

    def __init__(self, *, alone: bool = False) -> None:
        """`alone`: in this process only."""
        others = 0 if alone else _cores() - 1
        context = get_context("spawn")
        self._pool = ProcessPoolExecutor(others, context, initializer=_end_with_who_asked) if others else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=error is not None)
        if isinstance(error, BrokenProcessPool):
            raise HostError(KILLED) from error

    def load(self, module: str) -> None:
        """Lets one of the others begin and import what work will need, while this process does something else."""
        if self._pool:
            _submit(self._pool, _load, module)

    def spread(self, task: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """What the task makes of every item, in their order.

        Others take items from the front, as soon as they come. This process, which need not begin first and whose
        results need no copy, takes what is left from the back when all have come.
        """
        if self._pool is None:
            return [task(item) for item in items]
        given = [(item, _submit(self._pool, task, item)) for item in items]
        own = {place: task(given[place][0]) for place in reversed(range(len(given))) if given[place][1].cancel()}
        return [own[place] if place in own else future.result() for place, (_, future) in enumerate(given)]


def team_for(log_bytes: int) -> Team:
    """Others help where there is much to read."""
    return Team(alone=log_bytes < MUCH_BYTES)


def spread(task: Callable[[Item], Result], items: Iterable[Item], *, alone: bool = False) -> list[Result]:
    """The same by a team for this work only."""
    with Team(alone=alone) as team:
        return team.spread(task, items)


def _submit(
    pool: ProcessPoolExecutor, task: Callable[Given, Result], *given: Given.args, **named: Given.kwargs
) -> Future[Result]:
    """Begins a process where there are too few."""
    with _program_unread():
        return pool.submit(task, *given, **named)


@contextmanager
def _program_unread() -> Iterator[None]:
    """Others that begin meanwhile do not import the program: one without a guard would run there, again from its start.

    Tasks are of modules.
    """
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = program


def _end_with_who_asked() -> None:
    """Nobody tells a process that who asked it was killed: it would wait for work for ever.

    At its own end it has told all its results, and does not spend half a second on giving memory back piece by piece.
    """
    Thread(target=_outlive, daemon=True).start()
    atexit.register(os._exit, 0)


def _outlive() -> None:
    if asked := parent_process():
        asked.join()
        os._exit(1)


def _load(module: str) -> None:
    import_module(module)


def _cores() -> int:
    """Those that this process may use."""
    return (os.process_cpu_count() if hasattr(os, "process_cpu_count") else None) or len(os.sched_getaffinity(0))
