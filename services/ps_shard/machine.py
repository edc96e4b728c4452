"""What does a server do with a push? Decides when to update and whom to answer; sends nothing, holds no parameters."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from services.parameter_server.staleness import UNIFORM_WEIGHTING, AnyStalenessWeighting
from services.parameter_server.synchronisers import AnySynchroniser
from services.schema.errors import ProtocolError


@dataclass(frozen=True)
class Push:
    """A worker's gradient has arrived."""

    worker: int
    step: int  # of the worker, from 0
    version: int  # of the parameters that it was computed from
    samples: int
    seconds: float = field(default=0.0, compare=False, repr=False)  # that the worker took to compute it; 0: not told
    alone: bool = field(default=False, repr=False)  # it waits for no other, as the first server has told its worker


@dataclass(frozen=True)
class Update:
    """Make one update of these gradients, which are in rank order so that sums repeat bitwise."""

    pushes: tuple[Push, ...]
    version: int  # of the parameters after it

    def staleness(self, push: Push) -> int:
        """Updates that were made between reading parameters and this update of them."""
        return self.version - 1 - push.version


@dataclass(frozen=True)
class Drop:
    """Forget this gradient: it came too late."""

    push: Push
    version: int  # of the parameters when it came


@dataclass(frozen=True)
class Reply:
    """Send a worker the parameters as they are now; it asked for them with its push of `step`."""

    worker: int
    step: int
    underway: int  # samples that wait for an update, or that others are computing, as far as can be known
    waited_s: float  # since the push came: for others to push
    alone: bool  # whether the worker's next push waits for nobody; what the first server says counts for all


Action: TypeAlias = Update | Drop | Reply


class Rhythm(NamedTuple):
    """What a worker's last step took, without waiting, and since when it waits or does the next one."""

    step_s: float
    began_s: float


