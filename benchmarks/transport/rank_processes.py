"""The processes of a variant: one per rank, each in its place, all of them working on the same job."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.transport.cases import BARE, GLOO, RAW, TEXTBOOK
from benchmarks.transport.jobs import Answer, Job
from benchmarks.transport.network_namespaces import Space
from compose.engines.local import NODE_ENVIRONMENT
from services.schema.errors import HostError

PROGRAMS: Mapping[str, str] = {
    RAW: "raw_tcp",
    TEXTBOOK: "textbook_grpc",
    BARE: "bare_grpc",
}  # all others are planes of ours
ANSWER_S = 5.0  # for the ranks to end once their input has


@dataclass(frozen=True)
class Took:
    """One job; wall and CPU seconds per call, the latter of all ranks together."""

    seconds: float
    cpu_s: float


@dataclass(frozen=True)
class Group:
    """The ranks of one variant; they sleep while others work."""

    name: str
    processes: Sequence["subprocess.Popen[str]"]

    def work(self, job: Job) -> Took:
        """Do it; the mean over the ranks of each one's median.

        Raises:
            HostError: a rank has failed.
        """
        for process in self.processes:
            _tell(process, json.dumps(job))
        answers: list[Answer] = [json.loads(_hear(self.name, process)) for process in self.processes]
        seconds = fmean(each["seconds"] for each in answers if each["seconds"] is not None)
        return Took(seconds, sum(each["cpu_s"] for each in answers))


@contextmanager
def group(name: str, space: Space, ports: Sequence[int], secrets: Path, torch: str | None) -> Iterator[Group]:
    """The ranks of a variant, connected.

    Args:
        name: of a data plane, or a rival.
        space: where they live.
        ports: on which they listen.
        secrets: folder of each rank's certificate and key.
        torch: an interpreter that has PyTorch.

    Raises:
        HostError: they did not get ready.
    """
    task: dict[str, Any] = {"hosts": space.hosts, "ports": ports, "interface": space.interface}
    with ExitStack() as stack:
        processes = []
        for rank, prefix in enumerate(space.prefixes):
            told = json.dumps(task | {"rank": rank, "plane": name, "secrets": str(secrets)})
            processes.append(stack.enter_context(_process([*prefix, *_program(name, torch), told], name)))
        for process in processes:
            if (said := _hear(name, process).strip()) != "ready":
                raise HostError(f"{name}: a rank said {said!r} instead of being ready")
        yield Group(name, processes)
        for process in processes:
            assert process.stdin is not None  # noqa: S101 - it is piped
            process.stdin.close()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):  # what has been measured counts, however they end
                process.wait(ANSWER_S)


def with_torch(named: str) -> str | None:
    """The path of an interpreter, if it is there and has PyTorch."""
    if (path := shutil.which(named)) is None:
        return None
    found = subprocess.run([path, "-c", "import torch.distributed"], capture_output=True, check=False)  # noqa: S603
    return None if found.returncode else path


def _program(name: str, torch: str | None) -> list[str]:
    if name == GLOO and torch is not None:
        return [torch, str(Path(__file__).with_name("gloo.py"))]
    return [sys.executable, "-m", f"benchmarks.transport.{PROGRAMS.get(name, 'rank')}"]


@contextmanager
def _process(command: list[str], name: str) -> Iterator["subprocess.Popen[str]"]:
    """A process of our own that is gone afterwards."""
    bare = {key: value for key, value in os.environ.items() if key not in NODE_ENVIRONMENT}
    with subprocess.Popen(  # noqa: S603 - our own modules, our own arguments
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=bare if name == TEXTBOOK else {**bare, **NODE_ENVIRONMENT},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _tell(process: "subprocess.Popen[str]", job: str) -> None:
    assert process.stdin is not None  # noqa: S101 - it is piped
    process.stdin.write(f"{job}\n")
    process.stdin.flush()


def _hear(name: str, process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None  # noqa: S101 - it is piped
    if not (line := process.stdout.readline()):
        raise HostError(f"a rank of {name} has ended; what it said stands above")
    return line
