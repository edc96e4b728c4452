"""The processes of a variant: one per rank, each in its place, all of them working on the same job."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from compose.engines.local import ENVIRONMENT
from compose.transports.spaces import Space
from services.errors import HostError

GLOO = "gloo"
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

    def work(self, size_bytes: int, calls: int) -> Took:
        """Sum vectors of this size; the mean over the ranks of each one's median.

        Raises:
            HostError: a rank has failed.
        """
        job = json.dumps({"size_bytes": size_bytes, "calls": calls})
        for process in self.processes:
            _tell(process, job)
        answers = [json.loads(_hear(self.name, process)) for process in self.processes]
        return Took(fmean(each["seconds"] for each in answers), sum(each["cpu_s"] for each in answers))


@contextmanager
def group(name: str, space: Space, ports: Sequence[int], secrets: Path, torch: str | None) -> Iterator[Group]:
    """The ranks of a variant, connected.

    Args:
        name: of a data plane, or `gloo`.
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
            processes.append(stack.enter_context(_process([*prefix, *_program(name, torch), told])))
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
    return [sys.executable, "-m", "compose.transports.rank"]


@contextmanager
def _process(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """A process of our own that is gone afterwards."""
    with subprocess.Popen(  # noqa: S603 - our own modules, our own arguments
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | ENVIRONMENT
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
