"""The commands that shape links; what each is for stands beside it."""

from collections.abc import Callable
from typing import Any

import pytest

from compose.engines.containers.engine import RunSubnets
from compose.shaping import delays, filters, shared_link
from compose.shaping import htb_tree as tree
from compose.shaping import tc_output as reading
from compose.shaping.bursts import htb_burst_bytes, max_gso_segments
from compose.shaping.link_state import data_network_nodes, link_state_of
from compose.shaping.mechanisms import ShapingMechanisms, choose_shaping_mechanisms
from compose.shaping.node_link import NodeLinkScripts
from services.cluster.network import NetworkPath
from services.plan import Plan, make_plan
from services.scenario.scenario import Scenario
from services.schema.errors import HostError

ADDRESSES = RunSubnets(data="10.64.0", control="10.64.1")
KERNEL = ShapingMechanisms(rate="tc-htb", delay="nfqueue", loss="nfqueue", partition="iptables")
NETEM = ShapingMechanisms(rate="tc-htb", delay="netem", loss="netem")
LINKED = {"uplink": "100mbit", "downlink": "100mbit"}
LOSS = {"kind": "independent", "share": 0.01}
BURSTS = {"kind": "gilbert_elliott", "to_bad": 0.01, "to_good": 0.4}
Golden = Callable[[str, str], None]


def plan_of(workers: int = 4, worker: dict[str, Any] | None = None, cluster: Any = None, **keys: Any) -> Plan:
    """A ring of workers with these links, on this network."""
    document = {
        "name": "any",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "linear"},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch": 64,
            "epochs": 1,
        },
        "cluster": {"workers": workers, "worker": LINKED if worker is None else worker} | (cluster or {}),
        "strategies": {"ring": {"kind": "all_reduce", "collective": {"kind": "ring"}}},
        "baseline": False,
    }
    (trial,) = Scenario.decode(document | keys).trials()
    return make_plan(trial, "run", "docker", ADDRESSES)


def link_of(plan: Plan, name: str = "worker-0", rungs: ShapingMechanisms = KERNEL) -> NodeLinkScripts:
    address = shared_link.network_switch_address(plan) if shared_link.shared_links(plan) else None
    return NodeLinkScripts(plan, plan.node_plan(name), rungs, address)


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Golden:
    """Compares with the file of this name, or writes it."""
    folder = pytestconfig.rootpath / "tests" / "golden" / "shaping"

    def compare(name: str, text: str) -> None:
        file = folder / f"{name}.sh"
        if pytestconfig.getoption("--rewrite"):
            folder.mkdir(exist_ok=True)
            file.write_text(text + "\n")
        assert text + "\n" == file.read_text()

    return compare


@pytest.mark.parametrize("rate_bps", [1e6, 10e6, 100e6, 1e9, 10e9])
def test_no_packet_is_much_larger_than_the_credit(rate_bps: float) -> None:
    """HTB lets a packet pass whole: one of 64 KiB after a pause would be a message that no link slows down."""
    assert max_gso_segments(rate_bps, rate_bps) * 1514 <= max(17_000, htb_burst_bytes(rate_bps))


@pytest.mark.parametrize("rate_bps", [10e6, 20e6, 100e6, 1e9, 10e9])
def test_no_packet_lasts_much_longer_than_the_host_may_be_late(rate_bps: float) -> None:
    """At 10 Mbit/s one of 16 KB lasts 13 ms; a message of 128 KB was early by a tenth, and its trial invalid."""
    assert max_gso_segments(rate_bps, rate_bps) * 1514 * 8 / rate_bps <= 0.001_35


def test_a_slow_link_passes_single_packets() -> None:
    """None is smaller than an MTU, however long it lasts."""
    assert max_gso_segments(1e6, 1e6) == 1


def test_the_slowest_rate_on_any_of_its_ways_decides_how_large_packets_are() -> None:
    """A packet crosses the receiver's link, and what lies between, as its sender has made it."""
    fast = {"uplink": "10gbit", "downlink": "10gbit"}
    slow_pair = {"links": [{"nodes": ["worker-0", "worker-1"], "rate": "1gbit"}]}

    apart = link_of(plan_of(worker=fast, cluster=slow_pair))
    others = link_of(plan_of(worker=fast, cluster=slow_pair), "worker-3")

    assert apart.chosen_shaping_parameters()["packet_segments"] == 11
    assert others.chosen_shaping_parameters()["packet_segments"] == 99


