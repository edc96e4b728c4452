"""What does one rank do in a schedule, and what must be over before each of its acts?"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from services.collectives.base import Does, Schedule, Transfer
from services.learning.layout import Range


class Act(NamedTuple):
    """One message that a rank sends or takes."""

    sends: bool
    peer: int
    does: Does
    chunk: int  # the first of its transfer
    number: int  # within its transfer
    pieces: range
    after: tuple[int, ...]  # acts that must be over before
    then: tuple[int, ...] = ()  # acts that wait for this one
    passed_on: bool = False  # one of these sends what this one has taken


class Part(NamedTuple):
    """What one rank does: the pieces into which the vector is cut, and its acts in order."""

    pieces: tuple[Range, ...]
    acts: tuple[Act, ...]


@lru_cache(maxsize=256)  # every step does the same; a simulation has many ranks in one process
def part_of(schedule: Schedule, rank: int, size: int, length: int, entry_bytes: int) -> Part:
    """The part of `rank` in summing vectors of `size` entries, in messages of at most `length` entries."""
    cut = [_pieces(chunk, length) for chunk in schedule.chunks(size)]
    script = _Script(rank, cut, length, together=not schedule.pipelined)
    for each in schedule.rounds:
        script.send(transfer for transfer in each if transfer.source == rank)
        script.take(transfer for transfer in each if transfer.target == rank)
    ahead = schedule.pieces_ahead(length * entry_bytes)
    acts = _held_back(script.acts, ahead) if ahead else script.acts
    return Part(tuple(piece for pieces in cut for piece in pieces), _linked(acts))


def _pieces(chunk: Range, length: int) -> tuple[Range, ...]:
    """A chunk as ranges of at most `length` entries; none if it is empty."""
    ends = (*range(chunk.start, chunk.stop, length), chunk.stop)
    return tuple(Range(start, stop) for start, stop in pairwise(ends))


def _held_back(acts: Sequence[Act], ahead: int) -> list[Act]:
    """The same acts; a partial sum waits until the total of the piece `ahead` before it has come back the same way."""
    back = {(a.peer, a.chunk, a.number): k for k, a in enumerate(acts) if a.does == "copies" and not a.sends}

    def awaited(act: Act) -> set[int]:
        summand = act.does == "adds" and act.sends
        return {back[key]} if summand and (key := (act.peer, act.chunk, act.number - ahead)) in back else set()

    return [act._replace(after=tuple(sorted(awaited(act).union(act.after)))) for act in acts]


def _linked(acts: Sequence[Act]) -> tuple[Act, ...]:
    """The same acts; each knows which ones wait for it."""
    then: defaultdict[int, list[int]] = defaultdict(list)
    for number, act in enumerate(acts):
        for earlier in act.after:
            then[earlier].append(number)
    sent = {number for number, act in enumerate(acts) if act.sends}
    return tuple(
        act._replace(then=tuple(then[number]), passed_on=not (act.sends or sent.isdisjoint(then[number])))
        for number, act in enumerate(acts)
    )


class _Script:
    """Writes down a rank's acts, round by round."""

    def __init__(self, rank: int, cut: Sequence[Sequence[Range]], length: int, *, together: bool) -> None:
        """`together`: a transfer waits for whole transfers, and for all that this rank has to send before."""
        self.acts: list[Act] = []
        self._rank = rank
        self._together = together
        self._length = length
        self._sizes = [piece.size for pieces in cut for piece in pieces]
        self._firsts = list(accumulate(map(len, cut), initial=0))  # pieces before each chunk
        self._taken: dict[int, int] = {}  # piece -> the last act that has changed it
        self._sent: defaultdict[int, set[int]] = defaultdict(set)  # piece -> acts that have sent it since
        self._round: set[int] = set()  # the sends of the last round that had any, and tokens that came since

    def send(self, transfers: Iterable[Transfer]) -> None:
        """All sends of one round; they don't wait for each other."""
        earlier = self._round if self._together else set()
        sends = {act for transfer in transfers for act in self._sends(transfer, earlier)}
        self._round = sends or self._round

    def take(self, transfers: Iterable[Transfer]) -> None:
        """All that comes in one round, in this order."""
        for transfer in transfers:
            self._takes(transfer)

    def _sends(self, transfer: Transfer, earlier: set[int]) -> Iterable[int]:
        earlier = earlier | set(self._taken.values()) if transfer.does == "allows" else earlier
        for number, pieces in enumerate(self._messages(transfer)):
            act = self._write(transfer, number, pieces, earlier | self._changed(self._awaited(transfer, pieces)))
            for k in pieces:
                self._sent[k].add(act)
            yield act

    def _takes(self, transfer: Transfer) -> None:
        """It is there as a whole when its last message is."""
        previous: set[int] = set()
        for number, pieces in enumerate(self._messages(transfer)):
            sent = {act for k in pieces for act in self._sent.pop(k, ())}
            act = self._write(transfer, number, pieces, previous | sent | self._changed(pieces))
            previous = {act} if self._together else set()
            if transfer.does == "allows":
                self._round.add(act)
            self._taken.update(dict.fromkeys(self._awaited(transfer, pieces), act))

    def _write(self, transfer: Transfer, number: int, pieces: range, after: set[int]) -> int:
        sends = transfer.source == self._rank
        peer = transfer.target if sends else transfer.source
        self.acts.append(Act(sends, peer, transfer.does, transfer.first, number, pieces, tuple(sorted(after))))
        return len(self.acts) - 1

    def _changed(self, pieces: range) -> set[int]:
        """The acts that have last changed any of these."""
        return {self._taken[k] for k in pieces if k in self._taken}

    def _awaited(self, transfer: Transfer, pieces: range) -> range:
        """The pieces that are there together with these of a transfer."""
        return self._all(transfer) if self._together else pieces

    def _all(self, transfer: Transfer) -> range:
        return range(self._firsts[transfer.first], self._firsts[transfer.last])

    def _messages(self, transfer: Transfer) -> list[range]:
        """The pieces of each message, as many as fit; a token is one message and stands for all of them."""
        pieces = self._all(transfer)
        if transfer.does == "allows":
            return [pieces]
        starts: list[int] = []
        room = 0
        for k in pieces:
            if self._sizes[k] > room:
                starts.append(k)
                room = self._length
            room -= self._sizes[k]
        return [range(start, stop) for start, stop in pairwise((*starts, pieces.stop))]
