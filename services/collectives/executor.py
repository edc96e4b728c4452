"""The one executor of all collectives: it walks one rank's part of a schedule and moves pieces of the vector."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count

from services.collectives.base import Schedule
from services.collectives.part import Act, part_of
from services.collectives.payloads import PLAIN, Payloads, payloads
from services.compressors import Compressor
from services.device import HostArray
from services.transport.base import Message, Stage, Tag, Transport

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

    All ranks end with the same bits, whatever is rounded on the wire.

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
    piece_bytes = schedule.piece_bytes(vector.nbytes, transport.piece_bytes, transport.finest_bytes)
    part = part_of(schedule, rank, vector.size, max(1, piece_bytes // vector.itemsize))
    held = payloads(compressor, vector, part.pieces)
    await _Walk(transport, ranks, step, part.acts, held, _Turns() if schedule.sums_first else None).go()
    held.finish()


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


class _Walk:
    """One rank's acts on one vector."""

    def __init__(
        self,
        transport: Transport,
        ranks: Sequence[str],
        step: int,
        acts: Sequence[Act],
        held: Payloads,
        turns: _Turns | None,
    ) -> None:
        self._transport = transport
        self._ranks = ranks
        self._step = step
        self._acts = acts
        self._held = held
        self._turns = turns
        self._missing = [len(act.after) for act in acts]  # acts that must still end before each

    async def go(self) -> None:
        """Do each act as soon as those are over that it must wait for."""
        async with asyncio.TaskGroup() as group:
            await self._follow(group, [act for act in self._acts if not act.after])

    async def _follow(self, group: asyncio.TaskGroup, due: Sequence[Act]) -> None:
        """Do the first here and then what it has made possible: a task for every act would cost more than the act."""
        while due:
            act, *others = due
            for other in others:
                group.create_task(self._follow(group, (other,)))
            await self._do(act)
            due = [self._acts[number] for number in act.then if self._is_due(number)]

    def _is_due(self, number: int) -> bool:
        """Whether that was the last for which it had to wait."""
        self._missing[number] -= 1
        return not self._missing[number]

    async def _do(self, act: Act) -> None:
        if not act.sends:
            await self._take(act)
        elif self._turns is None:
            await self._send(act)
        else:
            async with self._turns.of(act):
                await self._send(act)

    async def _send(self, act: Act) -> None:
        data = b"" if act.does == "allows" else self._held.pack(act)
        await self._transport.send(self._ranks[act.peer], Message(self._tag(act), data))

    async def _take(self, act: Act) -> None:
        room = None if act.does == "allows" else self._held.room(act)
        message = await self._transport.recv(self._ranks[act.peer], self._tag(act), into=room)
        if act.does != "allows" and message.data is not room:
            self._held.take(act, message.data)

    def _tag(self, act: Act) -> Tag:
        return Tag(self._step, STAGES[act.does], act.chunk, act.number)
