"""Thread of a process on which all its process groups exchange messages."""

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from services.cluster.links.link_conditions import ActiveLinkEvents
from services.commands.process_group.settings import ProcessGroupSettings
from services.plan import decode_plan
from services.runtime.clock import WallClock, make_precise_event_loop
from services.runtime.identity import NodeIdentity
from services.schema.errors import NetworkError, UserError
from services.transport.data_planes import DATA_PLANES
from services.transport.plan_shaping import make_link_shaping
from services.transport.shaping import TransportShaping
from services.transport.socket_transport import SocketTransport

STOP_TIMEOUT_S = 5.0  # wall seconds in which peers confirm that they have received all messages
TIME_LIMIT_REMEDY = (
    "all ranks must call the same collectives; if a rank may be this late, increase timeouts.step, or the timeout that "
    "the script passes to init_process_group"
)


class CommunicationThread:
    """Thread with an event loop and the transport of this process.

    A second thread calls the callbacks of scripts, which may wait for collectives.
    """

    def __init__(self, settings: ProcessGroupSettings, time_limit_s: float) -> None:
        """Start the threads, and listen for streams of other nodes.

        Messages must arrive within the time limit, in virtual seconds.

        Raises:
            PeerUnreachable: the address is not available.
        """
        self.user_count = 0
        self._connected_nodes: set[str] = set()
        self._callbacks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._has_failed = False
        self._has_stopped = False
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = _start_daemon("ensayo-communication", lambda: _run_event_loop(started))
        self.loop = started.result()
        self._callback_thread = _start_daemon("ensayo-callbacks", self._run_callbacks)
        self.transport: SocketTransport = self.run(_start_transport(settings, time_limit_s))
        self._time_limit_s = 0.0
        self.extend_time_limit(time_limit_s)
        atexit.register(self.stop)

    @property
    def is_callback_thread(self) -> bool:
        """Whether the calling thread is the one that calls the callbacks of scripts."""
        return threading.current_thread() is self._callback_thread

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the event loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Start a coroutine on the event loop, and return at once."""
        asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def connect(self, node_names: Iterable[str]) -> None:
        """Open the streams to other nodes, except those that earlier groups have opened.

        Raises:
            PeerUnreachable: a node does not accept a stream in time.
        """
        missing = sorted(set(node_names) - self._connected_nodes)
        self._has_failed = True  # until all streams are open: a stream that is not cannot be ended
        self.run(self.transport.connect(missing))
        self._has_failed = False
        self._connected_nodes.update(missing)

    def extend_time_limit(self, time_limit_s: float) -> None:
        """Let messages take so many virtual seconds, or longer if another group has a longer time limit."""
        self._time_limit_s = max(self._time_limit_s, time_limit_s)
        self.transport.set_time_limit(self._time_limit_s, TIME_LIMIT_REMEDY)

    def call_later(self, callback: Callable[[], object]) -> None:
        """Call `callback` on the thread for callbacks, after all earlier ones."""
        self._callbacks.put(callback)

    def stop(self) -> None:
        """End the streams and both threads."""
        if self._has_stopped:
            return
        self._has_stopped = True
        atexit.unregister(self.stop)
        self.run(self.transport.abort() if self._has_failed else _stop_transport(self.transport))
        self._callbacks.put(None)
        self.loop.call_soon_threadsafe(self.loop.stop)
        for thread in (self._thread, self._callback_thread):
            if thread is not threading.current_thread():
                thread.join(STOP_TIMEOUT_S)

    def _run_callbacks(self) -> None:
        while (callback := self._callbacks.get()) is not None:
            callback()


def _start_daemon(name: str, function: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=function, name=name, daemon=True)
    thread.start()
    return thread


def _run_event_loop(started: "Future[asyncio.AbstractEventLoop]") -> None:
    """Run the event loop of the calling thread until it is stopped."""
    loop = make_precise_event_loop()
    asyncio.set_event_loop(loop)
    loop.call_soon(started.set_result, loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _start_transport(settings: ProcessGroupSettings, time_limit_s: float) -> SocketTransport:
    clock = WallClock(settings.dilation)
    transport = DATA_PLANES["tcp"](
        addresses=settings.addresses,
        identity=NodeIdentity.read(settings.node, settings.secrets),
        clock=clock,
        timeout_s=max(settings.timeout_s, time_limit_s),  # to connect: other ranks may start later
        stream_lifetime_s=max(settings.timeout_s, time_limit_s),
        shaping=_make_shaping(settings, clock),
        protection=settings.protection,
    )
    await transport.start()
    return transport


def _make_shaping(settings: ProcessGroupSettings, clock: WallClock) -> TransportShaping | None:
    """Return the emulation of the links that the plan requires; None without a plan, or where the kernel does it."""
    if settings.plan is None:
        return None
    plan = decode_plan(settings.plan.read_bytes())
    if settings.node not in {node.name for node in plan.nodes}:
        raise UserError(f"{settings.plan}: the plan has no node {settings.node}; give the plan of this trial")
    link_conditions = ActiveLinkEvents() if plan.engine == "local" else None
    return make_link_shaping(plan, plan.node_plan(settings.node), clock, link_conditions, settings.link_state_file)


async def _stop_transport(transport: SocketTransport) -> None:
    """End the streams of this node when its messages have arrived, and do not wait long for those of others."""
    with suppress(NetworkError, TimeoutError):
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await transport.stop()
    await transport.abort()


_OPEN_THREADS: dict[str, CommunicationThread] = {}  # by name of the node; a process has one


def acquire_communication_thread(settings: ProcessGroupSettings, time_limit_s: float) -> CommunicationThread:
    """Return the communication thread of this process; start it for the first process group.

    `time_limit_s` is the time limit of a message of the group, in virtual seconds.
    """
    if settings.node not in _OPEN_THREADS:
        _OPEN_THREADS[settings.node] = CommunicationThread(settings, time_limit_s)
    thread = _OPEN_THREADS[settings.node]
    thread.extend_time_limit(time_limit_s)
    thread.user_count += 1
    return thread


def release_communication_thread(settings: ProcessGroupSettings) -> None:
    """Stop the communication thread of this process when its last process group ends."""
    thread = _OPEN_THREADS[settings.node]
    thread.user_count -= 1
    if not thread.user_count:
        del _OPEN_THREADS[settings.node]
        thread.stop()
