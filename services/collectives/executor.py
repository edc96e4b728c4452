"""The one executor of all collectives: it walks one rank's part of a schedule and moves pieces of the vector."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

import numpy as np

from services.collectives.base import Schedule
from services.collectives.part import Act, part_of
from services.compressors import Compressor, Identity, from_wire, to_wire
from services.device import HostArray
from services.layout import Range
from services.transport.base import Buffer, Message, Stage, Tag, Transport

PLAIN = Identity()
STAGES = {"adds": Stage.SUM, "copies": Stage.SPREAD, "allows": Stage.ALLOW}


async def all_reduce(
    transport: Transport,
    ranks: Sequence[str],
    rank: int,
    schedule: Schedule,
    step: int,
    vector: HostArray,
    compressor: Compressor = PLAIN,
) -> None:
    """Replace `vector`, shape (n,) in host memory, by its sum over all ranks, in place.

    What is rounded on the wire is rounded at its sender too, and totals are passed on as they came: so all ranks end
    with the same bits.

    Args:
        transport: of this node.
        ranks: node names by rank.
        rank: of this node.
        schedule: from `Collective.schedule`.
        step: names the messages of this call.
        vector: this rank's summand, then the sum.
        compressor: number format of what is sent, partial sums and totals alike.
    """
    if not schedule.rounds:
        return
    piece_bytes = min(transport.piece_bytes, schedule.segment_bytes or transport.piece_bytes)
    part = part_of(schedule, rank, vector.size, max(1, piece_bytes // vector.itemsize))
    walk = _Walk(transport, ranks, step, vector, compressor, part.pieces, _Turns() if schedule.sums_first else None)
    await walk.go(part.acts)
    if compressor != PLAIN:
        walk.round_what_was_not_sent()


class _Turns:
    """Who sends next where pieces of several transfers are ready: partial sums first, since totals wait for them."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: list[tuple[bool, int, int, asyncio.Event]] = []
        self._numbers = count()  # of equals the one that has waited longest

    @asynccontextmanager
    async def of(self, act: Act) -> AsyncIterator[None]:
        """A context that is entered when it is the turn of `act`."""
        if self._taken:
            turn = asyncio.Event()
            heappush(self._waiting, (act.does == "copies", act.number, next(self._numbers), turn))
            await turn.wait()
        self._taken = True
        try:
            yield
        finally:
            self._taken = bool(self._waiting)  # handed on: nobody who comes now goes before those who wait
            if self._waiting:
                heappop(self._waiting)[-1].set()


@dataclass(frozen=True)
class _Walk:
    """One rank's acts on one vector."""

    transport: Transport
    ranks: Sequence[str]
    step: int
    vector: HostArray
    compressor: Compressor
    pieces: Sequence[Range]
    turns: "_Turns | None"
    totals: dict[int, Buffer] = field(default_factory=dict)  # piece -> how everybody gets its total

    async def go(self, acts: Sequence[Act]) -> None:
        """Do each as soon as those are over that it must wait for."""
        over = [asyncio.Event() for _ in acts]
        async with asyncio.TaskGroup() as group:
            for act, done in zip(acts, over, strict=True):
                group.create_task(self._when_due(act, [over[earlier] for earlier in act.after], done))

    async def _when_due(self, act: Act, earlier: Sequence[asyncio.Event], done: asyncio.Event) -> None:
        for event in earlier:
            await event.wait()
        await self._do(act)
        done.set()

    async def _do(self, act: Act) -> None:
        tag, peer = Tag(self.step, STAGES[act.does], act.chunk, act.number), self.ranks[act.peer]
        if act.sends:
            async with self.turns.of(act) if self.turns else nullcontext():
                await self.transport.send(peer, Message(tag, self._payload(act)))
        else:
            self._take(act, (await self.transport.recv(peer, tag)).data)

    def _payload(self, act: Act) -> Buffer:
        """What is sent: nothing in a token, else piece by piece, partial sums packed now and totals once."""
        if act.does == "allows":
            return b""
        pack = self._pack if act.does == "adds" else self._total
        data = [pack(k) for k in act.pieces]
        return data[0] if len(data) == 1 else b"".join(data)

    def _take(self, act: Act, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        for k in act.pieces if act.does != "allows" else ():
            piece = self.pieces[k].of(self.vector)
            length = self.compressor.nbytes(piece.size, piece.dtype.name)
            received, view = view[:length], view[length:]
            if act.does == "adds":
                np.add(self._unpack(received, piece), piece, out=piece)
            else:
                piece[:] = self._unpack(received, piece)
                self.totals[k] = received

    def round_what_was_not_sent(self) -> None:
        """A total that others have got is rounded; whoever has formed it too and sent it to nobody rounds it alike."""
        for k in range(len(self.pieces)):
            self._total(k)

    def _total(self, k: int) -> Buffer:
        if k not in self.totals:
            self.totals[k] = self._pack(k)
        return self.totals[k]

    def _pack(self, k: int) -> Buffer:
        """A piece as it is sent; what is kept of it is what the others get."""
        piece = self.pieces[k].of(self.vector)
        payload, _ = self.compressor.compress(piece, None)
        data = to_wire(payload).data
        if self.compressor != PLAIN:
            piece[:] = self._unpack(data, piece)
        return data

    def _unpack(self, data: Buffer, piece: HostArray) -> HostArray:
        return from_wire(self.compressor, np.frombuffer(data, np.uint8), piece.size, piece.dtype.name)
