"""An interrupted run leaves nothing behind: neither after Ctrl-C, nor after `kill -9` and a cleanup."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException
from programs.processes import descendant_pids, running, wait_until_empty

from compose.runs.clean import remove_leftovers
from compose.runs.labels import RUN_ENV_VARIABLE, RUN_LABEL, SECRETS_PREFIX

ENGINES = ["local", "simulated", pytest.param("docker", marks=pytest.mark.docker)]
LONG_TRAINING = "workload.epochs=2000"
# Lines of the runner at the beginning of a phase of the first trial.
NODES_START, LINKS_ARE_SHAPED, NODES_TRAIN = (
    "trial 000",
    "event 000-ring-w2-r0 cache_clear",
    "event 000-ring-w2-r0 eval_stop",
)
PROCESS_EXIT_S, CONTAINER_EXIT_S = 5.0, 30.0  # in which nodes end after the runner was killed


class Runner:
    """A runner in its own process group, as a shell starts one."""

    def __init__(self, rootpath: Path, runs: Path, engine: str, *settings: str, scenario: str = "smoke") -> None:
        script = rootpath / "tests" / "compose" / "runner.py"
        command = [sys.executable, str(script), scenario, engine, str(runs), *settings]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=rootpath, process_group=0)
        self.printed_lines: list[str] = []
        threading.Thread(target=self._read_output, daemon=True).start()
        self.run, self.folder = "", Path()

    def _read_output(self) -> None:
        assert self.process.stdout
        self.printed_lines.extend(line.strip() for line in self.process.stdout)

    def wait_for(self, beginning: str, timeout_s: float = 180.0) -> str:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for line in list(self.printed_lines):
                if line.startswith("run "):
                    _, self.run, folder = line.split(maxsplit=2)
                    self.folder = Path(folder)
                if line.startswith(beginning):
                    return line
            assert self.process.poll() is None, f"the runner ended: {self.printed_lines}"
            time.sleep(0.01)
        raise AssertionError(f"no {beginning!r} in {self.printed_lines}")

    def press_ctrl_c(self) -> None:
        """Interrupt the whole process group, as the terminal does, and not only the runner."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


StartRunner = Callable[..., Runner]


@pytest.fixture
def start_runner(pytestconfig: pytest.Config, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartRunner]:
    """Return a function that starts runners; after the test, all that remains of them is removed."""
    runners: list[Runner] = []

    def start_new_runner(engine: str, *settings: str, scenario: str = "smoke") -> Runner:
        if engine == "docker":
            request.getfixturevalue("docker_engine")
        runners.append(Runner(pytestconfig.rootpath, tmp_path, engine, *settings, scenario=scenario))
        return runners[-1]

    yield start_new_runner
    for runner in runners:
        if runner.process.poll() is None:
            runner.kill()
        runner.process.stdout.close() if runner.process.stdout else None
        if runner.run:
            remove_leftovers(runner.run)


