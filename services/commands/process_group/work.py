"""Handle of a collective that runs on the communication thread."""

import threading
from datetime import timedelta
from typing import Any

from torch.distributed import DistBackendError, Work
from torch.futures import Future

from services.commands.process_group.communication_thread import CommunicationThread


class CollectiveWork(Work):
    """Handle of one operation of a process group.

    `wait` blocks without Python's global lock. A future exists only where one is asked for, since it costs another
    change of threads: its callbacks may wait for other collectives, so they do not run on the communication thread.
    """

    def __init__(self, thread: CommunicationThread, result: Any) -> None:
        """Create the handle of an operation that has not ended; `result` is the value of its future."""
        super().__init__()
        self._thread = thread
        self._result = result
        self._running = threading.Lock()  # released when the operation has ended
        self._running.acquire()
        self._error: str | None = None
        self._future_lock = threading.Lock()
        self._future: Future[Any] | None = None
        self._is_future_of_callback = False
        self._has_ended = False

    def finish(self, error: str | None = None) -> None:
        """Mark the operation as ended, with the text of an error if it has failed."""
        self._error = error
        with self._future_lock:
            self._has_ended = True
            future = self._future
        self._running.release()
        if future is not None:
            self._complete_future(future)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the operation has ended.

        Args:
            timeout: longest time to wait; None or 0 leaves the limit to the transport.

        Raises:
            DistBackendError: the operation has failed, or has not ended in time.
        """
        if not self._running.acquire(timeout=timeout.total_seconds() if timeout else -1):
            raise DistBackendError(f"the operation did not end within {timeout}")
        self._running.release()
        if self._error is not None:
            raise DistBackendError(self._error)
        return True

    def get_future(self) -> Future[Any]:
        """Return a future of PyTorch that is done when the operation has ended."""
        with self._future_lock:
            if self._future is not None:
                return self._future
            future = self._future = Future()
            self._is_future_of_callback = self._thread.is_callback_thread
            has_ended = self._has_ended
        if has_ended:
            _set_outcome(future, self._result, self._error)
        return future

    def is_completed(self) -> bool:
        return self._has_ended

    def is_success(self) -> bool:
        return self._has_ended and self._error is None

    def exception(self) -> Exception | None:
        return None if self._error is None else DistBackendError(self._error)

    def result(self) -> Any:
        return self._result

    def synchronize(self) -> None:
        self.wait()

    def _complete_future(self, future: "Future[Any]") -> None:
        """Complete the future on the thread for callbacks.

        A callback that runs there may wait for this future: then the communication thread completes it.
        """
        if self._is_future_of_callback:
            _set_outcome(future, self._result, self._error)
        else:
            self._thread.call_later(lambda: _set_outcome(future, self._result, self._error))


def _set_outcome(future: "Future[Any]", result: Any, error: str | None) -> None:
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(DistBackendError(error))
