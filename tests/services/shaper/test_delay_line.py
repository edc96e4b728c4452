"""The delay line decides when each packet is released, and exchanges messages with the kernel."""

from itertools import pairwise, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.shaper import nfqueue
from services.shaper.delay_line import PacketDelayQueue, make_packet_delay_queue

PATH = {"source": "a", "target": "b", "delay_s": 0.005, "jitters": [], "losses": []}


def test_a_packet_is_released_after_its_delay_and_not_before() -> None:
    queue = PacketDelayQueue(3, repeat(0.005))

    queue.add_packet(1.0, 7)

    assert queue.release_due_packets(1.004) == b""
    assert queue.release_due_packets(1.005) == nfqueue.encode_accept_packets_up_to(3, 7)
    assert queue.next_due_s is None


def test_one_verdict_releases_all_packets_that_are_due() -> None:
    """A message per packet would cost as much as the packets."""
    queue = PacketDelayQueue(0, repeat(0.001))
    for packet in range(10):
        queue.add_packet(packet * 1e-4, packet)

    assert queue.release_due_packets(0.001 + 5e-4) == nfqueue.encode_accept_packets_up_to(0, 5)


@given(st.lists(st.floats(0, 0.01), min_size=2, max_size=50))
def test_jitter_keeps_the_order_of_packets(delays: list[float]) -> None:
    """TCP treats a reordered packet as a loss."""
    queue = PacketDelayQueue(0, iter(delays))

    for packet in range(len(delays)):
        queue.add_packet(packet * 1e-4, packet)

    due_times = [due for due, _ in queue._waiting_packets]
    assert due_times == sorted(due_times)


def test_a_lost_packet_is_dropped_at_once_and_delays_no_other() -> None:
    queue = PacketDelayQueue(2, repeat(0.005), (iter([True, False]),))

    assert queue.add_packet(0.0, 1) == nfqueue.encode_packet_verdict(2, 1, nfqueue.DROP)
    assert queue.add_packet(0.0, 2) == b""
    assert queue.next_due_s == 0.005


def test_new_settings_do_not_change_the_delay_of_waiting_packets() -> None:
    """When a link changes, waiting packets keep their release times and later packets don't overtake them."""
    queue = PacketDelayQueue(0, repeat(0.05))
    queue.add_packet(0.0, 1)

    queue.copy_settings_from(PacketDelayQueue(0, repeat(0.001)))
    queue.add_packet(0.01, 2)

    assert [due for due, _ in queue._waiting_packets] == [0.05, 0.05]


def test_the_same_seed_loses_the_same_packets() -> None:
    """The share of lost packets is the declared one."""
    spec = {"seed": "1 a b", "path": PATH | {"losses": [{"kind": "independent", "share": 0.1}]}}

    first, second = (make_packet_delay_queue(0, spec, 0.0) for _ in range(2))
    lost = [bool(first.add_packet(0.0, packet)) for packet in range(5000)]

    assert lost == [bool(second.add_packet(0.0, packet)) for packet in range(5000)]
    assert sum(lost) / 5000 == pytest.approx(0.1, rel=0.15)


def test_bursts_of_losses_follow_the_gilbert_elliott_model() -> None:
    """Two losses in a row are far more frequent than with independent losses."""
    law = {"kind": "gilbert_elliott", "to_bad": 0.01, "to_good": 0.25}
    queue = make_packet_delay_queue(0, {"seed": "1", "path": PATH | {"losses": [law]}}, 0.0)

    lost = [bool(queue.add_packet(0.0, packet)) for packet in range(20_000)]

    share = sum(lost) / len(lost)
    repeated = sum(before and now for before, now in pairwise(lost)) / sum(lost)
    assert share == pytest.approx(0.01 / 0.26, rel=0.2)
    assert repeated == pytest.approx(0.75, rel=0.1)


def test_a_verdict_has_the_byte_layout_of_the_kernel() -> None:
    """linux/netfilter/nfnetlink_queue.h: length, kind, flags; family, version, queue; attributes."""
    message = nfqueue.encode_packet_verdict(5, 0x01020304, nfqueue.DROP)

    assert message.hex() == "20000000010301000000000000000000000000050c0002000000000001020304"


def test_a_packet_message_contains_its_queue_and_packet_number() -> None:
    head = b"\x2c\0\0\0" + bytes([0, 3]) + b"\0" * 10 + b"\x02\0\x00\x07"

    assert nfqueue.parse_packet_message(head + b"\x0b\0\x01\0" + (258).to_bytes(4, "big") + b"\x08\0\x01\0") == (
        7,
        258,
    )


def test_a_kernel_error_is_raised_unless_the_packet_no_longer_exists() -> None:
    """A verdict may come too late for a packet of a device that was removed."""

    def error_message(code: int) -> bytes:
        return b"\x24\0\0\0\x02\0" + b"\0" * 10 + (-code).to_bytes(4, "little", signed=True)

    assert nfqueue.parse_packet_message(error_message(2)) is None
    with pytest.raises(PermissionError):
        nfqueue.parse_packet_message(error_message(1))
