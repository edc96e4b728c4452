"""Disk of a node as its checkpoints see it: that of the host, or one without room while an event `disk_full` lasts."""

import errno
import os

from services.cluster.events import PlannedEvent


class EmulatedDiskFullError(OSError):
    """Error of a write to a disk that is full because of an event of the scenario, not because the host's disk is."""

    def __init__(self) -> None:
        super().__init__(errno.ENOSPC, os.strerror(errno.ENOSPC))


class NodeDisk:
    """Disk of a node, to which nothing can be written while at least one event fills it."""

    def __init__(self) -> None:
        self._current_events: set[int] = set()  # numbers of the events that fill the disk

    def begin_event(self, event: PlannedEvent) -> None:
        """Let an event fill the disk."""
        self._current_events.add(event.number)

    def end_event(self, event: PlannedEvent) -> None:
        """Let an event no longer fill the disk."""
        self._current_events.discard(event.number)

    def write(self, descriptor: int, data: memoryview) -> int:
        """Write some bytes to an open file, and return their number, as `os.write` does.

        Raises:
            EmulatedDiskFullError: an event fills the disk.
            OSError: the operating system can't write to the file.
        """
        if self._current_events:
            raise EmulatedDiskFullError
        return os.write(descriptor, data)
