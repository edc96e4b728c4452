"""The commands that shape links, and the link state that they enforce."""

from collections.abc import Callable
from typing import Any

import pytest

from compose.engines.containers.engine import RunSubnets
from compose.shaping import delays, filters, shared_link
from compose.shaping import htb_tree as tree
from compose.shaping import tc_output as reading
from compose.shaping.bursts import htb_burst_bytes, max_gso_segments
from compose.shaping.link_state import data_network_nodes, link_state_of
from compose.shaping.mechanisms import ChosenMechanisms, choose_shaping_mechanisms
from compose.shaping.node_link import NodeLinkScripts
from services.cluster.network import NetworkPath
from services.plan import Plan, make_plan
from services.scenario.scenario import Scenario
from services.schema.errors import HostError

pytestmark = pytest.mark.without_nodes

ADDRESSES = RunSubnets(data="10.64.0", control="10.64.1")
NFQUEUE_MECHANISMS = ChosenMechanisms(rate="tc-htb", delay="nfqueue", loss="nfqueue", partition="iptables")
NETEM_MECHANISMS = ChosenMechanisms(rate="tc-htb", delay="netem", loss="netem")
LINKS_100_MBIT = {"uplink": "100mbit", "downlink": "100mbit"}
ONE_PERCENT_LOSS = {"kind": "independent", "share": 0.01}
BURST_LOSS = {"kind": "gilbert_elliott", "to_bad": 0.01, "to_good": 0.4}
CompareWithGoldenFile = Callable[[str, str], None]


def ring_plan(
    workers: int = 4, worker: dict[str, Any] | None = None, cluster: Any = None, **scenario_keys: Any
) -> Plan:
    """Return the plan of a ring of workers with these links, on this network."""
    document = {
        "name": "any",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "linear"},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch": 64,
            "epochs": 1,
        },
        "cluster": {"workers": workers, "worker": LINKS_100_MBIT if worker is None else worker} | (cluster or {}),
        "strategies": {"ring": {"kind": "all_reduce", "collective": {"kind": "ring"}}},
        "baseline": False,
    }
    (trial,) = Scenario.decode(document | scenario_keys).trials()
    return make_plan(trial, "run", "docker", ADDRESSES)


def link_scripts(
    plan: Plan, node_name: str = "worker-0", mechanisms: ChosenMechanisms = NFQUEUE_MECHANISMS
) -> NodeLinkScripts:
    address = shared_link.network_switch_address(plan) if shared_link.shared_links(plan) else None
    return NodeLinkScripts(plan, plan.node_plan(node_name), mechanisms, address)


@pytest.fixture
def compare_with_golden_file(pytestconfig: pytest.Config) -> CompareWithGoldenFile:
    """Return a function that compares a script with the golden file of this name, or writes the file."""
    folder = pytestconfig.rootpath / "tests" / "golden" / "shaping"

    def compare(name: str, text: str) -> None:
        file = folder / f"{name}.sh"
        if pytestconfig.getoption("--rewrite"):
            folder.mkdir(exist_ok=True)
            file.write_text(text + "\n")
        assert text + "\n" == file.read_text()

    return compare


@pytest.mark.parametrize("rate_bps", [1e6, 10e6, 100e6, 1e9, 10e9])
def test_no_packet_is_much_larger_than_the_htb_burst(rate_bps: float) -> None:
    """HTB lets a packet pass whole: after a pause, no link would slow down a message of 64 KiB in one packet."""
    assert max_gso_segments(rate_bps, rate_bps) * 1514 <= max(17_000, htb_burst_bytes(rate_bps))


@pytest.mark.parametrize("rate_bps", [10e6, 20e6, 100e6, 1e9, 10e9])
def test_no_packet_takes_much_longer_than_the_tolerated_lateness(rate_bps: float) -> None:
    """At 10 Mbit/s a packet of 16 KB takes 13 ms; a message of 128 KB was early by a tenth, and its trial invalid."""
    assert max_gso_segments(rate_bps, rate_bps) * 1514 * 8 / rate_bps <= 0.001_35


def test_packets_of_a_slow_link_have_one_segment() -> None:
    """No packet is smaller than one MTU, however long it takes."""
    assert max_gso_segments(1e6, 1e6) == 1


