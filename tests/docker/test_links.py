"""Links between containers are what the plan says: measured with few nodes and for moments, so with wide tolerances."""

import json
import os
import signal
import tempfile
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

from compose.engines.containers.engine import DockerEngine, NodeContainers, read_host_properties, set_secrets_owner
from compose.engines.containers.helper_containers import HELPER_ROLE
from compose.runs.certificates import issue_certificates
from compose.runs.clean import remove_leftovers
from compose.runs.labels import NODE_LABEL, ROLE_LABEL, RUN_LABEL, secrets_folder_prefix
from compose.runs.supervisor import TrialFailed
from compose.scenario_files.load import load_scenario
from compose.shaping.tc_output import parse_htb_rates_bps
from services.cluster.links.fluid_link import PAYLOAD_SHARE
from services.plan import COORDINATOR, Plan, make_plan
from services.plan.trial_outcome import LinkShapingRecord

pytestmark = pytest.mark.docker

LINKED = {"uplink": "100mbit", "downlink": "100mbit"}
GATE_S = 30.0


@dataclass
class Standing:
    """A trial whose links are shaped and whose nodes wait."""

    plan: Plan
    folder: Path
    nodes: NodeContainers
    shaped: dict[str, LinkShapingRecord]
    client: Any

    def ask(self, node: str, what: str, **given: Any) -> dict[str, Any]:
        """What the helper beside a node answers."""
        return self.nodes.links.helpers[node].request(what, **given)

    def listen(self) -> None:
        """Open all ears."""
        for node in self.nodes.links.node_links:
            self.ask(node, "listen", address=self.address(node))

    def address(self, node: str) -> str:
        return self.plan.node_plan(node).addresses.data.host

    def messages_s(self, size: int, *ways: tuple[str, str]) -> float:
        """Seconds that two messages on each of some ways take, all ways at once."""
        started = time.monotonic()
        with ThreadPoolExecutor() as pool:
            asked = [pool.submit(self.ask, a, "message", address=self.address(b), size=size) for a, b in ways]
            for answer in asked:
                answer.result()
        return time.monotonic() - started

    def containers(self, role: str = "") -> list[Any]:
        """Of the run; of one role, or all."""
        found = self.client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={self.plan.run}"})
        return [each for each in found if role in ("", each.labels[ROLE_LABEL])]


@pytest.fixture
def stand(docker_engine: DockerEngine, tmp_path: Path) -> Iterator[Callable[..., Standing]]:
    """`stand(workers, worker, cluster, **keys)`: nodes up to the gate."""
    with ExitStack() as stack:
        yield lambda *given, **keys: stack.enter_context(_standing(docker_engine, tmp_path, *given, **keys))


@contextmanager
def _standing(
    engine: DockerEngine, home: Path, workers: int, worker: Any, cluster: Any = None, **keys: Any
) -> Iterator[Standing]:
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
        "cluster": {"workers": workers, "worker": worker} | (cluster or {}),
        "strategies": {"ring": {"kind": "all_reduce", "collective": {"kind": "ring"}}},
        "baseline": False,
    }
    (home / "links.yaml").write_text(yaml.safe_dump(document | keys))
    (trial,) = load_scenario(home / "links.yaml").trials()
    run = f"links-{time.time_ns():x}"
    plan = make_plan(trial, run, "docker", engine.choose_addresses(run, workers + 1))
    folder = home / run
    with (
        tempfile.TemporaryDirectory(prefix=secrets_folder_prefix(plan)) as secrets,
        closing(docker.from_env()) as client,
    ):
        issue_certificates(plan.run, (node.name for node in plan.nodes), Path(secrets))
        host = read_host_properties(client, engine.images, Path(secrets))
        set_secrets_owner(Path(secrets), host.user)
        (folder / "logs").mkdir(parents=True)
        (folder / "plan.json").write_text(plan.model_dump_json())
        nodes = NodeContainers(plan, folder, host, engine.choose_shaping_mechanisms(plan))
        try:
            nodes.start()
            shaped = nodes.shape_links()
            _settle(folder / "logs" / f"{COORDINATOR}.log", workers)
            yield Standing(plan, folder, nodes, shaped, client)
        finally:
            nodes.stop()


