"""Socket on which the agent of a node receives what the metering inside the command's process measures."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from services.commands.inside.ensayo_meter.protocol import COMPUTE_S, HELLO, STEP, encode_message

MAX_LINE_BYTES = 64 << 20  # a step with many collectives is one line

# Handles a message, and returns the wall seconds of compute that the next step has to take; None: it is not paced.
MessageHandler = Callable[[Mapping[str, Any]], Awaitable[float | None]]


@asynccontextmanager
async def serve_meter(socket_path: Path, handle_message: MessageHandler) -> AsyncIterator[None]:
    """Receive the messages of the metering during the `async with` block; `hello` and `step` get a reply.

    An error of the handler ends the block.
    """
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                message = json.loads(line)
                compute_s = await handle_message(message)
                if message["kind"] in (HELLO, STEP):
                    writer.write(encode_message({COMPUTE_S: compute_s}))
                    await writer.drain()
        except ConnectionError:
            pass  # the command has ended
        except Exception as error:  # noqa: BLE001 - raised at the end of the block
            if not failure.done():
                failure.set_exception(error)
        finally:
            writer.close()

    server = await asyncio.start_unix_server(serve_connection, socket_path, limit=MAX_LINE_BYTES)
    try:
        yield
    finally:
        server.close()
    if failure.done():
        await failure
