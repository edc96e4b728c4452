"""Links between containers are as declared: short measurements with few nodes, so tolerances are wide."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml

from compose.engines.containers.engine import DockerEngine, NodeContainers, read_host_properties, set_owner_of_nodes
from compose.engines.containers.helper_containers import HELPER_ROLE
from compose.runs.clean import remove_leftovers
from compose.runs.labels import NODE_LABEL, ROLE_LABEL, RUN_LABEL
from compose.runs.secrets_folder import open_secrets_folder
from compose.runs.trials.node_runner import TrialFailed
from compose.scenario_files.load import load_scenario
from compose.shaping.tc_output import parse_htb_rates_bps
from services.cluster.links.fluid_link import PAYLOAD_SHARE
from services.plan import COORDINATOR, Plan, make_plan
from services.plan.trial_outcome import LinkShapingRecord

pytestmark = pytest.mark.docker

LINKS_100_MBIT = {"uplink": "100mbit", "downlink": "100mbit"}
GATE_S = 30.0


@dataclass
class ReadyTrial:
    """A trial whose links are shaped and whose nodes wait for the start of training."""

    plan: Plan
    folder: Path
    nodes: NodeContainers
    shaping: dict[str, LinkShapingRecord]
    client: Any

    def ask_helper(self, node: str, action: str, **arguments: Any) -> dict[str, Any]:
        """Send a request to the helper container of a node, and return the answer."""
        return self.nodes.links.helpers[node].request(action, **arguments)

    def start_receivers(self) -> None:
        """Start the receiver of messages in the helper of every node."""
        for node in self.nodes.links.node_links:
            self.ask_helper(node, "listen", address=self.address(node))

    def address(self, node: str) -> str:
        return self.plan.node_plan(node).addresses.data.host

    def measure_messages_s(self, size: int, *paths: tuple[str, str]) -> float:
        """Return the seconds that two messages take on each of these paths, on all paths at once."""
        started = time.monotonic()
        with ThreadPoolExecutor() as pool:
            answers = [
                pool.submit(self.ask_helper, source, "message", address=self.address(target), size=size)
                for source, target in paths
            ]
            for answer in answers:
                answer.result()
        return time.monotonic() - started

    def containers(self, role: str = "") -> list[Any]:
        """Return the run's containers of one role, or of all roles."""
        run_containers = self.client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={self.plan.run}"})
        return [container for container in run_containers if role in ("", container.labels[ROLE_LABEL])]


@pytest.fixture
def start_trial(docker_engine: DockerEngine, tmp_path: Path) -> Iterator[Callable[..., ReadyTrial]]:
    """Return `start_trial(workers, worker, cluster, **keys)`, which starts a trial that waits for training."""
    with ExitStack() as stack:
        yield lambda *arguments, **scenario_keys: stack.enter_context(
            _ready_trial(docker_engine, tmp_path, *arguments, **scenario_keys)
        )


@contextmanager
def _ready_trial(
    engine: DockerEngine,
    parent_folder: Path,
    worker_count: int,
    worker_settings: Any,
    cluster_settings: Any = None,
    **scenario_keys: Any,
) -> Iterator[ReadyTrial]:
    workload = {
        "dataset": {"kind": "digits"},
        "model": {"kind": "linear"},
        "optimiser": {"kind": "sgd", "rate": 0.1},
        "batch": 64,
        "epochs": 1,
    }
    document = {
        "name": "links",
        "workload": workload,
        "cluster": {"workers": worker_count, "worker": worker_settings} | (cluster_settings or {}),
        "strategies": {"ring": {"kind": "all_reduce", "collective": {"kind": "ring"}}},
        "baseline": False,
    }
    (parent_folder / "links.yaml").write_text(yaml.safe_dump(document | scenario_keys))
    (trial,) = load_scenario(parent_folder / "links.yaml").trials()
    run = f"links-{time.time_ns():x}"
    plan = make_plan(trial, run, "docker", engine.choose_addresses(run, worker_count + 1))
    folder = parent_folder / run
    with (
        open_secrets_folder(plan.run, (node.name for node in plan.nodes)) as secrets,
        closing(docker.from_env()) as client,
    ):
        host = read_host_properties(client, engine.images, secrets)
        set_owner_of_nodes(secrets, host.user)
        (folder / "logs").mkdir(parents=True)
        (folder / "plan.json").write_text(plan.model_dump_json())
        nodes = NodeContainers(plan, folder, host, engine.choose_shaping_mechanisms(plan))
        try:
            nodes.start()
            shaping = nodes.shape_links()
            _wait_until_joined(folder / "logs" / f"{COORDINATOR}.log", worker_count)
            yield ReadyTrial(plan, folder, nodes, shaping, client)
        finally:
            nodes.stop()