def test_the_slowest_rate_on_any_path_decides_the_packet_size() -> None:
    """A packet crosses the receiver's link, and the links before it, in the size that its sender has chosen."""
    fast_links = {"uplink": "10gbit", "downlink": "10gbit"}
    slow_pair = {"links": [{"nodes": ["worker-0", "worker-1"], "rate": "1gbit"}]}

    slow_pair_link = link_scripts(ring_plan(worker=fast_links, cluster=slow_pair))
    fast_link = link_scripts(ring_plan(worker=fast_links, cluster=slow_pair), "worker-3")

    assert slow_pair_link.list_burst_and_segment_sizes()["packet_segments"] == 11
    assert fast_link.list_burst_and_segment_sizes()["packet_segments"] == 99


def test_fast_links_keep_large_packets_beside_one_slow_node() -> None:
    """With single segments, a link of 1 Gbit/s would carry 80,000 packets per second and keep the host busy."""
    groups = [{"name": "slow", "ranks": [0], "uplink": "5mbit", "downlink": "5mbit"}]
    plan = ring_plan(worker={"uplink": "1gbit", "downlink": "1gbit"}, cluster={"groups": groups})

    assert {
        node.name: link_scripts(plan, node.name).list_burst_and_segment_sizes()["packet_segments"]
        for node in data_network_nodes(plan)
    } == {
        "worker-0": 1,
        **dict.fromkeys(("worker-1", "worker-2", "worker-3"), 11),
    }


def test_a_path_without_a_limit_counts_as_fast() -> None:
    """The worker sends to one slow peer, and to others without limits."""
    slow_group = {"groups": [{"name": "slow", "ranks": [0], "uplink": "5mbit", "downlink": "5mbit"}]}
    plan = ring_plan(worker={}, cluster=slow_group)

    assert link_scripts(plan, "worker-1").list_burst_and_segment_sizes()["packet_segments"] == 11


def test_the_buffer_of_a_slow_node_holds_the_packets_of_fast_nodes() -> None:
    """Otherwise none of these packets would ever pass."""
    slow_group = {"groups": [{"name": "slow", "ranks": [0], "uplink": "5mbit", "downlink": "5mbit", "buffer": "4KiB"}]}
    fast_links = {"uplink": "1gbit", "downlink": "1gbit"}

    assert (
        f"bfifo limit {11 * 1514}"
        in link_scripts(ring_plan(worker=fast_links, cluster=slow_group)).make_link_setup_script()
    )


def test_the_link_of_a_single_worker_has_the_default_buffer() -> None:
    """Every baseline has one worker: no peer sends to it, but its port has the usual buffer."""
    assert (
        f"bfifo limit {tree.DEFAULT_BUFFER_BYTES}"
        in link_scripts(ring_plan(1, worker=LINKS_100_MBIT)).make_link_setup_script()
    )


def test_dilation_reduces_the_segments_per_packet() -> None:
    """A link of 100 Mbit/s has 10 Mbit/s in wall-clock time."""
    assert (
        link_scripts(ring_plan(worker=LINKS_100_MBIT, dilation=10.0)).list_burst_and_segment_sizes()["packet_segments"]
        == 1
    )


@pytest.mark.parametrize(
    ("declared_rate", "event_rate", "segment_count"), [("10mbit", "100mbit", 1), ("100mbit", "10mbit", 11)]
)
def test_the_declared_rate_decides_the_packet_size_and_not_the_rate_of_events(
    declared_rate: str, event_rate: str, segment_count: int
) -> None:
    """The declared rate is the one that the probe measures, and applies during most of a run."""
    rate_change = {"kind": "link", "at": {"time": "1s"}, "lasts": "1s", "of": ["worker-0"], "uplink": event_rate}
    plan = ring_plan(2, worker={"uplink": declared_rate, "downlink": "100mbit"}, events=[rate_change])

    assert link_scripts(plan).list_burst_and_segment_sizes()["packet_segments"] == segment_count


def test_dilation_reduces_rates_and_lengthens_delays() -> None:
    """The kernel only knows wall-clock time."""
    plan = ring_plan(worker=LINKS_100_MBIT | {"delay": "1ms"}, dilation=10.0)

    state = link_state_of(plan, plan.node_plan("worker-0"))

    assert state.uplink_bps == 10e6
    assert {path.delay_s for path in state.paths} == {0.02}


def test_a_direction_without_a_rate_gets_no_htb_class() -> None:
    """The script sets up only what the plan declares."""
    assert "ifb0" not in link_scripts(ring_plan(worker={"uplink": "100mbit"})).make_link_setup_script()
    assert "dev $dev root" not in link_scripts(ring_plan(worker={"downlink": "100mbit"})).make_link_setup_script()


