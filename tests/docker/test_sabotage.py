"""Changes to the host or a link by another process must appear in the verdict, with the right reason."""

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
from analysis.reading.run_table import TrialLogTables, read_trial_tables
from compose.engines.containers.engine import DockerEngine
from compose.engines.containers.helper_containers import HELPER_ROLE
from compose.host.host_facts import available_core_count
from compose.runs.labels import NODE_LABEL, RUN_LABEL
from compose.runs.trials.node_runner import LinkProbeFailed
from compose.scenario_files.load import load_scenario
from compose.shaping.htb_tree import peer_class_id
from compose.shaping.shared_link import network_switch_address
from services.plan import Plan, make_plan

pytestmark = pytest.mark.docker


def make_workload(samples: int) -> dict[str, Any]:
    """Return a workload of one epoch, of which 1600 samples take a second."""
    return {
        "dataset": {"kind": "synthetic_regression", "samples": samples, "features": 64, "outputs": 1},
        "model": {"kind": "linear"},
        "optimiser": {"kind": "sgd", "rate": 0.01},
        "batch_per_worker": 16,
        "epochs": 1,
    }


SCENARIO: dict[str, Any] = {
    "name": "sabotage",
    "workload": make_workload(samples=3200),
    "cluster": {"workers": 2, "worker": {"throughput": "800/s", "uplink": "100mbit", "downlink": "100mbit"}},
    "strategies": {"ring": {"kind": "all_reduce"}},
    "baseline": False,
}
SABOTAGE_DELAY_S = 0.3  # after training has started
SABOTAGE_COMMANDS = {
    "class of a pair": ("worker-0", "tc class change dev $dev parent 1:1 classid {pair} htb rate 20mbit ceil 20mbit"),
    "uplink of a rack": ("switch", "tc class change dev ifb0 classid 1:10 htb rate 20mbit ceil 20mbit"),
    "queues of a node": ("worker-0", "tc qdisc del dev $dev root"),
    "packet filter": ("worker-1", "iptables-nft -F ensayo-delay"),
}
CLUSTER_WITH_RACKS = SCENARIO["cluster"] | {
    "workers": 3,
    "network": {"kind": "racks", "size": 2, "uplink": "80mbit"},
    "links": [{"nodes": ["worker-0", "worker-1"], "rate": "60mbit", "delay": "1ms"}],
}
HALVE_UPLINK_COMMAND = "tc class change dev {device} classid 1:1 htb rate 50mbit ceil 50mbit"
RunSabotagedTrial = Callable[..., TrialLogTables]


class Saboteur:
    """Observer that starts the sabotage shortly after training has begun."""

    def __init__(self, sabotage: Callable[[Plan], None]) -> None:
        self._sabotage = sabotage

    def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None:
        """Start the timer of the sabotage when training begins."""
        if log_event["key"] == "run_start":
            threading.Timer(SABOTAGE_DELAY_S, self._sabotage, [plan]).start()


@pytest.fixture
def run_sabotaged_trial(docker_engine: DockerEngine, tmp_path: Path) -> RunSabotagedTrial:
    """Return `run_sabotaged_trial(sabotage)`, which calls `sabotage(plan)` during a trial of two seconds."""

    def run(sabotage: Callable[[Plan], None], **scenario_keys: Any) -> TrialLogTables:
        (tmp_path / "sabotage.yaml").write_text(yaml.safe_dump(SCENARIO | scenario_keys))
        (trial,) = load_scenario(tmp_path / "sabotage.yaml").trials()
        run_name = f"sabotage-{time.time_ns():x}"
        plan = make_plan(trial, run_name, "docker", docker_engine.choose_addresses(run_name, 3))
        folder = TrialFolder(tmp_path / "trials" / plan.trial)
        (folder.path / "logs").mkdir(parents=True)
        folder.plan_path.write_text(plan.model_dump_json())
        outcome = docker_engine.run_trial(plan, folder.path, Saboteur(sabotage))
        folder.status_path.write_text(outcome.model_dump_json())
        if outcome.disturbance:  # before the sabotage
            raise LinkProbeFailed(outcome.disturbance)
        return read_trial_tables(folder)

    return run


def test_a_rate_changed_during_training_makes_the_trial_invalid(run_sabotaged_trial: RunSabotagedTrial) -> None:
    """The probe before training measured the declared rate; only reading the rate again shows the change."""

    def halve_uplink(plan: Plan) -> None:
        with closing(docker.from_env()) as client:
            helper = _helper_container(client, plan, "worker-0")
            device = helper.exec_run(
                ["sh", "-c", "ip -o -4 addr show to " + plan.node_plan("worker-0").addresses.data.host]
            )
            helper.exec_run(["sh", "-c", HALVE_UPLINK_COMMAND.format(device=device.output.decode().split()[1])])

    trial = run_sabotaged_trial(halve_uplink)
    verdicts = run_trial_checks(trial)

    assert trial.status["status"] == "success", trial.status["reason"]
    assert verdicts["rates"].level == "invalid"
    assert "worker-0 uplink is -50.0% off its declared rate" in verdicts["rates"].reason


