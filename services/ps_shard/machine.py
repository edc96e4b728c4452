"""What does a server do with a push? Decides when to update and whom to answer; sends nothing, holds no parameters."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from services.errors import ProtocolError
from services.synchronisers import AnySynchroniser


@dataclass(frozen=True)
class Push:
    """A worker's gradient has arrived."""

    worker: int
    step: int  # of the worker, from 0
    version: int  # of the parameters that it was computed from
    samples: int


@dataclass(frozen=True)
class Update:
    """Make one update of these gradients, which are in rank order so that sums repeat bitwise."""

    pushes: tuple[Push, ...]
    version: int  # of the parameters after it


@dataclass(frozen=True)
class Reply:
    """Send a worker the parameters as they are now; it asked for them with its push of `step`."""

    worker: int
    step: int


Action: TypeAlias = Update | Reply


@dataclass
class Shard:
    """The state of one server's protocol.

    A worker's clock counts the steps that it has pushed and that have been applied. Invariant: every push is part of
    exactly one update, and answered once.
    """

    workers: int
    synchrony: AnySynchroniser
    version: int = 0
    samples: int = 0
    _gathered: dict[int, Push] = field(default_factory=dict)
    _unanswered: dict[int, Push] = field(default_factory=dict)
    _clocks: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self._clocks = dict.fromkeys(range(self.workers), 0)

    def resume(self, steps: Mapping[int, int]) -> None:
        """Go on with these workers, from these steps of theirs.

        Raises:
            ProtocolError: somebody still waits for an answer.
        """
        if self._gathered or self._unanswered:
            raise ProtocolError(f"answers are outstanding: {self._gathered} {self._unanswered}")
        self._clocks = dict(steps)

    def pushed(self, push: Push) -> list[Action]:
        """Take a gradient in; what to do now, in order.

        Raises:
            ProtocolError: a push of a worker that has left, or that is not its next one.
        """
        if push.worker not in self._clocks or push.worker in self._gathered or push.step != self._clocks[push.worker]:
            raise ProtocolError(f"push {push} does not follow {self._clocks}")
        self._gathered[push.worker] = push
        return [*self._updates(), *self._replies()]

    def left(self, worker: int) -> list[Action]:
        """A worker will push no more: nobody waits for it.

        Raises:
            ProtocolError: it has left already, or its last push is still unanswered.
        """
        if worker not in self._clocks or worker in self._unanswered or worker in self._gathered:
            raise ProtocolError(f"worker {worker} can't leave: {self._clocks}")
        del self._clocks[worker]
        return [*self._updates(), *self._replies()]

    def _updates(self) -> Iterator[Update]:
        """The update that is due, if enough gradients are there."""
        if not self._gathered or len(self._gathered) < self.synchrony.gathers(len(self._clocks)):
            return
        pushes = tuple(self._gathered[worker] for worker in sorted(self._gathered))
        self._gathered.clear()
        self.version += 1
        for push in pushes:
            self.samples += push.samples
            self._clocks[push.worker] += 1
            self._unanswered[push.worker] = push
        yield Update(pushes, self.version)

    def _replies(self) -> Iterator[Reply]:
        """Answers to those that may start their next step."""
        slowest = min(self._clocks.values(), default=0)
        for worker, push in sorted(self._unanswered.items()):
            if self.synchrony.may_start(push.step + 1, slowest):
                del self._unanswered[worker]
                yield Reply(worker, push.step)
