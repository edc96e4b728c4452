"""Removal of processes, containers, networks and key folders that interrupted runs have left behind.

They are found by the labels and the environment variable of `compose.runs.labels`.
"""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException, NotFound
from docker.models.networks import Network

from compose.runs.labels import NODE_LABEL, RUN_ENV_VARIABLE, RUN_LABEL, SECRETS_PREFIX
from services.schema.errors import HostError

EXIT_GRACE_S = 2.0  # wall seconds to wait after each signal for the processes of a run
_PROC_FOLDER = Path("/proc")


def remove_leftovers(run_name: str | None = None) -> list[str]:
    """Remove all processes, containers, networks and keys of one run or of all runs.

    Those of running runs are included. Works without Docker. Run folders stay.

    Args:
        run_name: run to remove; None for all runs.

    Returns:
        One line for each process or resource that was removed.

    Raises:
        HostError: some processes did not end, or the Docker engine did not remove some resources; everything else is
            removed.
    """
    failures: list[str] = []
    removed = [
        *_end_processes(run_name, failures),
        *_remove_docker_resources(run_name, failures),
        *_remove_tls_folders(run_name),
    ]
    if failures:
        raise HostError(
            "these could not be removed; restart the Docker engine if it keeps one of them, then run `ensayo clean` "
            "again:\n" + "\n".join(failures)
        )
    return removed


def _remove_docker_resources(run_name: str | None, failure_messages: list[str]) -> Iterator[str]:
    """Remove containers, networks and volumes of one run or of all runs.

    Do nothing if no Docker engine answers.
    """
    try:
        client = docker.from_env()
    except DockerException:
        return
    with closing(client):
        label = RUN_LABEL if run_name is None else f"{RUN_LABEL}={run_name}"
        yield from _remove_docker_items(client, {"label": label}, failure_messages)


def _remove_docker_items(client: docker.DockerClient, filters: dict[str, str], error_texts: list[str]) -> Iterator[str]:
    """Remove all Docker containers, networks and volumes with a given label.

    Yield one line of text for each of them. Containers come first, since a network in use can't be removed.
    """
    for container in client.containers.list(all=True, filters=filters, ignore_removed=True):
        yield from _remove_docker_object(
            f"container {container.name} ({container.labels.get(NODE_LABEL, '?')})", container, error_texts, v=True
        )
    for network in client.networks.list(filters=filters):
        _disconnect_endpoints(network)
        yield from _remove_docker_object(f"network {network.name}", network, error_texts)
    for volume in client.volumes.list(filters=filters):
        yield from _remove_docker_object(f"volume {volume.name}", volume, error_texts)


def _disconnect_endpoints(network: Network) -> None:
    """Disconnect all endpoints from a Docker network.

    A busy engine may keep the endpoint of a removed container, and then refuses to remove the network.
    """
    with suppress(NotFound):  # another process has removed it
        network.reload()
    for endpoint in (network.attrs.get("Containers") or {}).values():
        with suppress(DockerException):
            network.disconnect(endpoint["Name"], force=True)


def _remove_docker_object(
    description: str, docker_resource: Any, failure_messages: list[str], **options: bool
) -> Iterator[str]:
    """Remove a container, network or volume and yield its description.

    If that fails, record the error. Containers and volumes need `force`, which networks do not accept. Another process
    may have removed the resource.
    """
    force = {} if isinstance(docker_resource, Network) else {"force": True}
    try:
        docker_resource.remove(**force, **options)
    except NotFound:
        return
    except DockerException as error:
        failure_messages.append(f"{description}: {error}")
        return
    yield description


def _end_processes(run_name: str | None, failure_messages: list[str]) -> Iterator[str]:
    """Terminate all processes of a run, then kill those that still run.

    Yield one line of text per process that has ended, and record the others.
    """
    processes = dict(_processes_of_run(run_name))
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        for pid in filter(_is_process_alive, processes):
            _send_signal(pid, signal_number)
        deadline = time.monotonic() + EXIT_GRACE_S
        while any(map(_is_process_alive, processes)) and time.monotonic() < deadline:
            time.sleep(0.05)
    for pid, command in processes.items():
        if _is_process_alive(pid):
            failure_messages.append(f"process {pid} ({command}): it did not end within {EXIT_GRACE_S:g} s of SIGKILL")
        else:
            yield f"process {pid} ({command})"


def _processes_of_run(run_name: str | None) -> Iterator[tuple[int, str]]:
    """Yield the process id and the command of each process of a run.

    This process and its ancestors are left out.
    """
    own_pids = set(_ancestor_pids(os.getpid()))
    for folder in _PROC_FOLDER.glob("[0-9]*"):
        with suppress(OSError):  # the process has ended, or belongs to another user
            if int(folder.name) not in own_pids and _process_belongs_to_run(run_name, folder):
                yield int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()


def _process_belongs_to_run(run_name: str | None, proc_pid_folder: Path) -> bool:
    """Return whether a process belongs to the run `run_name`.

    If `run_name` is None, any run counts.
    """
    process_run_name = _read_run_name_of_process(proc_pid_folder)
    return process_run_name is not None and run_name in (None, process_run_name)


def _read_run_name_of_process(proc_pid_folder: Path) -> str | None:
    """Return the name of the run that a process belongs to.

    The result is None if it belongs to no run.
    """
    prefix = f"{RUN_ENV_VARIABLE}=".encode()
    variables = (proc_pid_folder / "environ").read_bytes().split(b"\0")
    return next((variable.removeprefix(prefix).decode() for variable in variables if variable.startswith(prefix)), None)


def _ancestor_pids(pid: int) -> Iterator[int]:
    """Yield a process id and the process ids of all its ancestors."""
    while pid > 0 and (_PROC_FOLDER / str(pid)).exists():
        yield pid
        pid = _parent_pid(pid)


def _parent_pid(pid: int) -> int:
    """Return the process id of a process's parent, from `/proc/<pid>/stat`.

    The id is read after the process name. The name is in brackets and may contain spaces, so the fields are split after
    the last closing bracket.
    """
    return int((_PROC_FOLDER / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])


def _is_process_alive(pid: int) -> bool:
    """Return whether a process is still running.

    A zombie (state Z), which has ended but was not reaped, does not run.
    """
    try:
        return (_PROC_FOLDER / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _send_signal(pid: int, signal_number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal_number)


def _remove_tls_folders(run_name: str | None) -> Iterator[str]:
    """Remove the folders with certificates and keys of one run or of all runs.

    Yield one line of text per folder.
    """
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{SECRETS_PREFIX}{run_name or '*'}-*")):
        with suppress(OSError):  # the folder belongs to another user
            shutil.rmtree(folder)
            yield f"secrets {folder.name}"
