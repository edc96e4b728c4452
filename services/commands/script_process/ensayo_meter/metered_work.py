"""Handle of a collective of a metered process group."""

from typing import Any

from torch.distributed.distributed_c10d import Work

from .session import Session
from .step_records import CollectiveRecord


class MeteredWork(Work):
    """Handle of a collective that records when it is complete, and how long the script waits for it."""

    def __init__(self, work: Any, record: CollectiveRecord, session: Session) -> None:
        super().__init__()
        self._work, self._record, self._session = work, record, session

    def wait(self, *timeout: Any) -> Any:
        tracker = self._session.tracker
        if tracker is None:
            return self._work.wait(*timeout)
        begin_s = self._session.guard(lambda tracker: tracker.begin_wait(self._record)) or tracker.clock()
        is_complete = self._work.wait(*timeout)
        self._session.guard(lambda tracker: tracker.record_wait(self._record, begin_s))
        return is_complete

    def get_future(self) -> Any:
        return self._work.get_future()

    def is_completed(self) -> Any:
        return self._work.is_completed()

    def is_success(self) -> Any:
        return self._work.is_success()

    def exception(self) -> Any:
        return self._work.exception()

    def result(self) -> Any:
        return self._work.result()

    def synchronize(self) -> Any:
        return self._work.synchronize()

    def source_rank(self) -> Any:
        return self._work.source_rank()

    def _source_rank(self) -> Any:
        return self._work._source_rank()  # noqa: SLF001 - PyTorch's name of the operation