@pytest.mark.slow
@pytest.mark.parametrize("sabotaged_part", SABOTAGE_COMMANDS)
def test_any_change_of_shaping_in_the_kernel_makes_the_trial_invalid(
    run_sabotaged_trial: RunSabotagedTrial, sabotaged_part: str
) -> None:
    """After the run, the classes of pairs, the switch, queues and filter rules are read again."""
    node_name, command = SABOTAGE_COMMANDS[sabotaged_part]

    def change_kernel(plan: Plan) -> None:
        node_address = (
            network_switch_address(plan) if node_name == "switch" else plan.node_plan(node_name).addresses.data.host
        )
        find_device_command = f"dev=$(ip -o -4 addr show to {node_address} | awk '{{print $2}}'); "
        pair_class = peer_class_id(plan.node_plan("worker-1").addresses.data.host)
        with closing(docker.from_env()) as client:
            finished = _helper_container(client, plan, node_name).exec_run(
                ["sh", "-c", find_device_command + command.replace("{pair}", pair_class)]
            )
            assert finished.exit_code == 0, finished.output

    trial = run_sabotaged_trial(change_kernel, cluster=CLUSTER_WITH_RACKS)
    verdicts = run_trial_checks(trial)

    assert trial.status["status"] == "success", trial.status["reason"]
    assert verdicts["unchanged"].level == "invalid"
    assert verdicts["unchanged"].reason.startswith(node_name)


@pytest.mark.slow
def test_changes_by_events_are_valid(run_sabotaged_trial: RunSabotagedTrial) -> None:
    """One event is in force at the end, one is over; no other process has changed the links."""
    link_event = {"kind": "link", "at": {"time": "300ms"}, "of": ["worker-0"], "uplink": "50mbit", "delay": "1ms"}
    partition = {"kind": "partition", "at": {"time": "500ms"}, "apart": ["worker-1"], "lasts": "100ms"}

    trial = run_sabotaged_trial(lambda _: None, cluster=CLUSTER_WITH_RACKS, events=[link_event, partition])
    verdicts = run_trial_checks(trial)

    assert trial.status["status"] == "success", trial.status["reason"]
    assert verdicts["unchanged"].level == "valid", verdicts["unchanged"].reason


def test_a_helper_that_dies_during_training_fails_the_trial(run_sabotaged_trial: RunSabotagedTrial) -> None:
    def kill_helper(plan: Plan) -> None:
        with closing(docker.from_env()) as client:
            _helper_container(client, plan, "worker-1").kill()

    trial = run_sabotaged_trial(kill_helper)

    assert trial.status["status"] == "failed"
    assert "worker-1" in trial.status["reason"]
    assert "helper" in trial.status["reason"]
    assert run_trial_checks(trial)["exit_codes"].level == "invalid"


@pytest.fixture
def start_cpu_hogs() -> Iterator[Callable[[Plan], None]]:
    """Return a function that starts processes on all cores several times over; they end after the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def start_processes(_: Plan) -> None:
        busy_loop = [sys.executable, "-S", "-c", "while True: pass"]  # starts fast, since the trial lasts four seconds
        processes.extend(subprocess.Popen(busy_loop) for _ in range(4 * available_core_count()))

    yield start_processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_other_work_on_the_host_makes_the_trial_invalid(
    run_sabotaged_trial: RunSabotagedTrial, start_cpu_hogs: Callable[[Plan], None]
) -> None:
    """At least one of these checks must fail: missed deadlines, the wake-up canary, or the CPU load of the host."""
    longer_workload = make_workload(samples=9600)

    verdicts = run_trial_checks(run_sabotaged_trial(start_cpu_hogs, workload=longer_workload))

    failed_checks = {name for name, verdict in verdicts.items() if verdict.level != "valid"}
    assert failed_checks & {"missed_deadlines", "host_cpu", "canary"}, {
        name: verdict.reason for name, verdict in verdicts.items()
    }


def _helper_container(client: docker.DockerClient, plan: Plan, node: str) -> Any:
    labels = [f"{RUN_LABEL}={plan.run}", f"{NODE_LABEL}={HELPER_ROLE}-{node}"]
    (helper,) = client.containers.list(filters={"label": labels})
    return helper