@pytest.mark.parametrize(("worker_count", "peer_class_count"), [(2, 0), (3, 2), (8, 7)])
def test_peers_take_turns_on_an_uplink_if_there_are_several(worker_count: int, peer_class_count: int) -> None:
    """With one queue for all peers, TCP served one peer first, and sums took 0.9 times their predicted time."""
    lines = link_scripts(ring_plan(worker_count)).make_link_setup_script().splitlines()

    peer_classes = [line for line in lines if line.startswith("class add dev $dev parent 1:1 classid 1:1")]
    assert len(peer_classes) == sum("match ip dst" in line for line in lines) == peer_class_count


SETUPS = {
    "plain": {},
    "pair_inside_a_node": {"cluster": {"links": [{"nodes": ["worker-0", "worker-1"], "rate": "20mbit"}]}},
    "pair_alone": {"worker": {}, "cluster": {"links": [{"nodes": ["worker-0", "worker-1"], "rate": "20mbit"}]}},
    "buffer": {"worker": LINKS_100_MBIT | {"buffer": "256KiB"}},
    "delay_and_loss": {"worker": LINKS_100_MBIT | {"delay": "5ms", "loss": ONE_PERCENT_LOSS}},
    "racks": {"cluster": {"network": {"kind": "racks", "size": 2, "uplink": "50mbit"}}},
}


@pytest.mark.parametrize("name", SETUPS)
def test_the_script_of_a_node_equals_the_reviewed_file(
    name: str, compare_with_golden_file: CompareWithGoldenFile
) -> None:
    """The scripts are reviewed; the container tests run each of them on a kernel."""
    compare_with_golden_file(name, link_scripts(ring_plan(**SETUPS[name])).make_link_setup_script())


def test_netem_delays_and_drops_packets_by_source_after_the_rate_limit(
    compare_with_golden_file: CompareWithGoldenFile,
) -> None:
    """This script never ran where the tests were written: that kernel has no netem. The commands follow tc-netem(8)."""
    lossy = {"links": [{"nodes": ["worker-0", "worker-1"], "loss": BURST_LOSS}]}
    plan = ring_plan(3, worker=LINKS_100_MBIT | {"delay": "5ms"}, cluster=lossy)

    compare_with_golden_file("netem", link_scripts(plan, mechanisms=NETEM_MECHANISMS).make_link_setup_script())


def test_the_switch_shapes_the_traffic_that_a_rack_sends_and_receives(
    compare_with_golden_file: CompareWithGoldenFile,
) -> None:
    """One tree follows the other: by source on arrival, by target on departure."""
    compare_with_golden_file("switch_racks", shared_link.shared_links_setup_script(ring_plan(**SETUPS["racks"])))


def test_the_switch_shapes_each_direction_between_regions_separately(
    compare_with_golden_file: CompareWithGoldenFile,
) -> None:
    """The pair (source group, target group) selects the class; all sources of a group share a table of targets."""
    between = [
        {"regions": ["eu", "us"], "rate": "50mbit"},
        {"regions": ["eu", "asia"], "rate": "20mbit"},
        {"regions": ["us", "asia"], "rate": "10mbit"},
    ]
    regions = {"eu": {"workers": [0, 1]}, "us": {"workers": [2, 3]}, "asia": {"workers": [4, 5]}}
    network = {"kind": "regions", "regions": regions, "between": between}

    compare_with_golden_file(
        "switch_regions", shared_link.shared_links_setup_script(ring_plan(6, cluster={"network": network}))
    )


@pytest.mark.parametrize("rack_count", [2, 3, 4])
def test_no_path_has_two_limits_in_the_same_htb_tree(rack_count: int) -> None:
    """A tree has one class per packet, so a second limit would have no effect."""
    plan = ring_plan(2 * rack_count, cluster={"network": {"kind": "racks", "size": 2, "uplink": "50mbit"}})

    trees = shared_link.shared_links_by_htb_tree(plan)

    assert sum(map(len, trees)) == 2 * rack_count
    for shared_links in trees:
        paths = [(source, target) for limit in shared_links for source in limit.sources for target in limit.targets]
        assert len(paths) == len(set(paths))


def test_only_traffic_that_crosses_a_shared_limit_goes_through_the_switch() -> None:
    """Members of a rack reach each other directly."""
    link = link_scripts(ring_plan(**SETUPS["racks"]))

    assert link.routed_peer_addresses == ("10.64.0.13", "10.64.0.14")