def _settle(log: Path, workers: int) -> None:
    """Until all have joined: nodes that start take the host's cores."""
    deadline = time.monotonic() + GATE_S
    while log.read_text().count('"joined"') < workers if log.exists() else True:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.wall_clock
def test_members_share_their_racks_uplink_and_not_what_stays_inside(stand: Callable[..., Standing]) -> None:
    """Three senders to another rack get what one would; two members of a rack don't notice it."""
    racks = {"network": {"kind": "racks", "size": 3, "uplink": "50mbit"}}
    size = 500_000
    standing = stand(4, LINKED, racks)
    standing.listen()

    across = standing.messages_s(size, *((f"worker-{k}", "worker-3") for k in range(3)))
    inside = standing.messages_s(size, ("worker-0", "worker-1"))

    assert across == pytest.approx(2 * 3 * size * 8 / (50e6 * PAYLOAD_SHARE), rel=0.1)
    assert inside == pytest.approx(2 * size * 8 / (100e6 * PAYLOAD_SHARE), rel=0.25)


@pytest.mark.wall_clock
@pytest.mark.slow
def test_a_pair_is_limited_inside_its_nodes_limit(stand: Callable[..., Standing]) -> None:
    """Towards one peer 20 Mbit/s, towards all together no more than 100."""
    standing = stand(3, LINKED, {"links": [{"nodes": ["worker-0", "worker-1"], "rate": "20mbit"}]})

    found = standing.nodes.probe_links()

    assert found["worker-0"].achieved_pipes_bps["worker-0 to worker-1"] == pytest.approx(20e6, rel=0.03)
    assert found["worker-0"].achieved_uplink_bps == pytest.approx(100e6, rel=0.03)
    assert found["worker-0"].pipes_bps["worker-0 to worker-1"].achieved == 20e6


@pytest.mark.wall_clock
def test_round_trips_are_those_that_were_declared(stand: Callable[..., Standing]) -> None:
    """Each path with its own delay: a pair that is further apart is further apart."""
    standing = stand(3, LINKED | {"delay": "1ms"}, {"links": [{"nodes": ["worker-0", "worker-1"], "delay": "20ms"}]})

    found = standing.nodes.probe_links()["worker-0"].round_trip_s

    assert found["worker-1"].declared == pytest.approx(0.044)
    assert found["worker-1"].achieved == pytest.approx(0.044, abs=0.001)
    assert found["worker-2"].achieved == pytest.approx(0.004, abs=0.001)
    assert standing.shaped["worker-0"].rungs["delay"] in ("netem", "nfqueue")


@pytest.mark.wall_clock
@pytest.mark.slow
def test_lost_packets_are_sent_again(stand: Callable[..., Standing]) -> None:
    """TCP sees the loss: it is at the receiver, and packet by packet."""
    loss = {"kind": "independent", "share": 0.02}
    standing = stand(2, LINKED, {"links": [{"nodes": ["worker-0", "worker-1"], "both_ways": False, "loss": loss}]})
    standing.listen()
    before = _segments(standing)

    standing.messages_s(2_000_000, ("worker-0", "worker-1"))

    sent, again = (after - then for after, then in zip(_segments(standing), before, strict=True))
    assert sent > 2 * 2_000_000 / 1448
    assert 0.01 < again / sent < 0.035


