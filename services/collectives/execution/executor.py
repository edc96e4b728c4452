"""The one executor of all collectives: it walks one rank's part of a schedule and moves pieces of the vector."""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count

from services.collectives.base import Schedule
from services.collectives.execution.payloads import PLAIN, Payloads, payloads
from services.collectives.execution.rank_schedule import Act, part_of
from services.compressors import Compressor
from services.runtime.transport import Awaited, Buffer, Message, Outcome, Sending, Stage, Tag, Transport
from services.schema.arrays import HostArray

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
    part = part_of(schedule, rank, vector.size, max(1, piece_bytes // vector.itemsize), vector.itemsize)
    held = payloads(compressor, vector, part.pieces)
    await _Walk(transport, ranks, step, part.acts, held, _Turns() if schedule.sums_first else None).go()
    held.finish()


class _Turns:
    """Who sends next where pieces of several transfers are ready: partial sums first, since totals wait for them."""

    def __init__(self) -> None:
        self._has: int | None = None  # the act whose turn it is
        self._waiting: list[tuple[bool, int, int, int]] = []
        self._numbers = count()  # of equals the one that has waited longest

    def take(self, number: int, act: Act) -> bool:
        """Whether it is the turn of `act`; then `give_back` must follow. Otherwise `give_back` will name it."""
        if self._has is None:
            self._has = number
        elif self._has != number:
            heappush(self._waiting, (act.does == "copies", act.number, next(self._numbers), number))
        return self._has == number

    def give_back(self) -> int | None:
        """Handed on to the act that is named: nobody who comes now goes before those who wait."""
        self._has = heappop(self._waiting)[-1] if self._waiting else None
        return self._has


class _Walk:
    """One rank's acts on one vector.

    No task does them, but the end of one begins those that waited for it: a message that comes is summed and passed on
    in the same turn of the event loop. Tasks and futures for every piece would cost more than its sum.
    """

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
        self._left = len(acts)
        self._due = deque(number for number, act in enumerate(acts) if not act.after)
        self._under_way: dict[int, Awaited] = {}  # by act
        self._is_busy = False

    async def go(self) -> None:
        """Do each act as soon as those are over that it must wait for.

        Raises:
            NetworkError: the first error of an act; the others are given up.
        """
        if not self._acts:
            return
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._go_on()
        try:
            await self._over
        finally:
            if self._under_way:
                await self._give_up()

    async def _give_up(self) -> None:
        """Return when those acts are over that an error has left without a purpose."""
        given_up = tuple(self._under_way.values())
        for each in given_up:
            each.cancel()
        await asyncio.gather(*(each for each in given_up if isinstance(each, asyncio.Future)), return_exceptions=True)

    def _go_on(self) -> None:
        """Begin all that is due; what this ends makes more of it due."""
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._due and not self._over.done():
                self._begin(self._due.popleft())
        except Exception as error:  # noqa: BLE001 - nobody else hears of it: whoever called was a message
            self._fail(error)
        self._is_busy = False

    def _begin(self, number: int) -> None:
        act = self._acts[number]
        if not act.sends:
            self._take(number, act)
        elif self._turns is None or self._turns.take(number, act):
            self._send(number, act)

    def _send(self, number: int, act: Act) -> None:
        data = b"" if act.does == "allows" else self._held.pack(act)
        sending = self._transport.send_soon(self._ranks[act.peer], Message(self._tag(act), data))
        if sending is None:
            self._sent(number)
        else:
            self._under_way[number] = sending
            sending.add_done_callback(partial(self._left_at_last, number))

    def _left_at_last(self, number: int, sending: Sending) -> None:
        if self._over.done():
            return
        del self._under_way[number]
        if sending.cancelled():
            self._over.cancel()
        elif (error := sending.exception()) is not None:
            self._fail(error)
        else:
            self._sent(number)
            self._go_on()

    def _sent(self, number: int) -> None:
        """Whose turn comes now is due, not called: acts begin nowhere but in `_go_on`, which hears of their errors."""
        if self._turns is not None and (following := self._turns.give_back()) is not None:
            self._due.appendleft(following)
        self._end(number)

    def _take(self, number: int, act: Act) -> None:
        room = None if act.does == "allows" else self._held.room(act)
        came = partial(self._came, number, room)
        receiving = self._transport.recv_then(self._ranks[act.peer], self._tag(act), came, room)
        if receiving is not None:
            self._under_way[number] = receiving

    def _came(self, number: int, room: Buffer | None, outcome: Outcome) -> None:
        if self._over.done():
            return None
        self._under_way.pop(number, None)
        if not isinstance(outcome, Message):
            return self._fail(outcome)
        try:
            self._hold(self._acts[number], room, outcome.data)
        except Exception as error:  # noqa: BLE001 - as above
            return self._fail(error)
        self._end(number)
        return self._go_on()

    def _hold(self, act: Act, room: Buffer | None, data: Buffer) -> None:
        if act.does != "allows" and data is not room:
            self._held.take(act, data)

    def _end(self, number: int) -> None:
        """What waited for this act alone is due."""
        self._left -= 1
        if not self._left:
            self._over.set_result(None)
        for then in self._acts[number].then:
            self._missing[then] -= 1
            if not self._missing[then]:
                self._due.append(then)

    def _fail(self, error: BaseException) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    def _tag(self, act: Act) -> Tag:
        return Tag(self._step, STAGES[act.does], act.chunk, act.number)
