"""Processes that are the ranks of a script of torch.distributed, and call functions that a test names."""

import os
import socket
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from compose.runs.certificates import issue_certificates

START_METHOD = get_context("forkserver")
START_METHOD.set_forkserver_preload(["torch._dynamo", "process_group_checks"])  # imported once, not in each rank


class RankFailure(Exception):
    """A rank raised an error."""


class RankProcesses:
    """One process per rank, with a default process group of Ensayo."""

    def __init__(self, rank_count: int, folder: Path, group_limit_s: float = 1800, **settings: Any) -> None:
        """Start the processes; `settings` are additional settings of their process groups.

        `group_limit_s` is the timeout of the default group in virtual seconds, by default that of PyTorch.
        """
        names = [f"worker-{rank}" for rank in range(rank_count)]
        ports = find_free_ports(rank_count + 1)
        issue_certificates("test", names, folder)
        peers = {name: ["127.0.0.1", port] for name, port in zip(names, ports, strict=False)}
        self._connections: list[Connection] = []
        self.processes = []
        for rank, name in enumerate(names):
            own = {"node": name, "peers": peers, "ranks": names, "listen": peers[name], "secrets": str(folder / name)}
            connection, inner = START_METHOD.Pipe()
            arguments = (rank, rank_count, ports[-1], {**own, **settings}, group_limit_s, inner)
            process = START_METHOD.Process(target=_serve_calls, args=arguments, daemon=True)
            process.start()
            inner.close()
            self._connections.append(connection)
            self.processes.append(process)

    def call(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Call a function of a module on all ranks, and return the results by rank; a failure is a `RankFailure`."""
        self.start_call(function, *args)
        return [connection.recv() for connection in self._connections]

    def start_call(self, function: Callable[..., Any], *args: Any) -> None:
        """Start to call a function on all ranks."""
        for connection in self._connections:
            connection.send((function, args))

    def result_of(self, rank: int) -> Any:
        """Return the result of the last call on one rank."""
        return self._connections[rank].recv()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()
        for process in self.processes:
            process.join(20)
            process.kill()


def find_free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that no other process uses."""
    with ExitStack() as sockets:
        opened = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for each in opened:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in opened]


def _serve_calls(
    rank: int, rank_count: int, port: int, settings: Mapping[str, Any], group_limit_s: float, connection: Connection
) -> None:
    """Create the default process group, then call functions until the test closes the connection."""
    import torch  # noqa: PLC0415 - only ranks need it
    import torch.distributed as dist  # noqa: PLC0415
    from process_group_checks import install_process_group  # noqa: PLC0415

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(rank_count))
    install_process_group(dict(settings))
    # The metering of a command multiplies time limits by the dilation, also the default of half an hour.
    dist.init_process_group("gloo", timeout=timedelta(seconds=group_limit_s) * settings.get("dilation", 1))
    while True:
        try:
            function, args = connection.recv()
        except EOFError:
            break
        try:
            result = function(*args)
        except Exception as error:  # noqa: BLE001 - the test gets it
            result = RankFailure(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
        connection.send(result)
    dist.destroy_process_group()
