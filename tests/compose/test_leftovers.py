"""A run that is broken off leaves nothing behind: not after Ctrl-C, and after `kill -9` not once it is cleaned up."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException

from compose.runs.clean import remove_leftovers
from compose.runs.labels import RUN_ENV_VARIABLE, RUN_LABEL, SECRETS_PREFIX

ENGINES = ["local", "simulated", pytest.param("docker", marks=pytest.mark.docker)]
LONG = "workload.epochs=2000"


class Runner:
    """A runner in a process group of its own, as a shell starts one."""

    def __init__(self, rootpath: Path, runs: Path, engine: str, *settings: str, scenario: str = "smoke") -> None:
        script = rootpath / "tests" / "compose" / "runner.py"
        command = [sys.executable, str(script), scenario, engine, str(runs), *settings]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=rootpath, process_group=0)
        self.said: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        self.run, self.folder = "", Path()

    def _read(self) -> None:
        assert self.process.stdout
        self.said.extend(line.strip() for line in self.process.stdout)

    def wait_for(self, beginning: str, timeout_s: float = 180.0) -> str:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for line in list(self.said):
                if line.startswith("run "):
                    _, self.run, folder = line.split(maxsplit=2)
                    self.folder = Path(folder)
                if line.startswith(beginning):
                    return line
            assert self.process.poll() is None, f"the runner ended: {self.said}"
            time.sleep(0.01)
        raise AssertionError(f"no {beginning!r} in {self.said}")

    def press_ctrl_c(self) -> None:
        """The terminal signals the whole process group, not the runner alone."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


Start = Callable[..., Runner]