@pytest.mark.wall_clock
def test_events_change_links_at_their_moments(stand: Callable[..., Standing]) -> None:
    """A rate in place, a partition, and both undone; a line each says when."""
    slow = {"kind": "link", "at": {"time": "1s"}, "of": ["worker-0"], "uplink": "10mbit", "lasts": "1s"}
    apart = {"kind": "partition", "at": {"time": "1500ms"}, "apart": ["worker-1"], "lasts": "1s"}
    standing = stand(2, LINKED, events=[slow, apart])
    start = time.monotonic()

    standing.nodes.link_events.handle_log_event({"key": "run_start", "time_ms": time.time() * 1e3, "value": None})
    time.sleep(1.3 - (time.monotonic() - start))
    meanwhile = parse_htb_rates_bps("device up\n" + _classes(standing))
    time.sleep(2.8 - (time.monotonic() - start))

    lines = [json.loads(line) for line in (standing.folder / "events.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["phase"]) for line in lines] == [
        ("link", "begin"),
        ("partition", "begin"),
        ("link", "end"),
        ("partition", "end"),
    ]
    assert all(0 <= line["lateness_s"] < 0.1 for line in lines)
    assert meanwhile["up", "1:1"] == 10e6
    assert parse_htb_rates_bps("device up\n" + _classes(standing))["up", "1:1"] == 100e6


def test_a_link_that_was_changed_behind_our_back_fails_before_training(stand: Callable[..., Standing]) -> None:
    """Half the declared rate: the probe says so, and by how much."""
    standing = stand(2, LINKED)
    device = standing.nodes.links.interfaces["worker-0"]
    standing.ask("worker-0", "script", script=f"tc class change dev {device} classid 1:1 htb rate 50mbit ceil 50mbit")

    with pytest.raises(TrialFailed, match="declared 100 Mbit/s"):
        standing.nodes.probe_links()


@pytest.mark.slow
def test_a_delay_line_that_dies_is_the_reason_why_the_trial_fails(stand: Callable[..., Standing]) -> None:
    """Its packets are dropped, not let through early; the trial must not wait for them."""
    standing = stand(2, LINKED | {"delay": "1ms"})
    if standing.shaped["worker-0"].rungs["delay"] != "nfqueue":
        pytest.skip("this kernel has netem")
    (helper,) = [each for each in standing.containers(HELPER_ROLE) if each.labels[NODE_LABEL] == "shaper-worker-0"]

    for line in helper.top()["Processes"]:
        if "delay_line" in line[-1]:
            os.kill(int(line[1]), signal.SIGKILL)
    time.sleep(1.0)

    with pytest.raises(TrialFailed, match="worker-0: the helper container has ended: the delay line has ended"):
        standing.nodes.exit_codes()


def test_nobody_but_helpers_holds_a_capability_and_clean_finds_them_all(stand: Callable[..., Standing]) -> None:
    """A helper that nobody talks to any more ends by itself; the rest goes by its label, the switch too."""
    standing = stand(3, LINKED, {"network": {"kind": "racks", "size": 2, "uplink": "50mbit"}})

    names = {each.labels[NODE_LABEL] for each in standing.containers()}
    configs = {each.labels[NODE_LABEL]: each.attrs["HostConfig"] for each in standing.containers()}
    removed = remove_leftovers(standing.plan.run)

    assert {"switch", "shaper-switch", "worker-0", "shaper-worker-0"} <= names
    for name, config in configs.items():
        assert config["CapDrop"] == ["ALL"]
        assert config["CapAdd"] == (["NET_ADMIN"] if name.startswith(HELPER_ROLE) else None)
        assert config["ReadonlyRootfs"]
        assert not config["Privileged"]
    assert len([line for line in removed if line.startswith("container")]) == len(names)
    assert standing.containers() == []


def _segments(standing: Standing) -> tuple[int, int]:
    """TCP segments that worker-0 has sent, and sent again."""
    names, values = standing.ask("worker-0", "script", script="grep ^Tcp: /proc/net/snmp")["said"].splitlines()
    counted = dict(zip(names.split()[1:], map(int, values.split()[1:]), strict=True))
    return counted["OutSegs"], counted["RetransSegs"]


def _classes(standing: Standing) -> str:
    device = standing.nodes.links.interfaces["worker-0"]
    return str(standing.ask("worker-0", "script", script=f"tc class show dev {device}")["said"])
