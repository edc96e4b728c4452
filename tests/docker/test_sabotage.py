"""What is done to a host or to a link behind our back must show in the verdict, with the right reason."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml

from analysis.checks.fidelity import run_trial_checks
from analysis.reading.run_folder import TrialFolder
from analysis.reading.run_table import TrialTable, read_trial
from compose.engines.containers.engine import DockerEngine
from compose.engines.containers.helper_containers import HELPER_ROLE
from compose.host.host_facts import available_core_count
from compose.runs.labels import NODE_LABEL, RUN_LABEL
from compose.scenario_files.load import load_scenario
from compose.shaping.htb_tree import peer_class_id
from compose.shaping.shared_link import network_switch_address
from services.plan import Plan, make_plan

pytestmark = pytest.mark.docker


def load_of(samples: int) -> dict[str, Any]:
    """A workload of one epoch, 1600 samples in a second."""
    return {
        "dataset": {"kind": "synthetic_regression", "samples": samples, "features": 64, "outputs": 1},
        "model": {"kind": "linear"},
        "optimiser": {"kind": "sgd", "rate": 0.01},
        "batch_per_worker": 16,
        "epochs": 1,
    }


SCENARIO: dict[str, Any] = {
    "name": "sabotage",
    "workload": load_of(samples=3200),
    "cluster": {"workers": 2, "worker": {"throughput": "800/s", "uplink": "100mbit", "downlink": "100mbit"}},
    "strategies": {"ring": {"kind": "all_reduce"}},
    "baseline": False,
}
BEGUN_S = 0.3  # after the gate has opened
ACTS = {
    "class of a pair": ("worker-0", "tc class change dev $dev parent 1:1 classid {pair} htb rate 20mbit ceil 20mbit"),
    "uplink of a rack": ("switch", "tc class change dev ifb0 classid 1:10 htb rate 20mbit ceil 20mbit"),
    "queues of a node": ("worker-0", "tc qdisc del dev $dev root"),
    "packet filter": ("worker-1", "iptables-nft -F ensayo-delay"),
}
CLUSTER = SCENARIO["cluster"] | {
    "workers": 3,
    "network": {"kind": "racks", "size": 2, "uplink": "80mbit"},
    "links": [{"nodes": ["worker-0", "worker-1"], "rate": "60mbit", "delay": "1ms"}],
}
CHANGE = "tc class change dev {device} classid 1:1 htb rate 50mbit ceil 50mbit"
RunSabotaged = Callable[..., TrialTable]


class Saboteur:
    """Looks on, and acts once training has begun."""

    def __init__(self, act: Callable[[Plan], None]) -> None:
        self._act = act

    def event_logged(self, plan: Plan, event: Mapping[str, Any]) -> None:
        """Training begins."""
        if event["key"] == "run_start":
            threading.Timer(BEGUN_S, self._act, [plan]).start()


@pytest.fixture
def sabotaged(docker_engine: DockerEngine, tmp_path: Path) -> RunSabotaged:
    """`sabotaged(act)`: runs a trial of two seconds during which `act(plan)` is called; what its folder tells."""

    def run(act: Callable[[Plan], None], **more: Any) -> TrialTable:
        (tmp_path / "sabotage.yaml").write_text(yaml.safe_dump(SCENARIO | more))
        (trial,) = load_scenario(tmp_path / "sabotage.yaml").trials()
        name = f"sabotage-{time.time_ns():x}"
        plan = make_plan(trial, name, "docker", docker_engine.choose_addresses(name, 3))
        folder = TrialFolder(tmp_path / "trials" / plan.trial)
        (folder.path / "logs").mkdir(parents=True)
        folder.plan_path.write_text(plan.model_dump_json())
        status = docker_engine.run_trial(plan, folder.path, Saboteur(act))
        folder.status_path.write_text(status.model_dump_json())
        return read_trial(folder)

    return run


def test_a_rate_that_was_changed_during_training_is_invalid(sabotaged: RunSabotaged) -> None:
    """The probe before the gate has seen the declared rate; only who reads it again can know."""

    def halve(plan: Plan) -> None:
        with closing(docker.from_env()) as client:
            helper = _helper(client, plan, "worker-0")
            device = helper.exec_run(
                ["sh", "-c", "ip -o -4 addr show to " + plan.node_plan("worker-0").addresses.data.host]
            )
            helper.exec_run(["sh", "-c", CHANGE.format(device=device.output.decode().split()[1])])

    trial = sabotaged(halve)
    found = run_trial_checks(trial)

    assert trial.status["status"] == "success", trial.status["reason"]
    assert found["rates"].level == "invalid"
    assert "worker-0 uplink is -50.0% off its declared rate" in found["rates"].reason


@pytest.mark.slow_where(what=list(ACTS)[1:])
@pytest.mark.parametrize("what", ACTS)
def test_whatever_is_changed_in_the_kernel_is_invalid(sabotaged: RunSabotaged, what: str) -> None:
    """Read again after the run: classes of pairs, the switch, queues that are gone, rules."""
    name, command = ACTS[what]

    def act(plan: Plan) -> None:
        host = network_switch_address(plan) if name == "switch" else plan.node_plan(name).addresses.data.host
        found = f"dev=$(ip -o -4 addr show to {host} | awk '{{print $2}}'); "
        pair = peer_class_id(plan.node_plan("worker-1").addresses.data.host)
        with closing(docker.from_env()) as client:
            done = _helper(client, plan, name).exec_run(["sh", "-c", found + command.replace("{pair}", pair)])
            assert done.exit_code == 0, done.output

    trial = sabotaged(act, cluster=CLUSTER)
    found = run_trial_checks(trial)

    assert trial.status["status"] == "success", trial.status["reason"]
    assert found["unchanged"].level == "invalid"
    assert found["unchanged"].reason.startswith(name)


@pytest.mark.slow
def test_what_events_have_changed_is_what_a_link_should_be(sabotaged: RunSabotaged) -> None:
    """One is in force at the end, one is over; nobody else has touched anything."""
    slow = {"kind": "link", "at": {"time": "300ms"}, "of": ["worker-0"], "uplink": "50mbit", "delay": "1ms"}
    apart = {"kind": "partition", "at": {"time": "500ms"}, "apart": ["worker-1"], "lasts": "100ms"}

    trial = sabotaged(lambda _: None, cluster=CLUSTER, events=[slow, apart])
    found = run_trial_checks(trial)

    assert trial.status["status"] == "success", trial.status["reason"]
    assert found["unchanged"].level == "valid", found["unchanged"].reason


def test_a_helper_that_dies_during_training_fails_the_trial(sabotaged: RunSabotaged) -> None:
    def kill(plan: Plan) -> None:
        with closing(docker.from_env()) as client:
            _helper(client, plan, "worker-1").kill()

    trial = sabotaged(kill)

    assert trial.status["status"] == "failed"
    assert "worker-1" in trial.status["reason"]
    assert "helper" in trial.status["reason"]
    assert run_trial_checks(trial)["exit_codes"].level == "invalid"


@pytest.fixture
def hogs() -> Iterator[Callable[[Plan], None]]:
    """Starts processes that take all cores several times over; ends them after the test."""
    running: list[subprocess.Popen[bytes]] = []

    def start(_: Plan) -> None:
        burn = [sys.executable, "-S", "-c", "while True: pass"]  # up at once: the trial lasts four seconds
        running.extend(subprocess.Popen(burn) for _ in range(4 * available_core_count()))

    yield start
    for hog in running:
        hog.kill()
        hog.wait()


def test_a_host_that_has_other_work_is_not_believed(sabotaged: RunSabotaged, hogs: Callable[[Plan], None]) -> None:
    """Deadlines, the canary or the load: at least one of them must tell."""
    longer = load_of(samples=9600)

    found = run_trial_checks(sabotaged(hogs, workload=longer))

    doubts = {name for name, verdict in found.items() if verdict.level != "valid"}
    assert doubts & {"missed_deadlines", "host_cpu", "canary"}, {
        name: verdict.reason for name, verdict in found.items()
    }


def _helper(client: docker.DockerClient, plan: Plan, node: str) -> Any:
    labels = [f"{RUN_LABEL}={plan.run}", f"{NODE_LABEL}={HELPER_ROLE}-{node}"]
    (helper,) = client.containers.list(filters={"label": labels})
    return helper
