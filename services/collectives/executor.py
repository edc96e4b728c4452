"""The one executor of all collectives: it walks the routes and moves pieces of the vector."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from services.collectives.base import Route
from services.compressors import Compressor, Identity, from_wire, to_wire
from services.device import HostArray
from services.layout import ranges
from services.transport.base import Buffer, Message, Stage, Tag, Transport
from services.transport.vectors import pieces

PLAIN = Identity()


async def all_reduce(
    transport: Transport,
    ranks: Sequence[str],
    rank: int,
    routes: Sequence[Route],
    step: int,
    vector: HostArray,
    compressor: Compressor = PLAIN,
) -> None:
    """Replace `vector`, shape (n,) in host memory, by its sum over all ranks, in place.

    Every piece goes its way as a task of its own, so a piece is added and forwarded while the next one arrives.

    Args:
        ranks: node names by rank.
        rank: of this node.
        routes: one per chunk, from `Collective.routes`.
        step: names the messages of this call.
        compressor: number format of what is sent, partial sums and totals alike.
    """
    chunks = ranges(vector.size, len(routes)) if routes else ()
    async with asyncio.TaskGroup() as group:
        for route, chunk in zip(routes, chunks, strict=True):
            for number, piece in enumerate(pieces(chunk.of(vector), transport.piece_bytes)):
                walk = _Walk(transport, ranks, rank, route, (step, number), piece, compressor)
                group.create_task(walk.go())



@dataclass(frozen=True)
class _Walk:
    """One rank's part in one piece: add what comes, pass the partial sum on, take the total, spread it."""

    transport: Transport
    ranks: Sequence[str]
    rank: int
    route: Route
    name: tuple[int, int]  # step, number of the piece
    piece: HostArray
    compressor: Compressor

    async def go(self) -> None:
        step, number = self.name
        sums = Tag(step, Stage.SUM, self.route.chunk, number)
        spreads = Tag(step, Stage.SPREAD, self.route.chunk, number)
        for source in self.route.adds_from(self.rank):
            received = await self.transport.recv(self.ranks[source], sums)
            np.add(self._unpack(received.data), self.piece, out=self.piece)
        for target in self.route.passes_to(self.rank):
            await self.transport.send(self.ranks[target], Message(sums, self._pack()))
        total = await self._total(spreads)
        self.piece[:] = self._unpack(total)
        for target in self.route.spreads_to(self.rank):
            await self.transport.send(self.ranks[target], Message(spreads, total))

    async def _total(self, spreads: Tag) -> Buffer:
        """The total as all ranks get it: the root takes it as it sends it, rounded if the format rounds."""
        for source in self.route.copies_from(self.rank):
            return (await self.transport.recv(self.ranks[source], spreads)).data
        return self._pack()

    def _pack(self) -> Buffer:
        payload, _ = self.compressor.compress(self.piece, None)
        return to_wire(payload).data

    def _unpack(self, data: Buffer) -> HostArray:
        return from_wire(self.compressor, np.frombuffer(data, np.uint8), self.piece.size, self.piece.dtype.name)
