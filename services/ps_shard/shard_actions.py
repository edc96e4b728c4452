"""Pushes of workers, and actions that the state machine of a server returns."""

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class WorkerPush:
    """Vector that a worker has pushed to a server.

    It is a gradient, or parameters in elastic averaging.
    """

    worker: int  # rank
    step: int  # of the worker, from 0
    version: int  # of the parameters from which the vector was computed
    samples: int
    compute_s: float = field(default=0.0, compare=False, repr=False)  # that the worker needed; 0: not reported
    # Whether this push makes an update of its own, without waiting for others; the server of shard 0 has decided so.
    is_asynchronous: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class ApplyUpdateAction:
    """Action: update the parameters of the shard with the vectors that workers have pushed.

    The vectors are added in rank order, for bitwise reproducible sums.
    """

    pushes: tuple[WorkerPush, ...]
    version: int  # of the parameters after the update
    samples_before: int  # used for the parameters before the update

    def count_updates_behind(self, worker_push: WorkerPush) -> int:
        """Return the staleness of a pushed vector, in updates.

        It is the number of updates made since the worker read the parameters.
        """
        return self.version - 1 - worker_push.version


@dataclass(frozen=True)
class DropStalePushAction:
    """Action: discard a pushed gradient that is too stale."""

    push: WorkerPush
    version: int  # of the parameters when the push arrived


@dataclass(frozen=True)
class SendReplyAction:
    """Action: send a worker the current parameters, as the reply to its push.

    `step` is the step of the push.
    """

    worker: int  # rank
    step: int
    pending_samples: int  # that wait for an update, or that other workers are computing, as far as is known
    waited_s: float  # seconds since the push arrived, spent waiting for other workers
    next_is_asynchronous: bool  # whether the worker's next push makes an update alone; the reply of shard 0 counts


ShardAction: TypeAlias = ApplyUpdateAction | DropStalePushAction | SendReplyAction