@pytest.fixture
def start(pytestconfig: pytest.Config, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts runners; whatever a test does, nothing of them outlives it."""
    started: list[Runner] = []

    def start_runner(engine: str, *settings: str, scenario: str = "smoke") -> Runner:
        if engine == "docker":
            request.getfixturevalue("docker_engine")
        started.append(Runner(pytestconfig.rootpath, tmp_path, engine, *settings, scenario=scenario))
        return started[-1]

    yield start_runner
    for runner in started:
        if runner.process.poll() is None:
            runner.kill()
        runner.process.stdout.close() if runner.process.stdout else None
        if runner.run:
            remove_leftovers(runner.run)


def left(run: str) -> list[str]:
    """Everything on this host that carries the mark of a run."""
    mark = f"{RUN_ENV_VARIABLE}={run}".encode()
    found = [str(folder) for folder in Path(tempfile.gettempdir()).glob(f"{SECRETS_PREFIX}{run}*")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found + labelled(run)


def labelled(run: str) -> list[str]:
    """What an engine has of a run; nothing where none answers."""
    try:
        client = docker.from_env()
    except DockerException:
        return []
    wanted = {"label": f"{RUN_LABEL}={run}"}
    found = [container.name for container in client.containers.list(all=True, filters=wanted, ignore_removed=True)]
    found += [network.name for network in client.networks.list(filters=wanted)]
    found += [volume.name for volume in client.volumes.list(filters=wanted)]
    client.close()
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_ctrl_c_leaves_nothing_behind_and_keeps_finished_trials(start: Start, engine: str) -> None:
    """A trial that is over is worth keeping, and a host that is not clean spoils the next run."""
    runner = start(engine, "workload.epochs=2", "repeats=40")
    ended = runner.wait_for("ended 000").split()
    runner.wait_for("event 001")

    runner.press_ctrl_c()

    assert runner.process.wait(60) == 130
    assert left(runner.run) == []
    assert ended[2] == "success"
    statuses = [json.loads(file.read_text())["status"] for file in sorted(runner.folder.glob("trials/*/status.json"))]
    assert statuses[0] == "success"
    assert statuses[-1] == "aborted"


@pytest.mark.slow_where(after_s=[0.05, 2.0])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("after_s", [0.05, 0.5, 2.0])
def test_ctrl_c_leaves_nothing_behind_while_nodes_are_being_started(start: Start, engine: str, after_s: float) -> None:
    """Compose creates containers one after the other: whoever stops it in between must find those it has made."""
    runner = start(engine, LONG)
    runner.wait_for("trial 000")
    time.sleep(after_s)

    runner.press_ctrl_c()

    assert runner.process.wait(60) == 130
    assert left(runner.run) == []


@pytest.mark.slow_where(engine=["docker"])
@pytest.mark.parametrize("engine", ENGINES)
def test_pressing_ctrl_c_again_does_not_interrupt_the_removal(start: Start, engine: str) -> None:
    """Who waits three seconds for a prompt presses it again."""
    runner = start(engine, LONG)
    runner.wait_for("event 000")

    for _ in range(5):
        runner.press_ctrl_c()
        time.sleep(0.3)
        if runner.process.poll() is not None:
            break

    assert runner.process.wait(60) in (
        130,
        -signal.SIGINT,
    )  # the latter when its interpreter was already on its way out
    assert left(runner.run) == []


@pytest.mark.slow_where(engine=["docker"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_request_to_terminate_ends_a_run_as_ctrl_c_does(start: Start, engine: str) -> None:
    """Service managers and CI cancel with SIGTERM, to the runner alone."""
    runner = start(engine, LONG)
    runner.wait_for("event 000")

    runner.process.terminate()

    assert runner.process.wait(60) == 130
    assert left(runner.run) == []


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "simulated"])
def test_clean_removes_what_a_killed_runner_left(start: Start, engine: str) -> None:
    """A runner that is killed can remove nothing; everything must be found by its marks."""
    runner = start(engine, LONG)
    runner.wait_for("event 000")
    runner.kill()
    before = left(runner.run)

    removed = remove_leftovers(runner.run)

    assert before
    assert left(runner.run) == []
    assert len(removed) >= len(before)


WIDE = """
name: wide
workload:
  dataset: {kind: digits}
  model: {kind: mlp, hidden: [16]}
  optimiser: {kind: sgd, rate: 0.1}
  batch: 64
  epochs: 2000
  stop: budget
cluster:
  workers: 4
  worker: {throughput: 800/s, uplink: 100mbit, downlink: 100mbit, delay: 1ms}
  network: {kind: racks, size: 2, uplink: 100mbit}
strategies:
  ring: {kind: all_reduce}
baseline: false
events:
  - {kind: link, at: {step: 5}, lasts: 10s, of: [worker-0], uplink: 20mbit}
"""


@pytest.mark.slow_where(how=["ctrl-c"])
@pytest.mark.docker
@pytest.mark.parametrize("how", ["ctrl-c", "kill -9"])
def test_a_switch_its_helpers_and_events_are_not_left_behind(start: Start, tmp_path: Path, how: str) -> None:
    """Racks, delays and changes of links need containers of their own, and threads that outlive a trial."""
    (tmp_path / "wide.yaml").write_text(WIDE)
    runner = start("docker", scenario=str(tmp_path / "wide.yaml"))
    runner.wait_for("event 000-ring-w4-r0 event_due")
    names = labelled(runner.run)

    if how == "ctrl-c":
        runner.press_ctrl_c()
        assert runner.process.wait(60) == 130
    else:
        runner.kill()
        remove_leftovers(runner.run)

    assert any("switch" in name for name in names), names
    assert len(names) == 6 + 5 + 2, names  # five nodes and the switch, a helper for each with links, two networks
    assert left(runner.run) == []


def test_clean_leaves_other_runs_and_their_runner_alone() -> None:
    """Two runs may share a host."""
    code = "import time; time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {RUN_ENV_VARIABLE: "another"})

    removed = remove_leftovers("nobody")

    assert removed == []
    assert other.poll() is None
    other.kill()
    other.wait()


def test_clean_never_ends_its_own_process_or_a_parent() -> None:
    """`ensayo clean` may be typed in a shell that carries the mark of a run."""
    code = "from compose.runs.clean import remove_leftovers; print(remove_leftovers('mine'))"
    shell = f'{sys.executable} -c "{code}"; echo survived'

    said = subprocess.run(
        ["/bin/sh", "-c", shell],
        env=os.environ | {RUN_ENV_VARIABLE: "mine"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert said.stdout.splitlines() == ["[]", "survived"]


def test_clean_works_without_docker() -> None:
    """The local engine is what hosts without Docker use."""
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    code = "from compose.runs.clean import remove_leftovers; print(*remove_leftovers('lost'), sep=chr(10))"
    with subprocess.Popen(sleep, env=os.environ | {RUN_ENV_VARIABLE: "lost"}) as node:
        nowhere = os.environ | {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}

        said = subprocess.run([sys.executable, "-c", code], env=nowhere, capture_output=True, text=True, check=True)

        assert said.stdout.startswith(f"process {node.pid} ")
        assert node.wait(5) < 0