@dataclass
class Shard:
    """The state of one server's protocol.

    A worker's clock counts the steps that it has pushed. Invariant: every push is part of exactly one update or is
    dropped, and is answered once. Time is told, in seconds since any moment; only dynamic synchronisers decide by it,
    and answers tell how long they were kept back. A server can begin where another left off: with a version and the
    samples that went into it.
    """

    workers: int
    synchrony: AnySynchroniser
    staleness: AnyStalenessWeighting = UNIFORM_WEIGHTING
    version: int = 0
    samples: int = 0  # that updates were made of
    dropped: int = 0  # samples
    budget: int | None = None  # samples after which workers stop; None: they count steps
    shares: dict[int, int] = field(default_factory=dict)  # samples of each worker's last push, or of its first to come
    _gathered: list[Push] = field(default_factory=list)
    _unanswered: dict[int, Push] = field(default_factory=dict)
    _clocks: dict[int, int] = field(init=False)
    _computing: set[int] = field(init=False)
    _stopping: set[int] = field(default_factory=set)  # told that others do the rest: nothing more comes from them
    _rhythms: dict[int, Rhythm] = field(init=False)
    _recent: dict[int, tuple[Push, ...]] = field(default_factory=dict)  # a window of each worker's, if anybody watches
    _slow: dict[int, int] = field(default_factory=dict)  # windows in a row in which a worker was too slow
    _granted: dict[int, int] = field(default_factory=dict)  # the last step that a worker may start without asking
    _apart: bool = False  # what workers are told: their next pushes wait for nobody

    def __post_init__(self) -> None:
        self._clocks = dict.fromkeys(range(self.workers), 0)
        self._computing = set(self._clocks)
        self._rhythms = dict.fromkeys(self._clocks, Rhythm(0.0, 0.0))

    def resume(self, steps: Mapping[int, int], now: float = 0.0) -> None:
        """Begin with these workers, or go on with them, from these steps of theirs, at the moment `now`.

        Raises:
            ProtocolError: somebody still waits for an answer.
        """
        if self._gathered or self._unanswered:
            raise ProtocolError(f"answers are outstanding: {self._gathered} {self._unanswered}")
        self._clocks, self._computing = dict(steps), set(steps)
        self._rhythms = {worker: self._rhythms[worker]._replace(began_s=now) for worker in steps}
        self._stopping.clear()
        self._granted.clear()
        self._apart = False

    def pushed(self, push: Push, now: float = 0.0) -> list[Action]:
        """Take a gradient in at the moment `now`; what to do, in order.

        Raises:
            ProtocolError: a push of a worker that has left, or that is not its next one.
        """
        if push.worker not in self._computing or push.step != self._clocks[push.worker]:
            raise ProtocolError(f"push {push} does not follow {self._clocks}")
        self._computing.remove(push.worker)
        self._stopping.discard(push.worker)
        self._clocks[push.worker] += 1
        self.shares[push.worker] = push.samples
        self._rhythms[push.worker] = Rhythm(now - self._rhythms[push.worker].began_s, now)
        self._watch(push)
        return [*self._taken(push), *self._updates(push if push.alone else None), *self._replies(now)]

    def left(self, worker: int, now: float = 0.0) -> list[Action]:
        """A worker will push no more: nobody waits for it.

        Raises:
            ProtocolError: it has left already, or its last push is still unanswered.
        """
        if worker not in self._computing:
            raise ProtocolError(f"worker {worker} can't leave: {self._clocks}")
        self._computing.remove(worker)
        del self._clocks[worker]
        return [*self._updates(), *self._replies(now)]

    def _taken(self, push: Push) -> Iterator[Drop]:
        """Keep a gradient for an update unless it is too old; whoever does not wait for that may be answered."""
        age = self.version - push.version
        takes = self.synchrony.accepts_staleness(age) and self.staleness.accepts_staleness(age)
        if not (takes and self.synchrony.replies_after_update):
            self._unanswered[push.worker] = push
        if takes:
            self._gathered.append(push)
            return
        self.dropped += push.samples
        yield Drop(push, self.version)

    def _updates(self, alone: Push | None = None) -> Iterator[Update]:
        """Updates that are due: of a gradient that waits for nobody, and of enough others; at the end of what there is.

        What workers are told to do next must fit together: once they are told to wait, all wait for all.
        """
        self._apart = self._apart and bool(self.stragglers)
        if alone in self._gathered:
            self._gathered.remove(alone)
            yield self._update(alone)
        if self._gathered and (not self._clocks or self._is_complete):
            pushes = sorted(self._gathered, key=lambda push: (push.worker, push.step))
            self._gathered.clear()
            self._apart = self.synchrony.is_asynchronous_with_stragglers and bool(self.stragglers)
            yield self._update(*pushes)

    def _update(self, *pushes: Push) -> Update:
        self.version += 1
        self.samples += sum(push.samples for push in pushes)
        if self.synchrony.replies_after_update:
            self._unanswered.update({push.worker: push for push in pushes})
        return Update(pushes, self.version)

    @property
    def _is_complete(self) -> bool:
        """Whether what is gathered makes an update at this moment."""
        stragglers = self.stragglers
        if len(self._gathered) < self.synchrony.required_gradients(len(self._clocks), len(stragglers)):
            return False
        return self.synchrony.required_workers(self._clocks, stragglers) <= {push.worker for push in self._gathered}

    @property
    def stragglers(self) -> frozenset[int]:
        """Workers that have been too slow for long enough."""
        if (watch := self.synchrony.straggler_criterion) is None:
            return frozenset()
        return frozenset(worker for worker in self._clocks if self._slow.get(worker, 0) >= watch.windows)

    def _watch(self, push: Push) -> None:
        """Compare a worker that has done a step with the others, if the waiting policy asks who is slow."""
        watch = self.synchrony.straggler_criterion
        if watch is None or not (push.seconds and push.samples):
            return
        self._recent[push.worker] = (*self._recent.get(push.worker, ()), push)[-watch.window :]
        speeds = {
            worker: sum(each.samples for each in recent) / sum(each.seconds for each in recent)
            for worker, recent in self._recent.items()
            if worker in self._clocks and len(recent) == watch.window
        }
        own = speeds.get(push.worker)
        slow = own is not None and watch.is_slow(own, list(speeds.values()))
        self._slow[push.worker] = self._slow.get(push.worker, 0) + 1 if slow else 0

    def _replies(self, now: float) -> Iterator[Reply]:
        """Answers to those that may start their next step."""
        for worker, push in sorted(self._unanswered.items()):
            if self._may_start(worker, push.step + 1, now):
                del self._unanswered[worker]
                underway = self._underway(push)
                self._computing.add(worker)
                if self.budget is not None and self.samples + underway >= self.budget:
                    self._stopping.add(worker)
                waited_s = now - self._rhythms[worker].began_s
                self._rhythms[worker] = self._rhythms[worker]._replace(began_s=now)
                yield Reply(worker, push.step, underway, waited_s, self._apart)

    def _may_start(self, worker: int, step: int, now: float) -> bool:
        slowest = min(self._clocks.values())
        if self.synchrony.may_start(step, slowest) or step <= self._granted.get(worker, -1):
            return True
        last = max((worker for worker, clock in self._clocks.items() if clock == slowest), key=self._due_s)
        extra = self.synchrony.extra_steps(
            steps_ahead=step - slowest,
            own_step_s=self._rhythms[worker].step_s,
            slowest_remaining_s=max(0.0, self._due_s(last) - now),
            slowest_step_s=self._rhythms[last].step_s,
        )
        self._granted[worker] = step + extra - 1
        return extra > 0

    def _due_s(self, worker: int) -> float:
        """When a worker is done with its step if it takes as long as the one before."""
        rhythm = self._rhythms[worker]
        return rhythm.began_s + rhythm.step_s

    def _underway(self, answered: Push) -> int:
        """A worker of which nothing is known is taken to compute as many samples as the one that is answered."""
        waiting = sum(push.samples for push in self._gathered)
        return waiting + sum(self.shares.get(worker, answered.samples) for worker in self._computing - self._stopping)
