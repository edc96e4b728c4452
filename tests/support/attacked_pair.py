"""Two nodes that exchange messages while another process attacks one of them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from refused_connection_events import refused_connections

from services.cluster.addresses import Address
from services.runtime.clock import WallClock, make_precise_event_loop
from services.runtime.identity import NodeIdentity
from services.runtime.refused_connections import RefusedConnectionLog
from services.runtime.run_log import RunLog
from services.runtime.transport import DataProtection, Message, MessageKind, MessageTag
from services.transport.socket_transport import SocketTransport

PAYLOAD_LIMIT_BYTES = 1 << 20
Attack = Callable[[], Awaitable[object]]


def attack_pair(
    plane: type[SocketTransport],
    identities: Mapping[str, NodeIdentity],
    addresses: Mapping[str, Address],
    attack: Attack,
    *,
    protection: DataProtection = "signed",
) -> list[dict[str, Any]]:
    """Run an attack on b between two messages from a to b, and return the rejections in the log of b.

    Both messages must arrive, and both nodes must end without an error.
    """
    log_lines: list[str] = []

    async def main() -> None:
        clock = WallClock()
        nodes = {name: plane(addresses, identities[name], clock, 5.0, 30.0, None, protection) for name in "ab"}
        log = RunLog("b", clock, log_lines.append)
        nodes["b"].limit_incoming_streams(PAYLOAD_LIMIT_BYTES, RefusedConnectionLog(log))
        for node in nodes.values():
            await node.start()
        await _exchange(nodes, 0)
        await attack()
        await asyncio.sleep(0.05)  # the receiver has read what the attack has sent
        await _exchange(nodes, 1)
        await asyncio.gather(*(node.stop() for node in nodes.values()))

    with asyncio.Runner(loop_factory=make_precise_event_loop) as runner:
        runner.run(main())
    return refused_connections(log_lines)


async def _exchange(nodes: Mapping[str, SocketTransport], step: int) -> None:
    tag, data = MessageTag(step, MessageKind.PUSH), bytes([step]) * 100_000
    await nodes["a"].send("b", Message(tag, data))
    assert bytes((await nodes["b"].receive("a", tag)).data) == data
