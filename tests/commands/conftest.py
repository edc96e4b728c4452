"""Metered scripts as processes, and a server in the place of the node agent."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from services.commands.script_process.ensayo_meter.protocol import BEGIN, COLLECTIVE_COLUMNS, COMPUTE_S, STEP

SCRIPT_PROCESS = Path("services/commands/script_process").resolve()
SCRIPTS = Path("tests/commands/scripts").resolve()
TIMEOUT_S = 120


class AgentServer:
    """Server of one rank's socket, which states the same compute time for all steps, in a number of replies."""

    def __init__(self, path: Path, compute_s: float | None, replies: int) -> None:
        self.path, self.messages = path, list[dict[str, Any]]()
        self._compute_s, self._replies = compute_s, replies
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):  # the socket is closed while no process has connected
            connection, _ = self._listener.accept()
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    message = json.loads(line)
                    self.messages.append(message)
                    if len(self.messages) >= self._replies:
                        return
                    if message["kind"] in (BEGIN, STEP):
                        connection.sendall(json.dumps({COMPUTE_S: self._compute_s}).encode() + b"\n")

    def close(self) -> None:
        """Stop after all that a process has sent."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(TIMEOUT_S)
        self._listener.close()


@dataclass
class RankOutcome:
    """What one rank of a script did."""

    exit_code: int
    output: str
    errors: str
    messages: list[dict[str, Any]] = field(default_factory=list)

    def steps(self) -> list[dict[str, Any]]:
        """Return the messages of steps, with each collective as a dictionary."""
        return [
            {
                **message,
                "collectives": [dict(zip(COLLECTIVE_COLUMNS, row, strict=True)) for row in message["collectives"]],
            }
            for message in self.messages
            if message["kind"] == STEP
        ]

    def kinds(self) -> list[str]:
        """Return the kinds of the messages."""
        return [message["kind"] for message in self.messages]


RunRanks: TypeAlias = Callable[..., list[RankOutcome]]
DryRunScript: TypeAlias = Callable[..., dict[str, Any]]


def rank_environment(rank: int, count: int, port: int) -> dict[str, str]:
    """Return the environment of one rank, not metered."""
    ranks = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("ENSAYO_", "PYTHONPATH"))}
    return {**inherited, **{key: str(value) for key, value in ranks.items()}, "OMP_NUM_THREADS": "1"}


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def metered(environment: Mapping[str, str], settings_path: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of a metered process."""
    settings_path.write_text(json.dumps(settings))
    return {**environment, "PYTHONPATH": str(SCRIPT_PROCESS), "ENSAYO_METER": str(settings_path)}


@pytest.fixture
def run_ranks(tmp_path: Path) -> RunRanks:
    """Return a function that runs a script on a number of ranks, metered or not."""

    def run(
        script: str,
        *arguments: object,
        count: int = 2,
        is_metered: bool = True,
        compute_s: float | None = None,
        schedule: Mapping[str, Any] | None = None,
        replies: int = sys.maxsize,
        **settings: Any,
    ) -> list[RankOutcome]:
        port, servers, processes = free_port(), list[AgentServer](), []
        for rank in range(count):
            environment = rank_environment(rank, count, port)
            if is_metered:
                servers.append(AgentServer(tmp_path / f"{port}-{rank}", compute_s, replies))
                all_settings = {
                    "mode": "measure",
                    "socket": str(servers[-1].path),
                    "step_schedule": schedule,
                    **settings,
                }
                environment = metered(environment, tmp_path / f"{port}-{rank}.json", all_settings)
            command = [sys.executable, SCRIPTS / script, *map(str, arguments)]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            processes.append(subprocess.Popen(command, env=environment, **pipes))
        try:
            outputs = [process.communicate(timeout=TIMEOUT_S) for process in processes]
        finally:
            for process in processes:
                process.kill()
            for server in servers:
                server.close()
        messages = [server.messages for server in servers] or [[] for _ in processes]
        return [
            RankOutcome(process.returncode, *output, sent)
            for process, output, sent in zip(processes, outputs, messages, strict=True)
        ]

    return run


@pytest.fixture
def dry_run(tmp_path: Path) -> DryRunScript:
    """Return a function that runs a script dry and returns what it wrote."""

    def run(script: str, *arguments: object, world_size: int = 2, steps: int = 6) -> dict[str, Any]:
        output = tmp_path / "dry_run.json"
        settings = {"mode": "dry_run", "output": str(output), "dry_run_steps": steps}
        environment = metered(rank_environment(0, world_size, free_port()), tmp_path / "settings.json", settings)
        command = [sys.executable, SCRIPTS / script, *map(str, arguments)]
        subprocess.run(command, env=environment, timeout=TIMEOUT_S, check=False, capture_output=True)
        result: dict[str, Any] = json.loads(output.read_text())
        return result

    return run
