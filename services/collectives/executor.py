"""The one executor of all collectives: it walks the routes and moves pieces of the vector."""

import asyncio
from collections.abc import Sequence

import numpy as np

from services.collectives.base import Route
from services.device import HostArray
from services.layout import ranges
from services.transport.base import Message, Stage, Tag, Transport
from services.transport.vectors import pieces


async def all_reduce(
    transport: Transport,
    ranks: Sequence[str],
    rank: int,
    routes: Sequence[Route],
    step: int,
    vector: HostArray,
) -> None:
    """Replace `vector`, shape (n,) in host memory, by its sum over all ranks, in place.

    Every piece goes its way as a task of its own, so a piece is added and forwarded while the next one arrives.

    Args:
        transport: of this node.
        ranks: node names by rank.
        rank: of this node.
        routes: one per chunk, from `Collective.routes`.
        step: names the messages of this call.
        vector: this rank's summand, then the sum.
    """
    chunks = ranges(vector.size, len(routes)) if routes else ()
    async with asyncio.TaskGroup() as group:
        for route, chunk in zip(routes, chunks, strict=True):
            for number, piece in enumerate(pieces(chunk.of(vector), transport.piece_bytes)):
                group.create_task(_walk(transport, ranks, rank, route, (step, number), piece))


async def _walk(
    transport: Transport,
    ranks: Sequence[str],
    rank: int,
    route: Route,
    name: tuple[int, int],
    piece: HostArray,
) -> None:
    """One rank's part in one piece: add what comes, pass the partial sum on, take the total, spread it."""
    step, number = name
    sums = Tag(step, Stage.SUM, route.chunk, number)
    spreads = Tag(step, Stage.SPREAD, route.chunk, number)
    for source in route.adds_from(rank):
        received = await transport.recv(ranks[source], sums)
        np.add(np.frombuffer(received.data, piece.dtype), piece, out=piece)
    for target in route.passes_to(rank):
        await transport.send(ranks[target], Message(sums, piece.data))
    total: Message | None = None
    for source in route.copies_from(rank):
        total = await transport.recv(ranks[source], spreads)
        piece[:] = np.frombuffer(total.data, piece.dtype)
    for target in route.spreads_to(rank):
        await transport.send(ranks[target], Message(spreads, piece.data if total is None else total.data))