@pytest.mark.parametrize("rate_bps", [12_500.0, 1e8])
def test_the_guaranteed_rates_of_peers_are_less_than_the_rate_of_their_node(rate_bps: float) -> None:
    """HTB always lets a class send its guaranteed rate, even if its parent has none left: 11 pairs would send 110 %.

    At least 1000 bit/s for each of 16 peers would be 128 % of a link of 12.5 kbit/s.
    """
    peers = [f"10.0.0.{k}" for k in range(10, 41)]

    for limits in (dict.fromkeys(peers), dict.fromkeys(peers, rate_bps)):
        guaranteed_bps = [
            float(line.split(" rate ")[1].split("bit")[0])
            for line in tree.link_htb_class_lines("eth0", rate_bps, limits)[1:]
        ]
        assert len(guaranteed_bps) == len(peers) + 1
        assert min(guaranteed_bps) >= 8
        assert sum(guaranteed_bps) < 0.05 * rate_bps


def test_a_packet_needs_one_filter_lookup_for_any_number_of_nodes() -> None:
    """With a linear list of filters, the cost of every packet would grow with the list."""
    lines = filters.tc_filter_lines_by_address(
        "eth0", filters.TARGET_OFFSET, {f"10.0.0.{k}": f"1:{k:x}" for k in range(10, 250)}
    )

    buckets = [line.split(" ht ")[1].split(" ")[0] for line in lines if "match ip" in line]
    assert len(buckets) == len(set(buckets)) == 240


def test_an_event_changes_a_class_and_replaces_no_queue() -> None:
    """A queue that is replaced drops its waiting packets."""
    change = {"kind": "link", "at": {"time": "1s"}, "of": ["worker-0"], "uplink": "10mbit"}
    plan = ring_plan(events=[change])
    node = plan.node_plan("worker-0")

    ((command, commands),) = link_scripts(plan).make_link_change_commands(
        "eth0", [link_state_of(plan, node)], link_state_of(plan, node, _event_changes(plan))
    )

    assert command == ["tc", "-batch", "-"]
    assert commands.startswith("class change dev eth0 parent 1: classid 1:1 htb rate 10000000bit")
    assert "qdisc" not in commands


def test_both_sides_of_a_partition_drop_packets_of_the_other_side() -> None:
    """Packets are dropped where they arrive: a sender that noticed the drop would not wait for its timer."""
    plan = ring_plan(events=[{"kind": "partition", "at": {"time": "1s"}, "apart": ["worker-0"], "lasts": "1s"}])
    states = {node.name: link_state_of(plan, node, _event_changes(plan)) for node in data_network_nodes(plan)}

    assert states["worker-0"].partitioned_nodes == ("worker-1", "worker-2", "worker-3")
    assert states["worker-2"].partitioned_nodes == ("worker-0",)
    ((command, rules),) = link_scripts(plan).make_link_change_commands(
        "eth0", [link_state_of(plan, plan.node_plan("worker-0"))], states["worker-0"]
    )
    assert command == ["iptables-nft-restore", "--noflush"]
    assert rules.count("-j DROP") == 3


def test_one_way_partition_drops_packets_only_where_they_arrive() -> None:
    """Packets from worker-0 are dropped by all others, and worker-0 still receives theirs."""
    partition = {"kind": "partition", "at": {"time": "1s"}, "apart": ["worker-0"], "lasts": "1s"}
    plan = ring_plan(events=[partition | {"direction": "from_apart"}])
    states = {node.name: link_state_of(plan, node, _event_changes(plan)) for node in data_network_nodes(plan)}
    assert states["worker-0"].partitioned_nodes == ()
    assert states["worker-2"].partitioned_nodes == ("worker-0",)


def test_a_change_of_delay_applies_to_both_directions_of_the_link() -> None:
    """The delay belongs to a link, and a link has two directions."""
    change = {"kind": "link", "at": {"time": "1s"}, "of": ["worker-0"], "delay": "5ms"}
    plan = ring_plan(3, events=[change])

    paths_to_peer = link_state_of(plan, plan.node_plan("worker-1"), _event_changes(plan)).paths
    paths_from_peers = link_state_of(plan, plan.node_plan("worker-0"), _event_changes(plan)).paths

    assert [(path.source, path.delay_s) for path in paths_to_peer] == [("worker-0", 0.005)]
    assert [path.source for path in paths_from_peers] == ["worker-1", "worker-2"]


