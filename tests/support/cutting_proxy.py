"""Proxy on loopback that disturbs connections: it ends them after random numbers of bytes, delays and replays bytes."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from services.cluster.addresses import Address

PART_BYTES = 1 << 14
LONGEST_DELAY_S = 0.002
RECORDED_BYTES = 1 << 16  # of each connection, to send them again


@dataclass
class CuttingProxy:
    """Forwards connections to a node, and ends each of them after a random number of bytes in either direction.

    Half of the ends are followed by an attack: another connection begins with the bytes of the one that has ended.
    """

    target: Address
    rng: Random
    mean_bytes: float  # until a connection ends
    cuts: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> Address:
        """Listen on a free port and return its address."""
        self._server = await asyncio.start_server(self._start_forwarding, "127.0.0.1", 0)
        return Address(host="127.0.0.1", port=self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop to listen, and end all connections."""
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the loop closes the sockets of aborted connections in its next turn

    def _start_forwarding(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        recorded = bytearray()
        writers = [writer]
        try:
            back_reader, forward_writer = await asyncio.open_connection(self.target.host, self.target.port)
            writers.append(forward_writer)
            forward_bytes, back_bytes = (int(self.rng.expovariate(1 / self.mean_bytes)) for _ in range(2))
            copies = {
                asyncio.create_task(self._copy(reader, forward_writer, forward_bytes, recorded)),
                asyncio.create_task(self._copy(back_reader, writer, back_bytes // 100, bytearray())),
            }
            try:
                await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for copy in copies:
                    copy.cancel()
                results = await asyncio.gather(*copies, return_exceptions=True)
            was_cut = True in results
            self.cuts += was_cut
        except OSError:
            return  # the node does not listen, or no longer
        finally:
            for each in writers:
                each.transport.abort()
        if was_cut and self.rng.random() < 0.5:
            await self._replay(bytes(recorded))

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rest_bytes: int, recorded: bytearray
    ) -> bool:
        """Copy bytes until a side has ended, or `rest_bytes` are copied; return whether more bytes would follow."""
        while data := await reader.read(PART_BYTES):
            await asyncio.sleep(self.rng.uniform(0, LONGEST_DELAY_S))
            writer.write(data[:rest_bytes])
            await writer.drain()
            recorded += data[: RECORDED_BYTES - len(recorded)]
            rest_bytes -= len(data)
            if rest_bytes < 0:
                return True
        return False

    async def _replay(self, recorded: bytes) -> None:
        """Send the first bytes of a connection again, over another connection."""
        with suppress(OSError):
            _, writer = await asyncio.open_connection(self.target.host, self.target.port)
            writer.write(recorded)
            with suppress(OSError):
                await writer.drain()
            writer.transport.abort()
