"""Socket on which the agent of a node receives what the metering inside the command's process measures."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from services.commands.script_process.ensayo_meter.protocol import BEGIN, COMPUTE_S, STEP, encode_message

LAST_MESSAGES_TIMEOUT_S = 10.0  # wall seconds, to handle what the process has sent before its end
MAX_LINE_BYTES = 64 << 20  # a step with many collectives is one line

# Handles a message, and returns the wall seconds of compute that the next step has to take; None: it is not paced.
MessageHandler = Callable[[Mapping[str, Any]], Awaitable[float | None]]


@asynccontextmanager
async def serve_meter(socket_path: Path, handle_message: MessageHandler) -> AsyncIterator[asyncio.Future[None]]:
    """Receive the messages of the metering during the `async with` block; `begin` and `step` get a reply.

    The block gets a future, which an error of the handler fails. All messages are handled before the block ends.
    """
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    connections: set[asyncio.Task[None]] = set()

    async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(_serve_messages(reader, writer, handle_message))
        connections.add(task)
        await asyncio.wait((task,))
        writer.close()
        if (error := task.exception()) is not None and not failure.done():
            failure.set_exception(error)

    server = await asyncio.start_unix_server(serve_connection, socket_path, limit=MAX_LINE_BYTES)
    try:
        yield failure
    finally:
        server.close()
        if connections:
            await asyncio.wait(connections, timeout=LAST_MESSAGES_TIMEOUT_S)
    if failure.done():
        await failure


async def _serve_messages(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handle_message: MessageHandler
) -> None:
    """Handle the messages of one process until it ends, and reply to those that expect it."""
    with suppress(ConnectionError):  # the command has ended
        while line := await reader.readline():
            message = json.loads(line)
            compute_s = await handle_message(message)
            if message["kind"] in (BEGIN, STEP):
                writer.write(encode_message({COMPUTE_S: compute_s}))
                await writer.drain()