def leftovers(run: str) -> list[str]:
    """Return everything on this host that is marked as part of the run."""
    environment_mark = f"{RUN_ENV_VARIABLE}={run}".encode()
    leftover_names = [str(folder) for folder in Path(tempfile.gettempdir()).glob(f"{SECRETS_PREFIX}{run}*")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if environment_mark in (process / "environ").read_bytes().split(b"\0"):
                leftover_names.append((process / "cmdline").read_text())
        except OSError:
            continue
    return leftover_names + docker_leftovers(run)


def docker_leftovers(run: str) -> list[str]:
    """Return the names of Docker objects labelled with the run; an empty list without a Docker engine."""
    try:
        client = docker.from_env()
    except DockerException:
        return []
    label_filter = {"label": f"{RUN_LABEL}={run}"}
    names = [
        container.name for container in client.containers.list(all=True, filters=label_filter, ignore_removed=True)
    ]
    names += [network.name for network in client.networks.list(filters=label_filter)]
    names += [volume.name for volume in client.volumes.list(filters=label_filter)]
    client.close()
    return names


def running_containers(run: str) -> set[str]:
    """Return the names of the running containers of the run; an empty set without a Docker engine."""
    try:
        client = docker.from_env()
    except DockerException:
        return set()
    with closing(client):
        return {container.name for container in client.containers.list(filters={"label": f"{RUN_LABEL}={run}"})}


@pytest.mark.parametrize("engine", ENGINES)
def test_ctrl_c_leaves_nothing_running_and_keeps_finished_trials(start_runner: StartRunner, engine: str) -> None:
    """A finished trial is worth keeping, and leftovers on the host would disturb the next run."""
    runner = start_runner(engine, "workload.epochs=2", "repeats=9")
    ended_line = runner.wait_for("ended 000").split()
    runner.wait_for("event 001")

    runner.press_ctrl_c()

    assert runner.process.wait(60) == 130
    assert leftovers(runner.run) == []
    assert ended_line[2] == "success"
    statuses = [json.loads(file.read_text())["status"] for file in sorted(runner.folder.glob("trials/*/status.json"))]
    assert statuses[0] == "success"
    assert statuses[-1] == "aborted"


@pytest.mark.slow_where(after_s=[0.05, 2.0])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("after_s", [0.05, 0.5, 2.0])
def test_ctrl_c_leaves_nothing_running_while_nodes_are_starting(
    start_runner: StartRunner, engine: str, after_s: float
) -> None:
    """Compose creates containers one by one: an interrupt between two of them must remove those that exist."""
    runner = start_runner(engine, LONG_TRAINING)
    runner.wait_for("trial 000")
    time.sleep(after_s)

    runner.press_ctrl_c()

    assert runner.process.wait(60) == 130
    assert leftovers(runner.run) == []


@pytest.mark.slow_where(engine=["docker"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_second_ctrl_c_does_not_interrupt_the_removal(start_runner: StartRunner, engine: str) -> None:
    """Users who wait three seconds for a prompt press it again."""
    runner = start_runner(engine, LONG_TRAINING)
    runner.wait_for("event 000")

    for _ in range(5):
        runner.press_ctrl_c()
        time.sleep(0.3)
        if runner.process.poll() is not None:
            break

    assert runner.process.wait(60) in (
        130,
        -signal.SIGINT,
    )  # the latter if the interpreter was already exiting
    assert leftovers(runner.run) == []


@pytest.mark.slow_where(engine=["docker"])
@pytest.mark.parametrize("engine", ENGINES)
def test_sigterm_ends_a_run_as_ctrl_c_does(start_runner: StartRunner, engine: str) -> None:
    """Service managers and CI cancel with SIGTERM, which only the runner receives."""
    runner = start_runner(engine, LONG_TRAINING)
    runner.wait_for("event 000")

    runner.process.terminate()

    assert runner.process.wait(60) == 130
    assert leftovers(runner.run) == []


@pytest.mark.slow_where(phase=[LINKS_ARE_SHAPED])
@pytest.mark.parametrize("phase", [NODES_START, LINKS_ARE_SHAPED, NODES_TRAIN])
@pytest.mark.parametrize("engine", ENGINES)
def test_no_node_outlives_a_killed_runner(start_runner: StartRunner, engine: str, phase: str) -> None:
    """A killed runner can end nothing itself, and nodes that continue to train would disturb all later runs."""
    runner = start_runner(engine, LONG_TRAINING)
    runner.wait_for(phase)
    while phase == NODES_START and not list(descendant_pids(runner.process.pid)):  # nodes, or `docker compose up`
        time.sleep(0.01)
    processes = set(descendant_pids(runner.process.pid))

    runner.kill()

    wait_until_empty(lambda: running(processes), PROCESS_EXIT_S)
    wait_until_empty(lambda: running_containers(runner.run), CONTAINER_EXIT_S)


def test_a_node_of_a_killed_runner_logs_why_it_ends(start_runner: StartRunner) -> None:
    """Without a message, nothing would explain why the logs are incomplete."""
    runner = start_runner("local", LONG_TRAINING)
    runner.wait_for(NODES_TRAIN)
    nodes = set(descendant_pids(runner.process.pid))

    runner.kill()

    wait_until_empty(lambda: running(nodes), PROCESS_EXIT_S)
    for name in ("coordinator", "worker-0", "worker-1"):
        errors = (runner.folder / "trials" / "000-ring-w2-r0" / "logs" / f"{name}.err").read_text()
        assert errors == f"the runner has ended, so {name} ends\n"


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "simulated"])
def test_clean_removes_the_leftovers_of_a_killed_runner(start_runner: StartRunner, engine: str) -> None:
    """A killed runner can remove nothing itself; `ensayo clean` must find everything by its marks."""
    runner = start_runner(engine, LONG_TRAINING)
    runner.wait_for("event 000")
    processes = set(descendant_pids(runner.process.pid))
    runner.kill()
    wait_until_empty(lambda: running(processes), PROCESS_EXIT_S)  # else one could end by itself between the two counts
    wait_until_empty(lambda: running_containers(runner.run), CONTAINER_EXIT_S)
    leftovers_before = leftovers(runner.run)

    removed = remove_leftovers(runner.run)

    assert leftovers_before
    assert leftovers(runner.run) == []
    assert len(removed) >= len(leftovers_before)


def test_clean_of_one_run_leaves_other_runs_alone(start_runner: StartRunner) -> None:
    """Another user of the host may be in the middle of a run of hours."""
    killed, other = start_runner("local", LONG_TRAINING), start_runner("local", LONG_TRAINING)
    for runner in (killed, other):
        runner.wait_for(NODES_TRAIN)
    killed.kill()

    process = subprocess.run(
        [sys.executable, "-m", "ensayo", "clean", str(killed.folder)], capture_output=True, text=True, check=True
    )

    assert f"removed secrets {SECRETS_PREFIX}{killed.run}" in process.stdout
    assert other.run not in process.stdout
    assert leftovers(killed.run) == []
    assert other.process.poll() is None
    assert len(leftovers(other.run)) == 4  # three nodes and the folder of their keys


RACKS_SCENARIO = """
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


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.parametrize("interruption", ["ctrl-c", "kill -9"])
def test_the_switch_helpers_and_link_events_of_a_trial_are_removed(
    start_runner: StartRunner, tmp_path: Path, interruption: str
) -> None:
    """Racks, delays and link events need their own containers, and threads that could outlive a trial."""
    (tmp_path / "wide.yaml").write_text(RACKS_SCENARIO)
    runner = start_runner("docker", scenario=str(tmp_path / "wide.yaml"))
    runner.wait_for("event 000-ring-w4-r0 event_due")
    names = docker_leftovers(runner.run)

    if interruption == "ctrl-c":
        runner.press_ctrl_c()
        assert runner.process.wait(60) == 130
    else:
        runner.kill()
        wait_until_empty(lambda: running_containers(runner.run), CONTAINER_EXIT_S)
        remove_leftovers(runner.run)

    assert any("switch" in name for name in names), names
    assert len(names) == 6 + 5 + 2, names  # five nodes and the switch, a helper for each with links, two networks
    assert leftovers(runner.run) == []


def test_clean_does_not_touch_other_runs_and_their_runners() -> None:
    """Two runs may share a host."""
    other_program = "import time; time.sleep(60)"
    other_process = subprocess.Popen(
        [sys.executable, "-c", other_program], env=os.environ | {RUN_ENV_VARIABLE: "another"}
    )

    removed = remove_leftovers("no-such-run")

    assert removed == []
    assert other_process.poll() is None
    other_process.kill()
    other_process.wait()


def test_clean_never_ends_its_own_process_or_a_parent_process() -> None:
    """`ensayo clean` may be called in a shell that carries the mark of a run."""
    program = "from compose.runs.clean import remove_leftovers; print(remove_leftovers('mine'))"
    shell_command = f'{sys.executable} -c "{program}"; echo survived'

    finished = subprocess.run(
        ["/bin/sh", "-c", shell_command],
        env=os.environ | {RUN_ENV_VARIABLE: "mine"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert finished.stdout.splitlines() == ["[]", "survived"]


def test_clean_works_without_docker() -> None:
    """Hosts without Docker use the local engine."""
    sleep_command = [sys.executable, "-c", "import time; time.sleep(60)"]
    program = "from compose.runs.clean import remove_leftovers; print(*remove_leftovers('lost'), sep=chr(10))"
    with subprocess.Popen(sleep_command, env=os.environ | {RUN_ENV_VARIABLE: "lost"}) as node:
        environment_without_docker = os.environ | {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}

        finished = subprocess.run(
            [sys.executable, "-c", program], env=environment_without_docker, capture_output=True, text=True, check=True
        )

        assert finished.stdout.startswith(f"process {node.pid} ")
        assert node.wait(5) < 0


def test_clean_kills_processes_that_ignore_sigterm() -> None:
    """A process that hangs can ignore SIGTERM. It has ended when clean says that it was removed."""
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    )
    environment = os.environ | {RUN_ENV_VARIABLE: "stuck"}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE) as node:
        assert node.stdout
        assert node.stdout.readline() == b"ready\n"

        removed = remove_leftovers("stuck")

        assert [line.split(maxsplit=2)[:2] for line in removed] == [["process", str(node.pid)]]
        assert node.poll() == -signal.SIGKILL
