"""Cancellation of tasks whose results are no longer needed."""

import asyncio
from typing import Any


async def cancel_tasks(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks, and return when they have ended, whatever their outcome.

    If the caller is cancelled meanwhile, it gets its `CancelledError`. (A caller that awaits a cancelled task and
    suppresses `CancelledError` would lose its own.)
    """
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # so that asyncio does not report it as not retrieved
