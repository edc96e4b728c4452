"""Event that keeps nodes from writing checkpoints, because their disks are full."""

from typing import ClassVar, Literal

from pydantic import Field

from services.cluster.declared_event import EventApplier, LastingEvent


class DiskFull(LastingEvent):
    """Full disks of some nodes, whose checkpoint files can't be written until there is room again.

    The nodes go on with their training. A checkpoint without the file of a node is not complete.
    """

    kind: Literal["disk_full"] = "disk_full"
    of: tuple[str, ...] = Field(
        min_length=1,
        description="names of the nodes, such as worker-0 or server-0, or workers or servers for all of them",
    )

    applied_by: ClassVar[EventApplier] = "disk"
    changes_times: ClassVar[bool] = False