def test_one_slow_node_does_not_cost_fast_links_single_packets() -> None:
    """A link of 1 Gbit/s would carry 80 thousand in a second, and the host nothing else."""
    groups = [{"name": "slow", "ranks": [0], "uplink": "5mbit", "downlink": "5mbit"}]
    plan = plan_of(worker={"uplink": "1gbit", "downlink": "1gbit"}, cluster={"groups": groups})

    assert {
        node.name: link_of(plan, node.name).chosen_shaping_parameters()["packet_segments"]
        for node in data_network_nodes(plan)
    } == {
        "worker-0": 1,
        **dict.fromkeys(("worker-1", "worker-2", "worker-3"), 11),
    }


def test_a_way_without_a_limit_is_a_fast_one() -> None:
    """Who sends to one slow peer and to others that nothing limits."""
    slow = {"groups": [{"name": "slow", "ranks": [0], "uplink": "5mbit", "downlink": "5mbit"}]}
    plan = plan_of(worker={}, cluster=slow)

    assert link_of(plan, "worker-1").chosen_shaping_parameters()["packet_segments"] == 11


def test_a_port_of_a_slow_node_holds_the_packets_of_fast_ones() -> None:
    """Otherwise none of them would ever pass."""
    slow = {"groups": [{"name": "slow", "ranks": [0], "uplink": "5mbit", "downlink": "5mbit", "buffer": "4KiB"}]}
    fast = {"uplink": "1gbit", "downlink": "1gbit"}

    assert f"bfifo limit {11 * 1514}" in link_of(plan_of(worker=fast, cluster=slow)).setup_script()


def test_a_worker_alone_has_a_link_like_any_other() -> None:
    """As every baseline has: nobody sends to it, and its port holds what ports hold."""
    assert f"bfifo limit {tree.DEFAULT_BUFFER_BYTES}" in link_of(plan_of(1, worker=LINKED)).setup_script()


def test_dilation_makes_packets_fewer_frames() -> None:
    """A link of 100 Mbit/s has 10 on the wall."""
    assert link_of(plan_of(worker=LINKED, dilation=10.0)).chosen_shaping_parameters()["packet_segments"] == 1


@pytest.mark.parametrize(("base", "event", "count"), [("10mbit", "100mbit", 1), ("100mbit", "10mbit", 11)])
def test_what_is_declared_decides_not_what_events_make_of_it(base: str, event: str, count: int) -> None:
    """It is what the probe sees, and most of a run."""
    changed = {"kind": "link", "at": {"time": "1s"}, "lasts": "1s", "of": ["worker-0"], "uplink": event}
    plan = plan_of(2, worker={"uplink": base, "downlink": "100mbit"}, events=[changed])

    assert link_of(plan).chosen_shaping_parameters()["packet_segments"] == count


def test_dilation_slows_rates_down_and_stretches_delays() -> None:
    """The wall is what the kernel knows."""
    plan = plan_of(worker=LINKED | {"delay": "1ms"}, dilation=10.0)

    state = link_state_of(plan, plan.node_plan("worker-0"))

    assert state.uplink_bps == 10e6
    assert {path.delay_s for path in state.paths} == {0.02}


def test_a_direction_that_is_not_shaped_gets_no_class() -> None:
    """Nothing is set up that the plan does not ask for."""
    assert "ifb0" not in link_of(plan_of(worker={"uplink": "100mbit"})).setup_script()
    assert "dev $dev root" not in link_of(plan_of(worker={"downlink": "100mbit"})).setup_script()


SETUPS = {
    "plain": {},
    "pair_inside_a_node": {"cluster": {"links": [{"nodes": ["worker-0", "worker-1"], "rate": "20mbit"}]}},
    "pair_alone": {"worker": {}, "cluster": {"links": [{"nodes": ["worker-0", "worker-1"], "rate": "20mbit"}]}},
    "buffer": {"worker": LINKED | {"buffer": "256KiB"}},
    "delay_and_loss": {"worker": LINKED | {"delay": "5ms", "loss": LOSS}},
    "racks": {"cluster": {"network": {"kind": "racks", "size": 2, "uplink": "50mbit"}}},
}


@pytest.mark.parametrize("name", SETUPS)
def test_the_script_of_a_node_is_the_one_that_was_reviewed(name: str, golden: Golden) -> None:
    """Read in review; each was run on a kernel by the tests of containers."""
    golden(name, link_of(plan_of(**SETUPS[name])).setup_script())


def test_netem_delays_and_loses_by_source_behind_the_rate(golden: Golden) -> None:
    """Never run where these tests were written: that kernel has no netem. The commands are tc-netem(8)'s."""
    lossy = {"links": [{"nodes": ["worker-0", "worker-1"], "loss": BURSTS}]}
    plan = plan_of(3, worker=LINKED | {"delay": "5ms"}, cluster=lossy)

    golden("netem", link_of(plan, rungs=NETEM).setup_script())


