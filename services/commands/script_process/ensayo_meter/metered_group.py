"""Process group that records and paces each collective, and leaves its execution to an inner group."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.distributed_c10d import ProcessGroup

from .collective_sizes import METHODS, find_reduce_operation, find_root_rank, measure_input
from .metered_work import MeteredWork
from .session import Session
from .step_records import CollectiveRecord
from .step_tracker import StepTracker

SEND_RECEIVE_CALLERS = 3  # frames between a method of the group and `torch.distributed.send`, at most


@dataclass(frozen=True)
class InnerGroup:
    """Process group that executes the collectives, and its backend, if that is gloo's."""

    group: Any
    backend: Any = None


class MeteredGroup(ProcessGroup):
    """Process group that stands in the place of gloo's. PyTorch calls it `gloo`, as the script does.

    Methods that are not metered are those of the base class, which calls the backend of the inner group, if it has one.
    """

    def __init__(self, session: Session, store: Any, inner: InnerGroup, rank: int, size: int) -> None:
        super().__init__(rank, size)  # other constructors of ProcessGroup ignore methods of subclasses
        self._session, self._store, self._inner, self._backend = session, store, inner.group, inner.backend
        self._name = self._description = ""
        if self._backend is not None:
            self._set_default_backend(ProcessGroup.BackendType.GLOO)
            self._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, self._backend)

    @property
    def options(self) -> Any:
        return self._backend.options if self._backend is not None else UnusedOptions()

    # The base class keeps names in its backends, which a group may not have. C++ calls the second method of each pair.

    @property
    def group_name(self) -> str:
        return self._name

    def getGroupName(self) -> str:  # noqa: N802 - PyTorch's name
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name
        if self._backend is not None:
            super()._set_group_name(name)

    @property
    def group_desc(self) -> str:
        return self._description

    def getGroupDesc(self) -> str:  # noqa: N802 - PyTorch's name
        return self._description

    def _set_group_desc(self, description: str) -> None:
        self._description = description
        if self._backend is not None:
            super()._set_group_desc(description)

    def monitored_barrier(self, *arguments: Any, **named: Any) -> None:
        tracker = self._session.tracker
        record = None if tracker is None else self._launch(tracker, "barrier", (), is_async=False)
        gloo_fallback_calls = self._count_gloo_fallbacks()
        self._inner.monitored_barrier(*arguments, **named)
        if record is not None:
            record.is_gloo_fallback = self._count_gloo_fallbacks() > gloo_fallback_calls
            self._session.guard(lambda tracker: tracker.record_wait(record, record.begin_s))

    def shutdown(self) -> None:
        self._inner.shutdown()

    def abort(self) -> None:
        self._inner.abort()

    def set_timeout(self, timeout: Any) -> None:
        self._inner.set_timeout(timeout)

    def get_group_store(self) -> Any:
        return self._store

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: the inner group has its number."""

    def _get_sequence_number_for_group(self) -> Any:
        return self._inner._get_sequence_number_for_group()  # noqa: SLF001 - PyTorch's name of the operation

    def _call(self, method: str, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        tracker = self._session.tracker
        if tracker is None:
            return getattr(self._inner, method)(*arguments, **named)
        all_arguments = (*arguments, *named.values()) if named else arguments
        record = self._launch(tracker, method, all_arguments, is_async=is_asynchronous(all_arguments))
        gloo_fallback_calls = self._count_gloo_fallbacks()
        work = getattr(self._inner, method)(*arguments, **named)
        if record is None or work is None:
            return work
        record.is_gloo_fallback = self._count_gloo_fallbacks() > gloo_fallback_calls
        if record.is_asynchronous:
            self._record_completion(work, record)
        return MeteredWork(work, record, self._session)

    def _launch(
        self, tracker: StepTracker, method: str, arguments: Sequence[Any], *, is_async: bool
    ) -> CollectiveRecord | None:
        try:
            size = self.size()
            size_bytes, dtype = measure_input(method, arguments, size)
            record = tracker.launch(METHODS[method][0], size_bytes, dtype, size, is_async=is_async)
            record.root_rank = find_root_rank(method, arguments)
            record.reduce_operation = find_reduce_operation(method, arguments)
        except Exception as error:  # noqa: BLE001 - the script goes on
            self._session.fail(error)
            return None
        return record

    def _record_completion(self, work: Any, record: CollectiveRecord) -> None:
        """Record in gloo's thread when an asynchronous collective is complete. Others are waited for at once."""
        try:
            future = work.get_future()
        except (RuntimeError, NotImplementedError):  # gloo's send, recv and reduce_scatter have none
            return
        record.is_done = future.done
        future.add_done_callback(lambda _: self._session.guard(lambda tracker: tracker.complete(record)))

    def _count_gloo_fallbacks(self) -> int:
        """Return the number of calls that gloo has run in place of Ensayo so far."""
        return int(getattr(self._inner, "gloo_fallback_calls", 0))


class UnusedOptions:
    """Options of a group without a backend of gloo: PyTorch only sets their fields."""


def is_asynchronous(arguments: Sequence[Any]) -> bool:
    """Return whether the script continues before the collective is complete.

    The options of a call state it. Send and receive have none, and are synchronous in `torch.distributed.send`, `recv`.
    """
    asynchronous = getattr(arguments[-1], "asyncOp", None) if arguments else None
    if asynchronous is not None:
        return bool(asynchronous)
    frame = sys._getframe(2)  # noqa: SLF001 - the documented way to the caller
    for _ in range(SEND_RECEIVE_CALLERS):
        if frame.f_back is None:
            return True
        frame = frame.f_back
        if frame.f_code.co_name in ("send", "recv") and frame.f_code.co_filename.endswith("distributed_c10d.py"):
            return False
    return True


def _metered(method: str) -> Callable[..., Any]:
    def call(self: MeteredGroup, *arguments: Any, **named: Any) -> Any:
        return self._call(method, arguments, named)

    call.__name__ = method
    return call


for _method in METHODS:
    setattr(MeteredGroup, _method, _metered(_method))