def _wait_until_joined(log: Path, worker_count: int) -> None:
    """Wait until all workers have joined: nodes that are starting use the host's cores."""
    deadline = time.monotonic() + GATE_S
    while log.read_text().count('"joined"') < worker_count if log.exists() else True:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.wall_clock
def test_the_uplink_of_a_rack_limits_only_traffic_that_leaves_the_rack(start_trial: Callable[..., ReadyTrial]) -> None:
    """Three senders to another rack share the rate of one; two members of a rack are not limited by the uplink."""
    racks = {"network": {"kind": "racks", "size": 3, "uplink": "50mbit"}}
    size = 500_000
    trial = start_trial(4, LINKS_100_MBIT, racks)
    trial.start_receivers()

    across_racks_s = trial.measure_messages_s(size, *((f"worker-{k}", "worker-3") for k in range(3)))
    inside_rack_s = trial.measure_messages_s(size, ("worker-0", "worker-1"))

    assert across_racks_s == pytest.approx(2 * 3 * size * 8 / (50e6 * PAYLOAD_SHARE), rel=0.1)
    assert inside_rack_s == pytest.approx(2 * size * 8 / (100e6 * PAYLOAD_SHARE), rel=0.25)


@pytest.mark.wall_clock
@pytest.mark.slow
def test_the_limit_of_a_pair_applies_within_the_limit_of_the_node(start_trial: Callable[..., ReadyTrial]) -> None:
    """To one peer at most 20 Mbit/s, to all peers together at most 100 Mbit/s."""
    trial = start_trial(3, LINKS_100_MBIT, {"links": [{"nodes": ["worker-0", "worker-1"], "rate": "20mbit"}]})

    shaping = trial.nodes.probe_links()

    assert shaping["worker-0"].achieved_pipes_bps["worker-0 to worker-1"] == pytest.approx(20e6, rel=0.03)
    assert shaping["worker-0"].achieved_uplink_bps == pytest.approx(100e6, rel=0.03)
    assert shaping["worker-0"].pipes_bps["worker-0 to worker-1"].achieved == 20e6


@pytest.mark.wall_clock
def test_measured_round_trips_are_as_declared(start_trial: Callable[..., ReadyTrial]) -> None:
    """Each path has its own delay; one pair has a longer one."""
    trial = start_trial(
        3, LINKS_100_MBIT | {"delay": "1ms"}, {"links": [{"nodes": ["worker-0", "worker-1"], "delay": "20ms"}]}
    )

    round_trips = trial.nodes.probe_links()["worker-0"].round_trip_s

    assert round_trips["worker-1"].declared == pytest.approx(0.044)
    assert round_trips["worker-1"].achieved == pytest.approx(0.044, abs=0.001)
    assert round_trips["worker-2"].achieved == pytest.approx(0.004, abs=0.001)
    assert trial.shaping["worker-0"].rungs["delay"] in ("netem", "nfqueue")


@pytest.mark.wall_clock
@pytest.mark.slow
def test_lost_packets_are_retransmitted(start_trial: Callable[..., ReadyTrial]) -> None:
    """TCP sees the loss: packets are dropped one by one at the receiver."""
    loss = {"kind": "independent", "share": 0.02}
    trial = start_trial(
        2, LINKS_100_MBIT, {"links": [{"nodes": ["worker-0", "worker-1"], "both_ways": False, "loss": loss}]}
    )
    trial.start_receivers()
    segments_before = _segments_sent_and_retransmitted(trial)

    trial.measure_messages_s(2_000_000, ("worker-0", "worker-1"))

    sent, retransmitted = (
        count_after - count_before
        for count_after, count_before in zip(_segments_sent_and_retransmitted(trial), segments_before, strict=True)
    )
    assert sent > 2 * 2_000_000 / 1448
    assert 0.01 < retransmitted / sent < 0.035


