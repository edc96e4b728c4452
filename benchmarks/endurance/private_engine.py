"""A Docker engine of the benchmark: all that it counts belongs to the benchmark, and it can be killed.

`dockerd` runs in a network namespace of its own, so that it changes no packet filter and no interface of the host.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compose.engines.containers.node_image.build import IMAGE_TAGS, build_node_image
from services.schema.errors import HostError

ENGINE_START_S, ENGINE_STOP_S = 60.0, 60.0
HOST_VARIABLE = "DOCKER_HOST"


@dataclass
class PrivateEngine:
    """A Docker engine with all its files in one folder."""

    folder: Path
    _process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Value of DOCKER_HOST with which Docker's programs use this engine."""
        return f"unix://{self.folder / 'docker.sock'}"

    @property
    def pid(self) -> int:
        """Process id of `dockerd`, which has been started."""
        if self._process is None:
            raise RuntimeError("the Docker engine of the benchmark was not started")
        return self._process.pid

    def start(self) -> None:
        """Start the engine, and wait until it answers.

        Raises:
            HostError: the engine did not answer in time.
        """
        options = {"--data-root": "data", "--exec-root": "exec", "--pidfile": "pid"}
        paths = [word for option, name in options.items() for word in (option, str(self.folder / name))]
        command = ["unshare", "--net", "dockerd", "--host", self.address, *paths]
        log_path = self.folder / "dockerd.log"
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)  # noqa: S603
        deadline = time.monotonic() + ENGINE_START_S
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise HostError(f"the Docker engine of the benchmark did not start; see {log_path}")
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill `dockerd` with SIGKILL; the kernel then ends its `containerd`, and containers keep running."""
        os.kill(self.pid, signal.SIGKILL)
        self._wait_for_end()

    def stop(self) -> None:
        """Stop the engine in order; it removes the processes of its containers first."""
        if self._process and self._process.poll() is None:
            os.kill(self.pid, signal.SIGTERM)
            self._wait_for_end()

    def run_in_network_namespace(self, *command: str) -> str:
        """Run a program in the network namespace of the engine, where its bridges are, and return the output."""
        program = ["nsenter", "--target", str(self.pid), "--net", *command]
        return subprocess.run(program, capture_output=True, check=True, text=True).stdout  # noqa: S603

    def list_packet_filter_rules(self) -> list[str]:
        """Return the rules that the engine has added to packet filters, as commands of iptables."""
        lines = self.run_in_network_namespace("iptables-save").splitlines()
        return [line for line in lines if line.startswith("-A")]

    def _answers(self) -> bool:
        command = ["docker", "--host", self.address, "version"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603

    def _wait_for_end(self) -> None:
        if self._process:
            self._process.wait(ENGINE_STOP_S)
        (self.folder / "pid").unlink(missing_ok=True)


@contextmanager
def run_private_engine(folder: Path) -> Iterator[PrivateEngine]:
    """Run a Docker engine with the node image during the `with` block; programs started in it use this engine.

    Raises:
        HostError: this process is not root, a program is missing, or the engine did not start.
    """
    if os.getuid() != 0:
        raise HostError("rows with containers start a Docker engine of their own, which needs root")
    if missing := [name for name in ("dockerd", "docker", "unshare") if shutil.which(name) is None]:
        raise HostError(f"{missing[0]} is not installed; rows with containers start a Docker engine of their own")
    folder.mkdir(parents=True, exist_ok=True)
    engine = PrivateEngine(folder)
    image_path = folder / "node-image.tar"
    _save_node_image(image_path)
    earlier = os.environ.get(HOST_VARIABLE)
    try:
        engine.start()
        os.environ[HOST_VARIABLE] = engine.address
        _run_docker("load", "--quiet", "--input", str(image_path))
        image_path.unlink()
        yield engine
    finally:
        os.environ.pop(HOST_VARIABLE, None)
        if earlier is not None:
            os.environ[HOST_VARIABLE] = earlier
        engine.stop()
        _unmount_all(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _unmount_all(folder: Path) -> None:
    """Unmount the file systems below a folder; a killed engine leaves some."""
    mount_points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount_point in reversed([path for path in mount_points if path.startswith(f"{folder}/")]):
        subprocess.run(["umount", mount_point], check=True, capture_output=True)  # noqa: S603, S607


def _save_node_image(path: Path) -> None:
    """Save the node image of this checkout, which the user's engine builds if it has none, as a file."""
    tag = build_node_image("cpu", _report_preparation)
    _run_docker("save", "--output", str(path), tag, IMAGE_TAGS["cpu"])


def _run_docker(*arguments: str) -> None:
    subprocess.run(["docker", *arguments], check=True, capture_output=True)  # noqa: S603, S607


def _report_preparation(message: str) -> None:
    sys.stderr.write(f"{message}\n")
