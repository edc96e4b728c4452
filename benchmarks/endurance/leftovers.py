"""What a run leaves on this host, and totals of a Docker engine."""

import fcntl
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import docker

from benchmarks.endurance.private_engine import PrivateEngine, run_private_engine
from benchmarks.endurance.row import ResultLine
from services.schema.component import FrozenRecord

BENCHMARK_VARIABLE = "ENSAYO_ENDURANCE"  # environment variable of all processes that the benchmark starts
POLL_INTERVAL_S, REMOVAL_S = 0.1, 5.0
DEFAULT_NETWORKS = ("bridge", "host", "none")


class Leftovers(FrozenRecord):
    """Names of what is left of runs, by kind. All are empty if nothing is left."""

    processes: tuple[str, ...] = ()
    temporary_files: tuple[str, ...] = ()
    locked_runs: tuple[str, ...] = ()
    running_containers: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()  # the running ones, too
    networks: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """Whether nothing is left."""
        return self == Leftovers()

    @property
    def runs_nothing(self) -> bool:
        """Whether no process and no container runs."""
        return not self.processes and not self.running_containers

    def __str__(self) -> str:
        return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in self if names) or "nothing"


class EngineTotals(FrozenRecord):
    """Numbers of things that a Docker engine has on this host."""

    containers: int
    networks: int
    volumes: int
    network_devices: int  # in the engine's network namespace: bridges and their ends of container links
    packet_filter_rules: int
    mounts: int
    processes: int  # of the engine: dockerd, containerd, and one shim per container
    descriptors: int  # open files of dockerd
    engine_memory_mb: float  # resident memory of dockerd


@dataclass(frozen=True)
class RunPlace:
    """Where the runs of a row are on this host."""

    folder: Path  # contains scenario files, the run folders, and the folder for temporary files of the runs
    engine: PrivateEngine | None  # None: the runs use no containers

    @property
    def runs_folder(self) -> Path:
        """Folder of all runs."""
        return self.folder / "runs"

    @property
    def temporary_folder(self) -> Path:
        """Folder for temporary files of the runs (TMPDIR)."""
        return self.folder / "temporary"

    @property
    def output(self) -> Path:
        """File with the output of the last run."""
        return self.folder / "output.txt"

    def require_engine(self) -> PrivateEngine:
        """Return the Docker engine of the runs, which have containers."""
        if self.engine is None:
            raise RuntimeError("the runs of this row have no containers")
        return self.engine

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the processes of the runs."""
        return os.environ | {BENCHMARK_VARIABLE: str(self.runs_folder), "TMPDIR": str(self.temporary_folder)}

    def find_leftovers(self) -> Leftovers:
        """Return what is left of the runs now."""
        host = Leftovers(
            processes=tuple(" ".join(words) for _, words in find_processes(self.runs_folder)),
            temporary_files=tuple(sorted(path.name for path in self.temporary_folder.iterdir())),
            locked_runs=tuple(path.name for path in self.runs_folder.glob("*/*Z-*") if _is_locked(path)),
        )
        return host if self.engine is None else host.model_copy(update=find_docker_objects())

    def wait_until_nothing_is_left(self, timeout_s: float) -> tuple[Leftovers, float]:
        """Wait until nothing is left of the runs; return what is left, and the wall seconds until then."""
        started_s = time.monotonic()
        while not (leftovers := self.find_leftovers()).is_nothing and time.monotonic() < started_s + timeout_s:
            time.sleep(POLL_INTERVAL_S)
        return leftovers, time.monotonic() - started_s

    def wait_until_nothing_runs(self, timeout_s: float) -> tuple[Leftovers, float]:
        """Wait until no process and no container runs; return what is left, and the wall seconds until then."""
        started_s = time.monotonic()
        while not (leftovers := self.find_leftovers()).runs_nothing and time.monotonic() < started_s + timeout_s:
            time.sleep(POLL_INTERVAL_S)
        return leftovers, time.monotonic() - started_s


def list_leftover_lines(place: RunPlace) -> Iterator[ResultLine]:
    """Yield what is left of runs that have ended by themselves, of which nothing may be left."""
    leftovers, _ = place.wait_until_nothing_is_left(REMOVAL_S)
    yield ResultLine(what="left afterwards", result=str(leftovers), limit="nothing", is_met=leftovers.is_nothing)


@contextmanager
def open_place(folder: Path, *, has_containers: bool) -> Iterator[RunPlace]:
    """Create the folders of a place, and run a Docker engine there if its runs have containers.

    At the end of the `with` block, runs in progress are killed, whose nodes then end by themselves.
    """
    with ExitStack() as stack:
        engine = stack.enter_context(run_private_engine(folder / "engine")) if has_containers else None
        place = RunPlace(folder, engine)
        place.runs_folder.mkdir(parents=True)
        place.temporary_folder.mkdir()
        try:
            yield place
        finally:
            _end_processes(place.runs_folder)


def find_processes(runs_folder: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield id and command line of all processes of the runs; they have inherited the variable of the benchmark."""
    variable = f"{BENCHMARK_VARIABLE}={runs_folder}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if variable in (folder / "environ").read_bytes().split(b"\0"):
                command_line = (folder / "cmdline").read_bytes().decode(errors="replace")
                yield int(folder.name), command_line.rstrip("\0").split("\0")
        except OSError:  # the process has ended
            continue


def _end_processes(runs_folder: Path) -> None:
    for pid, _ in find_processes(runs_folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _is_locked(run_folder: Path) -> bool:
    descriptor = os.open(run_folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def find_docker_objects() -> dict[str, tuple[str, ...]]:
    """Return the names of all containers, networks and volumes of the Docker engine, by field of `Leftovers`."""
    with closing(docker.from_env()) as client:
        containers = client.containers.list(all=True, ignore_removed=True)
        return {
            "running_containers": tuple(one.name for one in containers if one.status == "running"),
            "containers": tuple(one.name for one in containers),
            "networks": tuple(one.name for one in client.networks.list() if one.name not in DEFAULT_NETWORKS),
            "volumes": tuple(one.name for one in client.volumes.list()),
        }


def count_engine_totals(engine: PrivateEngine) -> EngineTotals:
    """Return the totals of a Docker engine that runs."""
    found = find_docker_objects()
    process_folder = Path("/proc") / str(engine.pid)
    return EngineTotals(
        containers=len(found["containers"]),
        networks=len(found["networks"]),
        volumes=len(found["volumes"]),
        network_devices=len(engine.run_in_network_namespace("ip", "-oneline", "link").splitlines()),
        packet_filter_rules=len(engine.list_packet_filter_rules()),
        mounts=(process_folder / "mounts").read_text().count(str(engine.folder)),
        processes=_count_engine_processes(engine.folder),
        descriptors=len(list((process_folder / "fd").iterdir())),
        engine_memory_mb=read_resident_memory_mb(engine.pid),
    )


def read_resident_memory_mb(pid: int) -> float:
    """Return the resident memory of a process, in units of 10⁶ bytes."""
    status = (Path("/proc") / str(pid) / "status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    if match is None:
        raise ProcessLookupError(f"process {pid} has ended")
    return int(match[1]) * 1024 / 1e6


def _count_engine_processes(engine_folder: Path) -> int:
    count = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        count += b"docker" not in words[:1] and any(os.fsencode(engine_folder) in word for word in words)
    return count