@pytest.mark.wall_clock
def test_events_change_links_at_their_scheduled_times(start_trial: Callable[..., ReadyTrial]) -> None:
    """A rate is changed, a partition begins, and both are undone; one record for each shows when."""
    slowdown = {"kind": "link", "at": {"time": "1s"}, "of": ["worker-0"], "uplink": "10mbit", "lasts": "1s"}
    partition = {"kind": "partition", "at": {"time": "1500ms"}, "apart": ["worker-1"], "lasts": "1s"}
    trial = start_trial(2, LINKS_100_MBIT, events=[slowdown, partition])
    start = time.monotonic()

    trial.nodes.link_events.handle_log_event({"key": "run_start", "time_ms": time.time() * 1e3, "value": None})
    time.sleep(1.3 - (time.monotonic() - start))
    rates_during_events = parse_htb_rates_bps("device up\n" + _htb_classes_text(trial))
    time.sleep(2.8 - (time.monotonic() - start))

    records = [json.loads(record) for record in (trial.folder / "events.jsonl").read_text().splitlines()]
    assert [(record["kind"], record["phase"]) for record in records] == [
        ("link", "begin"),
        ("partition", "begin"),
        ("link", "end"),
        ("partition", "end"),
    ]
    assert all(0 <= record["lateness_s"] < 0.1 for record in records)
    assert rates_during_events["up", "1:1"] == 10e6
    assert parse_htb_rates_bps("device up\n" + _htb_classes_text(trial))["up", "1:1"] == 100e6


def test_a_link_changed_by_another_process_fails_the_trial_before_training(
    start_trial: Callable[..., ReadyTrial],
) -> None:
    """The link has half the declared rate; the probe reports the difference."""
    trial = start_trial(2, LINKS_100_MBIT)
    device = trial.nodes.links.interfaces["worker-0"]
    trial.ask_helper(
        "worker-0", "script", script=f"tc class change dev {device} classid 1:1 htb rate 50mbit ceil 50mbit"
    )

    with pytest.raises(TrialFailed, match="declared 100 Mbit/s"):
        trial.nodes.probe_links()


@pytest.mark.slow
def test_a_trial_fails_with_the_reason_that_its_delay_line_ended(start_trial: Callable[..., ReadyTrial]) -> None:
    """Delayed packets are dropped, not delivered early; the trial must not wait for them."""
    trial = start_trial(2, LINKS_100_MBIT | {"delay": "1ms"})
    if trial.shaping["worker-0"].rungs["delay"] != "nfqueue":
        pytest.skip("this kernel has netem")
    (helper,) = [
        container for container in trial.containers(HELPER_ROLE) if container.labels[NODE_LABEL] == "shaper-worker-0"
    ]

    for line in helper.top()["Processes"]:
        if "delay_line" in line[-1]:
            os.kill(int(line[1]), signal.SIGKILL)
    time.sleep(1.0)

    with pytest.raises(TrialFailed, match="worker-0: the helper container has ended: the delay line has ended"):
        trial.nodes.exit_codes()


def test_only_helpers_have_a_capability_and_clean_removes_all_containers(
    start_trial: Callable[..., ReadyTrial],
) -> None:
    """A helper ends by itself when its connection ends; clean finds the other containers, and the switch, by label."""
    trial = start_trial(3, LINKS_100_MBIT, {"network": {"kind": "racks", "size": 2, "uplink": "50mbit"}})

    names = {container.labels[NODE_LABEL] for container in trial.containers()}
    configs = {container.labels[NODE_LABEL]: container.attrs["HostConfig"] for container in trial.containers()}
    removed = remove_leftovers(trial.plan.run)

    assert {"switch", "shaper-switch", "worker-0", "shaper-worker-0"} <= names
    for name, config in configs.items():
        assert config["CapDrop"] == ["ALL"]
        assert config["CapAdd"] == (["NET_ADMIN"] if name.startswith(HELPER_ROLE) else None)
        assert config["ReadonlyRootfs"]
        assert not config["Privileged"]
    assert len([line for line in removed if line.startswith("container")]) == len(names)
    assert trial.containers() == []


def _segments_sent_and_retransmitted(trial: ReadyTrial) -> tuple[int, int]:
    """Return the numbers of TCP segments that worker-0 has sent and retransmitted."""
    names, values = trial.ask_helper("worker-0", "script", script="grep ^Tcp: /proc/net/snmp")["output"].splitlines()
    counters = dict(zip(names.split()[1:], map(int, values.split()[1:]), strict=True))
    return counters["OutSegs"], counters["RetransSegs"]


def _htb_classes_text(trial: ReadyTrial) -> str:
    device = trial.nodes.links.interfaces["worker-0"]
    return str(trial.ask_helper("worker-0", "script", script=f"tc class show dev {device}")["output"])