def test_the_switch_shapes_what_a_rack_sends_and_what_it_receives(golden: Golden) -> None:
    """One tree after the other: by source on arrival, by target on departure."""
    golden("switch_racks", shared_link.shared_links_setup_script(plan_of(**SETUPS["racks"])))


def test_the_switch_tells_the_directions_between_regions_apart(golden: Golden) -> None:
    """(source group, target group) decides; a source's table of targets is shared by its group."""
    between = [
        {"regions": ["eu", "us"], "rate": "50mbit"},
        {"regions": ["eu", "asia"], "rate": "20mbit"},
        {"regions": ["us", "asia"], "rate": "10mbit"},
    ]
    regions = {"eu": {"workers": [0, 1]}, "us": {"workers": [2, 3]}, "asia": {"workers": [4, 5]}}
    network = {"kind": "regions", "regions": regions, "between": between}

    golden("switch_regions", shared_link.shared_links_setup_script(plan_of(6, cluster={"network": network})))


@pytest.mark.parametrize("racks", [2, 3, 4])
def test_no_path_meets_two_limits_of_the_same_tree(racks: int) -> None:
    """A tree has one class per packet: the second limit would not exist."""
    plan = plan_of(2 * racks, cluster={"network": {"kind": "racks", "size": 2, "uplink": "50mbit"}})

    trees = shared_link.split_links_by_htb_tree(plan)

    assert sum(map(len, trees)) == 2 * racks
    for pipes in trees:
        ways = [(a, b) for pipe in pipes for a in pipe.sources for b in pipe.targets]
        assert len(ways) == len(set(ways))


def test_only_what_crosses_a_shared_limit_takes_the_detour() -> None:
    """Members of a rack reach each other directly."""
    link = link_of(plan_of(**SETUPS["racks"]))

    assert link.routed_peer_addresses == ("10.64.0.13", "10.64.0.14")


def test_what_pairs_own_is_less_than_what_their_node_may_send() -> None:
    """HTB lets a class send what it owns even when its parent has nothing left: eleven pairs would send 110 %."""
    limits = {f"10.0.0.{k}": 1e8 for k in range(10, 41)}

    own = [
        float(line.split(" rate ")[1].split("bit")[0]) for line in tree.link_htb_class_lines("eth0", 1e8, limits)[1:]
    ]

    assert sum(own) < 0.05 * 1e8


def test_every_packet_is_looked_up_once_however_many_nodes() -> None:
    """A linear list of filters costs every packet the length of the list."""
    lines = filters.tc_filter_lines_by_address(
        "eth0", filters.TARGET_OFFSET, {f"10.0.0.{k}": f"1:{k:x}" for k in range(10, 250)}
    )

    buckets = [line.split(" ht ")[1].split(" ")[0] for line in lines if "match ip" in line]
    assert len(buckets) == len(set(buckets)) == 240


def test_an_event_changes_a_class_and_leaves_every_queue() -> None:
    """A queue that is replaced drops what waits in it."""
    change = {"kind": "link", "at": {"time": "1s"}, "of": ["worker-0"], "uplink": "10mbit"}
    plan = plan_of(events=[change])
    node = plan.node_plan("worker-0")

    ((command, lines),) = link_of(plan).link_change_programs(
        "eth0", [link_state_of(plan, node)], link_state_of(plan, node, _all(plan))
    )

    assert command == ["tc", "-batch", "-"]
    assert lines.startswith("class change dev eth0 parent 1: classid 1:1 htb rate 10000000bit")
    assert "qdisc" not in lines


def test_a_partition_drops_what_comes_from_the_other_side_on_both_sides() -> None:
    """Each side's packets are dropped where they arrive: a sender that sees the drop would not wait for its timer."""
    plan = plan_of(events=[{"kind": "partition", "at": {"time": "1s"}, "apart": ["worker-0"], "lasts": "1s"}])
    states = {node.name: link_state_of(plan, node, _all(plan)) for node in data_network_nodes(plan)}

    assert states["worker-0"].partitioned_nodes == ("worker-1", "worker-2", "worker-3")
    assert states["worker-2"].partitioned_nodes == ("worker-0",)
    ((command, rules),) = link_of(plan).link_change_programs(
        "eth0", [link_state_of(plan, plan.node_plan("worker-0"))], states["worker-0"]
    )
    assert command == ["iptables-nft-restore", "--noflush"]
    assert rules.count("-j DROP") == 3


