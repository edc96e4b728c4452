"""Queue of operations that run one after the other on the communication thread."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import count
from typing import NamedTuple, TypeAlias

from services.commands.process_group.communication_thread import CommunicationThread
from services.commands.process_group.work import CollectiveWork
from services.schema.errors import first_error_in_group

NextStep: TypeAlias = Callable[[], int]  # returns the number of each collective of which an operation consists
RunOperation: TypeAlias = Callable[[NextStep], Awaitable[object]]


class QueuedOperation(NamedTuple):
    """Operation that waits for earlier ones."""

    name: str
    run: RunOperation
    work: CollectiveWork


class OperationQueue:
    """Operations that run in the order in which they were submitted.

    Operations of one group have the same order, and so the same numbers, on all its ranks. After an error the later
    operations fail too: the ranks no longer agree on the numbers.
    """

    def __init__(self, thread: CommunicationThread, description: str) -> None:
        """Create an empty queue; errors contain `description`."""
        self._loop = thread.loop
        self._description = description
        self._waiting: deque[QueuedOperation] = deque()
        self._runner: asyncio.Task[None] | None = None
        self._steps = count()
        self._failure: str | None = None

    def submit(self, operation: QueuedOperation) -> CollectiveWork:
        """Add an operation to the queue, and return its handle at once."""
        self._waiting.append(operation)
        self._loop.call_soon_threadsafe(self._start_runner)
        return operation.work

    def _start_runner(self) -> None:
        if self._runner is None:
            self._runner = asyncio.get_running_loop().create_task(self._run_operations())

    async def _run_operations(self) -> None:
        while self._waiting:
            operation = self._waiting.popleft()
            if self._failure is None:
                self._failure = await _run_and_explain_error(operation, self._steps.__next__, self._description)
            operation.work.finish(self._failure)
        self._runner = None


def start_operation(
    thread: CommunicationThread, operation: QueuedOperation, next_step: NextStep, description: str
) -> CollectiveWork:
    """Start an operation that waits for no other, and return its handle at once."""

    async def run() -> None:
        operation.work.finish(await _run_and_explain_error(operation, next_step, description))

    thread.start(run())
    return operation.work


async def _run_and_explain_error(operation: QueuedOperation, next_step: NextStep, description: str) -> str | None:
    """Run an operation, and return the text of its error; None if it succeeds."""
    try:
        await operation.run(next_step)
    except Exception as error:  # noqa: BLE001 - the script gets it from its handle, on another thread
        cause = first_error_in_group(error)
        return f"{operation.name} of {description} failed: {str(cause) or type(cause).__name__}"
    return None
