"""Processes of a variant of the transport benchmark: one per rank, each in its own place of the network."""

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
from benchmarks.transport.jobs import RankJob, RankResult
from benchmarks.transport.network_namespaces import RankNetwork
from compose.engines.local import NODE_ENVIRONMENT
from services.runtime.transport import DataProtection
from services.schema.errors import HostError

RIVAL_MODULES: Mapping[str, str] = {
    RAW: "raw_tcp",
    TEXTBOOK: "textbook_grpc",
    BARE: "bare_grpc",
}  # all other variants are data planes of Ensayo
EXIT_TIMEOUT_S = 5.0  # for ranks to exit after their stdin has been closed


@dataclass(frozen=True)
class CallCost:
    """Cost of one call of a job."""

    seconds: float  # wall seconds
    cpu_s: float  # CPU seconds of all ranks together


@dataclass(frozen=True)
class VariantRanks:
    """Processes of the ranks of one variant. They sleep while another variant is measured."""

    variant: str
    processes: Sequence["subprocess.Popen[str]"]

    def run_job(self, job: RankJob) -> CallCost:
        """Run a job on all ranks. Return the mean over the ranks of their median seconds per call.

        Raises:
            HostError: a rank has failed.
        """
        for process in self.processes:
            _send_line(process, json.dumps(job))
        results: list[RankResult] = [json.loads(_read_line(self.variant, process)) for process in self.processes]
        seconds = fmean(result["seconds"] for result in results if result["seconds"] is not None)
        return CallCost(seconds, sum(result["cpu_s"] for result in results))


@contextmanager
def start_ranks(
    variant: str,
    network: RankNetwork,
    ports: Sequence[int],
    secrets_folder: Path,
    torch_interpreter: str | None,
    protection: DataProtection = "signed",
) -> Iterator[VariantRanks]:
    """Start the ranks of a variant and yield them when they are connected.

    Args:
        variant: name of a data plane or of a rival.
        network: network in which the ranks run.
        ports: port on which each rank listens.
        secrets_folder: folder of the certificates and keys of the ranks.
        torch_interpreter: Python interpreter that has PyTorch; needed for gloo only.
        protection: protection of messages; of data planes of Ensayo only.

    Raises:
        HostError: a rank did not report that it is ready.
    """
    task: dict[str, Any] = {"hosts": network.rank_addresses, "ports": ports, "interface": network.interface_name}
    with ExitStack() as stack:
        processes = []
        for rank, prefix in enumerate(network.command_prefixes):
            own_keys = {"rank": rank, "plane": variant, "secrets": str(secrets_folder), "protection": protection}
            rank_task = json.dumps(task | own_keys)
            command = [*prefix, *_rank_command(variant, torch_interpreter), rank_task]
            processes.append(stack.enter_context(_start_process(command, variant)))
        for process in processes:
            if (first_line := _read_line(variant, process).strip()) != "ready":
                raise HostError(f"{variant}: the first line of a rank is {first_line!r} instead of 'ready'")
        yield VariantRanks(variant, processes)
        for process in processes:
            assert process.stdin is not None  # noqa: S101 - it is piped
            process.stdin.close()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):  # the measurements count, however the processes end
                process.wait(EXIT_TIMEOUT_S)


def find_torch_interpreter(interpreter: str) -> str | None:
    """Return the path of a Python interpreter if it exists and has PyTorch, else None."""
    if (path := shutil.which(interpreter)) is None:
        return None
    process = subprocess.run([path, "-c", "import torch.distributed"], capture_output=True, check=False)  # noqa: S603
    return None if process.returncode else path


def _rank_command(variant: str, torch_interpreter: str | None) -> list[str]:
    if variant == GLOO and torch_interpreter is not None:
        return [torch_interpreter, str(Path(__file__).with_name("gloo.py"))]
    return [sys.executable, "-m", f"benchmarks.transport.{RIVAL_MODULES.get(variant, 'rank')}"]


@contextmanager
def _start_process(command: list[str], variant: str) -> Iterator["subprocess.Popen[str]"]:
    """Start the process of a rank, and kill it at the end. Textbook gRPC runs without our allocator settings."""
    plain_environment = {key: value for key, value in os.environ.items() if key not in NODE_ENVIRONMENT}
    with subprocess.Popen(  # noqa: S603 - fixed commands of this module
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=plain_environment if variant == TEXTBOOK else {**plain_environment, **NODE_ENVIRONMENT},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _send_line(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None  # noqa: S101 - it is piped
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def _read_line(variant: str, process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None  # noqa: S101 - it is piped
    if not (line := process.stdout.readline()):
        raise HostError(f"a rank of {variant} ended unexpectedly; see its output above")
    return line
