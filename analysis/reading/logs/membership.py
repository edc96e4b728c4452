"""Lost nodes, membership epochs, recoveries and checkpoints that the nodes of a trial logged.

Times are virtual seconds since the event `run_start`. A membership epoch is a period in which the workers stay the
same.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from analysis.reading.logs.mllog import MllogEvent, NodeLog


@dataclass(frozen=True)
class NodeLoss:
    """Event `node_lost`: the coordinator considers a node lost, or it was started again before."""

    time_s: float
    node: str
    reason: str
    silent_s: float  # since the last heartbeat of the node
    is_back: bool = False  # whether it was started again before its silence was noticed

    @property
    def detection_s(self) -> float:
        """Seconds from the last heartbeat until the silence was noticed; 0 if the node was started again before."""
        return 0.0 if self.is_back else self.silent_s

    @property
    def recovery_start_s(self) -> float:
        """Time at which the detection ended, and the recovery began."""
        return self.time_s - self.silent_s + self.detection_s


@dataclass(frozen=True)
class MembershipEpoch:
    """Event `membership_epoch`: training goes on with other workers."""

    time_s: float
    number: int
    workers: tuple[str, ...]
    cause: str
    first_step: int | None  # None: logged only by the workers
    seconds: float  # that the coordinator needed for the change before the event; 0 if it logged none
    joined: tuple[str, ...] | None = None  # nodes that were lost before, and returned; None: not logged

    def has_returned(self, node_name: str) -> bool:
        """Return whether a node that was lost before is a member again."""
        return node_name in (self.workers if self.joined is None else self.joined)


@dataclass(frozen=True)
class Recovery:
    """Event `recovery`: a worker continues in a new membership epoch."""

    time_s: float
    node: str
    epoch: int
    first_step: int
    seconds: float  # in which the worker did not train


@dataclass(frozen=True)
class CheckpointWrite:
    """Event `checkpoint`: a node has written a checkpoint."""

    time_s: float  # of the end
    node: str
    seconds: float
    size_bytes: int


@dataclass(frozen=True)
class CheckpointFailure:
    """Event `checkpoint_failed`: a node could not write a checkpoint. The names of the fields are keys in summary.json.

    The fields are in the order in which a report shows them.
    """

    node: str
    step: int  # number of finished steps
    time_s: float
    seconds: float  # that the attempt took
    reason: str


@dataclass(frozen=True)
class MembershipLog:
    """Events of a trial that concern lost nodes and checkpoints, each kind in the order of time."""

    losses: tuple[NodeLoss, ...] = ()
    epochs: tuple[MembershipEpoch, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    checkpoints: tuple[CheckpointWrite, ...] = ()
    failed_checkpoints: tuple[CheckpointFailure, ...] = ()

    @property
    def checkpoint_attempts(self) -> tuple[CheckpointWrite | CheckpointFailure, ...]:
        """Checkpoints that were written, and those that could not be: both take time."""
        return (*self.checkpoints, *self.failed_checkpoints)

    @property
    def lost_node_names(self) -> frozenset[str]:
        """Names of the nodes that were lost at least once."""
        return frozenset(loss.node for loss in self.losses)


def read_membership(log_by_node_name: Mapping[str, NodeLog], start_s: float) -> MembershipLog:
    """Return the events that concern lost nodes and checkpoints; `start_s` is the time of `run_start`."""

    def events_of(key: str) -> Iterator[tuple[str, float, MllogEvent]]:
        found = [
            (event.time_ms / 1000 - start_s, node_name, event)
            for node_name, log in sorted(log_by_node_name.items())
            for event in log.events_with_key(key)
        ]
        return ((node_name, time_s, event) for time_s, node_name, event in sorted(found, key=lambda each: each[0]))

    return MembershipLog(
        tuple(
            NodeLoss(
                time_s,
                str(event.value["node"]),
                str(event.value["reason"]),
                float(event.value["silent_s"]),
                bool(event.value.get("is_back", False)),
            )
            for _, time_s, event in events_of("node_lost")
        ),
        tuple(
            MembershipEpoch(
                time_s,
                int(event.value["epoch"]),
                tuple(map(str, event.value["workers"])),
                str(event.value["cause"]),
                _read_first_step(event),
                float(event.value.get("seconds", 0.0)),
                tuple(map(str, event.value["joined"])) if "joined" in event.value else None,
            )
            for _, time_s, event in events_of("membership_epoch")
        ),
        tuple(
            Recovery(time_s, name, int(event.value["epoch"]), int(first_step), float(event.value["seconds"]))
            for name, time_s, event in events_of("recovery")
            if (first_step := _read_first_step(event)) is not None
        ),
        tuple(
            CheckpointWrite(time_s, name, float(event.value["seconds"]), int(event.value["bytes"]))
            for name, time_s, event in events_of("checkpoint")
        ),
        tuple(
            CheckpointFailure(
                name,
                int(event.metadata["step"]),
                time_s,
                float(event.value["seconds"]),
                str(event.value["reason"]),
            )
            for name, time_s, event in events_of("checkpoint_failed")
        ),
    )


def _read_first_step(event: MllogEvent) -> int | None:
    """Return the step from which training goes on, which is a key of the value or the step of the event."""
    first_step: Any = event.value.get("first_step", event.metadata.get("step"))
    return None if first_step is None else int(first_step)
