"""The commands that shape a link, and what is read back."""

import pytest

from compose.shaping import burst_bytes, read_back, script, segments
from services.plan import Address, NodePlan, Place


def node(uplink_bps: float | None, downlink_bps: float | None) -> NodePlan:
    """A worker with these links."""
    place = Place(data=Address(host="10.0.0.2", port=1), control=Address(host="10.0.1.2", port=1))
    return NodePlan(
        name="worker-0",
        role="worker",
        rank=0,
        place=place,
        uplink_bps=uplink_bps,
        downlink_bps=downlink_bps,
        memory_bytes=1,
        cpus=1,
    )


@pytest.mark.parametrize("rate_bps", [1e6, 10e6, 100e6, 1e9, 10e9])
def test_no_packet_is_much_larger_than_the_credit(rate_bps: float) -> None:
    """HTB lets a packet pass whole: one of 64 KiB after a pause would be a message that no link slows down."""
    count = segments(node(rate_bps, rate_bps), 1.0)

    assert count * 1514 <= max(17_000, burst_bytes(rate_bps))
    assert f"gso_max_segs {count}" in script(node(rate_bps, rate_bps), 1.0)


def test_the_slower_direction_decides_and_dilation_slows_both() -> None:
    """The sender's packets cross the receiver's link as they are."""
    assert segments(node(10e9, 1e9), 1.0) == segments(node(None, 1e9), 1.0) == segments(node(10e9, None), 10.0)


def test_a_direction_that_is_not_shaped_gets_no_class() -> None:
    """Nothing is set up that the plan does not ask for."""
    assert "ifb0" not in script(node(1e8, None), 1.0)
    assert "dev $dev root" not in script(node(None, 1e8), 1.0)


def test_rates_are_read_back_in_virtual_units() -> None:
    """The kernel enforces a tenth of what a trial with dilation 10 declares."""
    printed = (
        "class htb 1:1 root leaf 10: prio 0 rate 10Mbit ceil 10Mbit burst 2Kb cburst 2Kb\n"
        "class htb 1:1 root leaf 10: prio 0 rate 2500Kbit ceil 2500Kbit burst 2Kb cburst 2Kb\n"
    )

    assert read_back(node(100e6, 25e6), 10.0, printed) == (100e6, 25e6)
    assert read_back(node(None, 100e6), 10.0, printed) == (None, 100e6)