def test_a_change_of_delay_concerns_both_directions_of_the_link() -> None:
    """It belongs to a link, and a link has two."""
    change = {"kind": "link", "at": {"time": "1s"}, "of": ["worker-0"], "delay": "5ms"}
    plan = plan_of(3, events=[change])

    there = link_state_of(plan, plan.node_plan("worker-1"), _all(plan)).paths
    back = link_state_of(plan, plan.node_plan("worker-0"), _all(plan)).paths

    assert [(path.source, path.delay_s) for path in there] == [("worker-0", 0.005)]
    assert [path.source for path in back] == ["worker-1", "worker-2"]


def test_packets_travel_one_by_one_where_some_may_be_lost() -> None:
    """A loss of a packet of eleven segments is a loss of eleven."""
    assert link_of(plan_of(worker=LINKED | {"loss": LOSS})).chosen_shaping_parameters()["packet_segments"] == 1


def test_a_kernel_without_netem_delays_by_queues_of_ours_and_then_by_the_transport() -> None:
    """The ladder; the last rung loses nothing, so a loss is not emulated there."""
    plan = plan_of(worker=LINKED | {"delay": "5ms", "loss": LOSS})

    assert choose_shaping_mechanisms(plan, {"htb", "ifb", "netem", "nfqueue"}).delay == "netem"
    assert choose_shaping_mechanisms(plan, {"htb", "ifb", "nfqueue"}).delay == "nfqueue"
    assert choose_shaping_mechanisms(plan, {"htb", "ifb"}).delay == "transport"


def test_jitter_is_never_left_to_netem() -> None:
    """It would reorder packets, and knows no lognormal law."""
    plan = plan_of(worker=LINKED | {"delay": "5ms", "jitter": {"kind": "normal", "deviation": "1ms"}})

    assert choose_shaping_mechanisms(plan, {"htb", "ifb", "netem", "nfqueue"}).delay == "nfqueue"


def test_strict_refuses_what_is_not_enforced_in_the_kernel() -> None:
    """Before anything starts, with the reason."""
    plan = plan_of(worker=LINKED | {"delay": "5ms"}, strict=True)

    with pytest.raises(HostError, match="strict: this kernel can't delay"):
        choose_shaping_mechanisms(plan, {"htb", "ifb"})
    assert choose_shaping_mechanisms(plan, {"htb", "ifb", "nfqueue"}).delay == "nfqueue"


def test_a_kernel_that_shapes_nothing_is_refused() -> None:
    """Rates in containers have no rung below the kernel."""
    with pytest.raises(HostError, match="htb"):
        choose_shaping_mechanisms(plan_of(), {"ifb"})


PRINTED = """device up
class htb 1:1 root rate 100Mbit ceil 100Mbit burst 2Kb cburst 2Kb
class htb 1:10b parent 1:1 leaf 210b: prio 0 rate 20Kbit ceil 20Mbit burst 2Kb cburst 2Kb
device down
class htb 1:1 root leaf 2001: prio 0 rate 2500Kbit ceil 2500Kbit burst 2Kb cburst 2Kb
"""


def test_what_the_kernel_has_is_compared_class_by_class() -> None:
    """A limit that was changed behind our back, or never came to be, ends the trial before it trains."""
    wanted = {("up", "1:1"): 100e6, ("up", "1:10b"): 20e6, ("down", "1:1"): 2.5e6}

    assert reading.htb_rate_differences(wanted, PRINTED) == []
    assert "class 1:10b of up has 2e+07 instead of 1e+07 bit/s" in reading.htb_rate_differences(
        wanted | {("up", "1:10b"): 1e7}, PRINTED
    )
    assert "has no rate" in reading.htb_rate_differences({("down", "1:2"): 1e6}, PRINTED)[0]


def _all(plan: Plan) -> list[Any]:
    return [event.change for event in plan.events]


@pytest.mark.parametrize(
    ("most_segments", "declared", "limit"),
    [(11, None, 524288), (400, None, 605600), (11, 1 << 20, 1 << 20), (11, 99, 16654)],
)
def test_a_port_holds_its_buffer_in_bytes_and_never_less_than_a_packet(
    most_segments: int, declared: int | None, limit: int
) -> None:
    """A limit in packets would be eleven times as long for large ones, which nobody declared."""
    assert tree.link_buffer_qdisc(most_segments, declared) == f"bfifo limit {limit}"


def test_netem_holds_a_ports_buffer_beyond_what_its_delay_keeps_under_way() -> None:
    """At 100 Mbit/s, 10 ms keep 83 frames under way; 512 KiB are 347 more."""
    path = NetworkPath(source="a", target="b", delay_s=0.01)

    assert "limit 429 " in delays.netem_qdisc(path, 100e6, None)
    assert "limit 100000 " in delays.netem_qdisc(path, None, None)  # no rate says how many are under way
