"""The delay line decides when which packet goes on; the kernel's messages are what it decides by."""

from itertools import pairwise, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.shaper import nfqueue
from services.shaper.delay_line import PacketDelayQueue, make_delay_queue

PATH = {"source": "a", "target": "b", "delay_s": 0.005, "jitters": [], "losses": []}


def test_a_packet_goes_on_when_its_time_has_come_and_not_before() -> None:
    queue = PacketDelayQueue(3, repeat(0.005))

    queue.add_packet(1.0, 7)

    assert queue.release_due_packets(1.004) == b""
    assert queue.release_due_packets(1.005) == nfqueue.encode_accept_up_to_packet(3, 7)
    assert queue.next_due_s is None


def test_one_verdict_lets_all_go_that_are_due() -> None:
    """A message per packet would cost as much as the packets."""
    queue = PacketDelayQueue(0, repeat(0.001))
    for packet in range(10):
        queue.add_packet(packet * 1e-4, packet)

    assert queue.release_due_packets(0.001 + 5e-4) == nfqueue.encode_accept_up_to_packet(0, 5)


@given(st.lists(st.floats(0, 0.01), min_size=2, max_size=50))
def test_jitter_keeps_the_order(delays: list[float]) -> None:
    """TCP would take a packet that overtakes another for a loss."""
    queue = PacketDelayQueue(0, iter(delays))

    for packet in range(len(delays)):
        queue.add_packet(packet * 1e-4, packet)

    times = [due for due, _ in queue._waiting_packets]
    assert times == sorted(times)


def test_a_lost_packet_is_decided_at_once_and_waits_for_nobody() -> None:
    queue = PacketDelayQueue(2, repeat(0.005), (iter([True, False]),))

    assert queue.add_packet(0.0, 1) == nfqueue.encode_packet_verdict(2, 1, nfqueue.DROP)
    assert queue.add_packet(0.0, 2) == b""
    assert queue.next_due_s == 0.005


def test_new_laws_leave_the_packets_that_wait_as_they_are() -> None:
    """What is under way stays under way when a link changes; and nothing overtakes it."""
    queue = PacketDelayQueue(0, repeat(0.05))
    queue.add_packet(0.0, 1)

    queue.copy_settings_from(PacketDelayQueue(0, repeat(0.001)))
    queue.add_packet(0.01, 2)

    assert [due for due, _ in queue._waiting_packets] == [0.05, 0.05]


def test_the_same_seed_loses_the_same_packets() -> None:
    """And as many as declared."""
    spec = {"seed": "1 a b", "path": PATH | {"losses": [{"kind": "independent", "share": 0.1}]}}

    one, other = (make_delay_queue(0, spec, 0.0) for _ in range(2))
    lost = [bool(one.add_packet(0.0, packet)) for packet in range(5000)]

    assert lost == [bool(other.add_packet(0.0, packet)) for packet in range(5000)]
    assert sum(lost) / 5000 == pytest.approx(0.1, rel=0.15)


def test_bursts_of_losses_follow_their_law() -> None:
    """Two losses in a row are far more frequent than by chance."""
    law = {"kind": "gilbert_elliott", "to_bad": 0.01, "to_good": 0.25}
    queue = make_delay_queue(0, {"seed": "1", "path": PATH | {"losses": [law]}}, 0.0)

    lost = [bool(queue.add_packet(0.0, packet)) for packet in range(20_000)]

    share = sum(lost) / len(lost)
    pairs = sum(a and b for a, b in pairwise(lost)) / sum(lost)
    assert share == pytest.approx(0.01 / 0.26, rel=0.2)
    assert pairs == pytest.approx(0.75, rel=0.1)


def test_messages_are_the_kernels() -> None:
    """linux/netfilter/nfnetlink_queue.h: length, kind, flags; family, version, queue; attributes."""
    message = nfqueue.encode_packet_verdict(5, 0x01020304, nfqueue.DROP)

    assert message.hex() == "20000000010301000000000000000000000000050c0002000000000001020304"


def test_a_message_about_a_packet_tells_its_queue_and_number() -> None:
    head = b"\x2c\0\0\0" + bytes([0, 3]) + b"\0" * 10 + b"\x02\0\x00\x07"

    assert nfqueue.parse_packet_message(head + b"\x0b\0\x01\0" + (258).to_bytes(4, "big") + b"\x08\0\x01\0") == (7, 258)


def test_an_error_of_the_kernel_is_raised_unless_its_packet_is_gone() -> None:
    """A verdict may come too late for a packet of a device that was removed."""

    def error(code: int) -> bytes:
        return b"\x24\0\0\0\x02\0" + b"\0" * 10 + (-code).to_bytes(4, "little", signed=True)

    assert nfqueue.parse_packet_message(error(2)) is None
    with pytest.raises(PermissionError):
        nfqueue.parse_packet_message(error(1))
