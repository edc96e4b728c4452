"""What did broken runs leave behind? Found by the marks that everything of a run carries, and removed."""

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

from compose.runs.labels import NODE_LABEL, RUN_LABEL, RUN_VARIABLE, SECRETS_PREFIX
from services.schema.errors import HostError

GRACE_S = 2.0
_PROC = Path("/proc")


def clean(run: str | None = None) -> list[str]:
    """Remove leftovers of one run, or of all, those that are still going included; a line per thing removed.

    Works without Docker; run folders stay.

    Raises:
        HostError: the engine refuses to remove something; everything else is gone.
    """
    refused: list[str] = []
    removed = [*_processes(run), *_docker(run, refused), *_secrets(run)]
    if refused:
        raise HostError("the engine keeps what only its restart frees:\n" + "\n".join(refused))
    return removed


def _docker(run: str | None, refused: list[str]) -> Iterator[str]:
    """Nothing where no engine answers."""
    try:
        client = docker.from_env()
    except DockerException:
        return
    with closing(client):
        yield from _labelled(client, {"label": RUN_LABEL if run is None else f"{RUN_LABEL}={run}"}, refused)


def _labelled(client: docker.DockerClient, wanted: dict[str, str], refused: list[str]) -> Iterator[str]:
    """Containers before networks: a network in use can't be removed."""
    for container in client.containers.list(all=True, filters=wanted, ignore_removed=True):
        yield from _remove(
            f"container {container.name} ({container.labels.get(NODE_LABEL, '?')})", container, refused, v=True
        )
    for network in client.networks.list(filters=wanted):
        _detach(network)
        yield from _remove(f"network {network.name}", network, refused)
    for volume in client.volumes.list(filters=wanted):
        yield from _remove(f"volume {volume.name}", volume, refused)


def _detach(network: Network) -> None:
    """A busy engine may keep an endpoint whose container is gone, and then refuses to remove the network."""
    with suppress(NotFound):  # somebody else was faster
        network.reload()
    for endpoint in (network.attrs.get("Containers") or {}).values():
        with suppress(DockerException):
            network.disconnect(endpoint["Name"], force=True)


def _remove(name: str, thing: Any, refused: list[str], **options: bool) -> Iterator[str]:
    """Containers and volumes have to be forced; a network knows no force. Somebody else may be faster."""
    force = {} if isinstance(thing, Network) else {"force": True}
    try:
        thing.remove(**force, **options)
    except NotFound:
        return
    except DockerException as error:
        refused.append(f"{name}: {error}")
        return
    yield name


def _processes(run: str | None) -> Iterator[str]:
    """Terminate all, then kill who is still there."""
    found = dict(_marked(run))
    for pid in found:
        _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while any(_alive(pid) for pid in found) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid, command in found.items():
        if _alive(pid):
            _signal(pid, signal.SIGKILL)
        yield f"process {pid} ({command})"


def _marked(run: str | None) -> Iterator[tuple[int, str]]:
    """Processes of runs, by the environment that they were started with; never this one or one that it stands on."""
    mine = set(_ancestors(os.getpid()))
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to somebody else
            if int(folder.name) not in mine and _is_of(run, folder):
                yield int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()


def _is_of(run: str | None, process: Path) -> bool:
    """Whether a process belongs to this run, or to any."""
    found = _run_of(process)
    return found is not None and run in (None, found)


def _run_of(process: Path) -> str | None:
    """The run that a process belongs to."""
    mark = f"{RUN_VARIABLE}=".encode()
    variables = (process / "environ").read_bytes().split(b"\0")
    return next((variable.removeprefix(mark).decode() for variable in variables if variable.startswith(mark)), None)


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 0 and (_PROC / str(pid)).exists():
        yield pid
        pid = _parent(pid)


def _parent(pid: int) -> int:
    """The name of a process may hold spaces and brackets: fields are counted from behind it."""
    return int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])


def _alive(pid: int) -> bool:
    """A process that has ended and waits for its parent to notice (Z) is gone as far as we are concerned."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _secrets(run: str | None) -> Iterator[str]:
    """Certificates and keys of runs that nobody ended."""
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{SECRETS_PREFIX}{run or '*'}-*")):
        with suppress(OSError):  # somebody else's
            shutil.rmtree(folder)
            yield f"secrets {folder.name}"
