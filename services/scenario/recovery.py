"""What a trial does when a node is lost: the declared policy, the detection of lost nodes, and checkpoints."""

from typing import Literal, TypeAlias

from pydantic import Field, PositiveInt

from services.schema.component import FrozenRecord
from services.schema.units import Duration

FailurePolicy: TypeAlias = Literal["abort", "continue", "rejoin", "restore"]

HEARTBEATS_PER_TIMEOUT = 4  # a node is lost when this many heartbeats in a row are missing


class CheckpointSettings(FrozenRecord):
    """How often the nodes of a trial write checkpoints: exactly one of `steps` and `interval`."""

    steps: PositiveInt | None = Field(None, description="steps from one checkpoint to the next; excludes interval")
    interval: Duration | None = Field(
        None,
        description="virtual time of training after which the next checkpoint is due; excludes steps. The first worker "
        "measures the time, and all nodes write the checkpoint before the same step",
    )
    initial: str | None = Field(
        None,
        min_length=1,
        description="folder of an earlier trial, such as runs/mine/20260102T030405Z-abcd/trials/001-ring-w4-r0: every "
        "trial continues from its last checkpoint, on the same or on another number of workers",
    )


class RecoverySettings(FrozenRecord):
    """What a trial does when it loses a node."""

    on_failure: FailurePolicy = Field(
        "abort",
        description="what a trial does after the loss of a node. abort: it fails; continue: the other workers share "
        "the lost worker's part of each batch; rejoin: as continue, and the worker joins again after its restart, with "
        "the state of another worker; restore: the worker or server is restarted, and all nodes continue from the last "
        "checkpoint. A lost server fails the trial with continue and rejoin, a lost coordinator with every policy",
    )
    heartbeat_timeout: Duration = Field(
        Duration("2s"),
        description="virtual time without a heartbeat after which the coordinator considers a node lost. A node sends "
        f"{HEARTBEATS_PER_TIMEOUT} heartbeats in this time. No effect with abort and without checkpoints",
    )
    restart_delay: Duration = Field(
        Duration("1s"),
        description="virtual time from the end of a lost node until it is started again, if the policy is rejoin or "
        "restore",
    )
    checkpoint: CheckpointSettings | None = Field(
        None, description="checkpoints of all nodes; when absent, no checkpoint is written"
    )

    @property
    def is_active(self) -> bool:
        """Whether nodes send heartbeats, and can go back to an earlier step."""
        return self.on_failure != "abort" or self.checkpoint is not None

    @property
    def log_interval_s(self) -> float:
        """Virtual seconds between two lines of a worker's log.

        Steps since the last line are lost with the worker, and then do not count in the goodput.
        """
        return 0.1 if self.changes_membership else 1.0

    @property
    def changes_membership(self) -> bool:
        """Whether a trial can go on without a lost node, or with a restarted one."""
        return self.on_failure != "abort"

    @property
    def restarts_workers(self) -> bool:
        """Whether lost workers are started again."""
        return self.on_failure in ("rejoin", "restore")

    @property
    def needs_stored_state(self) -> bool:
        """Whether a worker begins with a state that was stored or that another worker sends."""
        return self.restarts_workers or self.checkpoint is not None

    @property
    def heartbeat_interval_s(self) -> float:
        """Virtual seconds from one heartbeat of a node to the next."""
        return self.heartbeat_timeout / HEARTBEATS_PER_TIMEOUT