def test_packets_on_a_lossy_link_have_one_segment() -> None:
    """The loss of a packet of eleven segments would be a loss of eleven."""
    assert (
        link_scripts(ring_plan(worker=LINKS_100_MBIT | {"loss": ONE_PERCENT_LOSS})).list_burst_and_segment_sizes()[
            "packet_segments"
        ]
        == 1
    )


def test_a_kernel_without_netem_delays_with_nfqueue_or_else_in_the_transport() -> None:
    """The mechanisms are tried in this order; the last one loses no packets, so it does not emulate a loss."""
    plan = ring_plan(worker=LINKS_100_MBIT | {"delay": "5ms", "loss": ONE_PERCENT_LOSS})

    assert choose_shaping_mechanisms(plan, {"htb", "ifb", "netem", "nfqueue"}).delay == "netem"
    assert choose_shaping_mechanisms(plan, {"htb", "ifb", "nfqueue"}).delay == "nfqueue"
    assert choose_shaping_mechanisms(plan, {"htb", "ifb"}).delay == "transport"


def test_netem_is_never_used_for_jitter() -> None:
    """It would reorder packets, and has no lognormal distribution."""
    plan = ring_plan(worker=LINKS_100_MBIT | {"delay": "5ms", "jitter": {"kind": "normal", "deviation": "1ms"}})

    assert choose_shaping_mechanisms(plan, {"htb", "ifb", "netem", "nfqueue"}).delay == "nfqueue"


def test_strict_rejects_mechanisms_outside_the_kernel() -> None:
    """The error is raised before the trial starts, and names the reason."""
    plan = ring_plan(worker=LINKS_100_MBIT | {"delay": "5ms"}, strict=True)

    with pytest.raises(HostError, match="strict: this kernel can't delay"):
        choose_shaping_mechanisms(plan, {"htb", "ifb"})
    assert choose_shaping_mechanisms(plan, {"htb", "ifb", "nfqueue"}).delay == "nfqueue"


def test_a_kernel_without_htb_is_rejected() -> None:
    """For the rates of containers there is no mechanism outside the kernel."""
    with pytest.raises(HostError, match="htb"):
        choose_shaping_mechanisms(ring_plan(), {"ifb"})


TC_OUTPUT = """device up
class htb 1:1 root rate 100Mbit ceil 100Mbit burst 2Kb cburst 2Kb
class htb 1:10b parent 1:1 leaf 210b: prio 0 rate 20Kbit ceil 20Mbit burst 2Kb cburst 2Kb
device down
class htb 1:1 root leaf 2001: prio 0 rate 2500Kbit ceil 2500Kbit burst 2Kb cburst 2Kb
"""


def test_the_rates_in_the_kernel_are_compared_with_the_plan_class_by_class() -> None:
    """If another process changed a limit, or setting it had no effect, the trial ends before training."""
    planned_rates = {("up", "1:1"): 100e6, ("up", "1:10b"): 20e6, ("down", "1:1"): 2.5e6}

    assert reading.htb_rate_differences(planned_rates, TC_OUTPUT) == []
    assert "class 1:10b of up has 2e+07 instead of 1e+07 bit/s" in reading.htb_rate_differences(
        planned_rates | {("up", "1:10b"): 1e7}, TC_OUTPUT
    )
    assert "has no rate" in reading.htb_rate_differences({("down", "1:2"): 1e6}, TC_OUTPUT)[0]


def _event_changes(plan: Plan) -> list[Any]:
    return [event.change for event in plan.events]


@pytest.mark.parametrize(
    ("most_segments", "declared_bytes", "limit_bytes"),
    [(11, None, 524288), (400, None, 605600), (11, 1 << 20, 1 << 20), (11, 99, 16654)],
)
def test_the_buffer_of_a_port_is_in_bytes_and_holds_at_least_one_packet(
    most_segments: int, declared_bytes: int | None, limit_bytes: int
) -> None:
    """A limit in packets would be eleven times as long for large packets, which the scenario did not declare."""
    assert tree.link_buffer_qdisc(most_segments, declared_bytes) == f"bfifo limit {limit_bytes}"


def test_the_netem_limit_is_the_buffer_plus_the_delayed_packets() -> None:
    """At 100 Mbit/s, a delay of 10 ms holds 83 frames; a buffer of 512 KiB holds 347 more."""
    path = NetworkPath(source="a", target="b", delay_s=0.01)

    assert "limit 429 " in delays.netem_qdisc(path, 100e6, None)
    assert "limit 100000 " in delays.netem_qdisc(path, None, None)  # delayed packets are unknown without a rate
