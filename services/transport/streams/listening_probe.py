"""Probe of a node's data port: a node that has ended refuses connections."""

import asyncio
import errno
import socket

from services.cluster.addresses import Address

# Wall seconds for which a node must refuse connections before it counts as ended. A node listens as long as it runs.
REFUSED_LIMIT_S = 0.2
PROBE_INTERVAL_S = 0.05  # wall seconds between two connections to the node
PROBE_TIMEOUT_S = 5.0  # wall seconds after which a connection without any answer says nothing
_ERRORS_OF_ENDED_NODES = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH)


class RefusedConnectionTimer:
    """Measures for how long a node has refused all connections."""

    def __init__(self) -> None:
        self._refused_since_s: float | None = None

    def is_node_ended(self, error: OSError | None) -> bool:
        """Return whether the node has ended, after a connection that has failed with `error`; None: it succeeded."""
        if error is None or error.errno not in _ERRORS_OF_ENDED_NODES:
            self._refused_since_s = None
            return False
        now_s = asyncio.get_running_loop().time()
        if self._refused_since_s is None:
            self._refused_since_s = now_s
        return now_s - self._refused_since_s >= REFUSED_LIMIT_S


async def wait_until_node_has_ended(address: Address) -> None:
    """Return when no process listens at the data address of a node any more."""
    refused_connections = RefusedConnectionTimer()
    while True:
        if refused_connections.is_node_ended(await _try_connection(address)):
            return
        await asyncio.sleep(PROBE_INTERVAL_S)


async def _try_connection(address: Address) -> OSError | None:
    """Connect to an address, close the connection, and return the error; None if a process listens there."""
    connection = socket.socket()
    connection.setblocking(False)  # noqa: FBT003 - the socket module's own signature
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            await asyncio.get_running_loop().sock_connect(connection, (address.host, address.port))
    except OSError as error:  # TimeoutError is one, without a number
        return error
    finally:
        connection.close()
    return None
