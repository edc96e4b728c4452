"""Process pool that spreads the work of the analysis over several cores of this machine."""

import atexit
import os
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from importlib import import_module
from threading import Thread
from types import TracebackType
from typing import Self, TypeVar

from joblib.externals.loky import BrokenProcessPool, ProcessPoolExecutor

from services.schema.errors import HostError

PARALLEL_LOG_BYTES = 40_000_000  # reading as many bytes takes about two seconds, as long as starting a helper process
PARENT_POLL_S = 1.0

KILLED_MESSAGE = (
    "a helper process of the analysis was killed, most often for lack of memory; run the command on one core, where it "
    "starts no helper process and needs less memory: taskset -c 0 ensayo …"
)

Item = TypeVar("Item")
Result = TypeVar("Result")


class ProcessPool:
    """Process pool: this process and one helper process per further core.

    Helpers end when the `with` block ends. Helpers start with the first task. They are new processes that neither copy
    this process's memory nor import its main module, so this process may have threads, and its program needs no `if
    __name__ == "__main__"`. Tasks, items and results are pickled. At the end of the `with` block a killed helper raises
    HostError.
    """

    _helpers: Executor | None

    def __init__(self, *, single_process: bool = False) -> None:
        """Create the process pool.

        With `single_process`, or on one core, the pool has no helper processes.
        """
        helper_count = 0 if single_process else _usable_core_count() - 1
        self._helpers = None
        if helper_count:
            # loky replaces a helper whose memory has grown, for example by large logs, and loses no task.
            warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
            self._helpers = ProcessPoolExecutor(helper_count, initializer=_set_up_helper_exit, initargs=(os.getpid(),))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._helpers:
            self._helpers.shutdown()
        if isinstance(error, BrokenProcessPool):
            raise HostError(KILLED_MESSAGE) from error

    def preload_module(self, module_name: str) -> None:
        """Start the helper processes, and let one of them import a module.

        Later tasks need the module. This process continues in the meantime.
        """
        if self._helpers:
            self._helpers.submit(_import_in_helper_process, module_name)

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Return the results of the task for all items, in the order of the items.

        Helpers take items from the front, as soon as the iterable yields them. Once it is exhausted, this process takes
        items from the back that no helper has begun, because this process is already started and copies no results.
        The first exception of a task is raised here; items that no process has begun are then dropped.
        """
        if self._helpers is None:
            return [task(item) for item in items]
        submitted, futures = list[Item](), []
        try:
            for item in items:
                submitted.append(item)
                futures.append(self._helpers.submit(task, item))
            own = {k: task(submitted[k]) for k in reversed(range(len(futures))) if futures[k].cancel()}
            return [own[k] if k in own else future.result() for k, future in enumerate(futures)]
        finally:
            for future in futures:
                future.cancel()


def create_process_pool(log_size_bytes: int) -> ProcessPool:
    """Return a process pool for reading logs with a total size of `log_size_bytes`.

    A pool for small logs has no helper processes.
    """
    return ProcessPool(single_process=log_size_bytes < PARALLEL_LOG_BYTES)


def _import_in_helper_process(module_name: str) -> None:
    """Import a module in a helper process.

    Nothing is returned, because a module cannot be pickled.
    """
    import_module(module_name)


def _set_up_helper_exit(parent_process_id: int) -> None:
    """Make a helper process end together with its parent, and end quickly.

    A helper whose parent was killed would wait for tasks for ever, so it checks whether its parent is alive. When a
    helper ends by itself, it has sent all results, so it skips the half second in which Python frees memory.
    """
    Thread(target=_exit_when_parent_ends, args=(parent_process_id,), daemon=True).start()
    atexit.register(os._exit, 0)


def _exit_when_parent_ends(parent_process_id: int) -> None:
    while os.getppid() == parent_process_id:
        time.sleep(PARENT_POLL_S)
    os._exit(1)


def _usable_core_count() -> int:
    """Return the number of cores that this process may use."""
    return (os.process_cpu_count() if hasattr(os, "process_cpu_count") else None) or len(os.sched_getaffinity(0))
