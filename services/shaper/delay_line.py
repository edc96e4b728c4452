"""Delay line: a process that delays and drops packets on hosts whose kernel has no netem.

Packets wait in queues of the kernel until this process sends a verdict: accept or drop. There is one queue per source,
so that each path has its own delay and losses, and packets of a path keep their order. A packet is as large as TCP made
it; where losses are declared, senders pass on single packets (`compose.shaping`). The process ends with its input.
Packets of a queue without an owner are dropped, never accepted early.
"""

import json
import os
import select
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from random import Random
from typing import Any

from services.runtime.scheduling import reduce_wakeup_latency
from services.shaper import nfqueue

MAX_RECEIVED_AT_ONCE = 256
CALIBRATION_SLEEPS, CALIBRATION_SLEEP_S = 25, 0.001


@dataclass
class PacketDelayQueue:
    """Queue of delayed packets on one network path.

    Methods return verdicts (orders to the kernel) as encoded messages.
    """

    number: int
    delays_s: Iterator[float]  # delay of each packet, in wall seconds
    loss_draws: tuple[Iterator[bool], ...] = ()  # per loss model: whether each packet is lost
    wake_early_s: float = 0.0  # subtracted from each delay, because sleeps end late
    description: dict[str, Any] = field(default_factory=dict)  # path and seed, as in the request
    _waiting_packets: deque[tuple[float, int]] = field(default_factory=deque)  # due time and packet number
    _last_due_s: float = 0.0

    def add_packet(self, now_s: float, packet_number: int) -> bytes:
        """Add an arrived packet to this queue.

        If the packet is lost, return a message by which the kernel drops it, else no bytes.
        """
        losses = [next(draws) for draws in self.loss_draws]  # of all models: their states must not depend on each other
        if any(losses):
            return nfqueue.encode_packet_verdict(self.number, packet_number, nfqueue.DROP)
        self._last_due_s = max(self._last_due_s, now_s + next(self.delays_s) - self.wake_early_s)
        self._waiting_packets.append((self._last_due_s, packet_number))
        return b""

    def release_due_packets(self, now_s: float) -> bytes:
        """Remove all due packets from this queue, and return a message that accepts them.

        The message makes the kernel accept the packets. It is empty if no packet is due.
        """
        last_packet = None
        while self._waiting_packets and self._waiting_packets[0][0] <= now_s:
            last_packet = self._waiting_packets.popleft()[1]
        return b"" if last_packet is None else nfqueue.encode_accept_packets_up_to(self.number, last_packet)

    @property
    def next_due_s(self) -> float | None:
        """Time at which the next packet must be released.

        None if no packet waits.
        """
        return self._waiting_packets[0][0] if self._waiting_packets else None

    def copy_settings_from(self, queue: "PacketDelayQueue") -> None:
        """Copy the delay and loss settings of another queue.

        Packets that already wait keep their due times.
        """
        self.delays_s, self.loss_draws, self.description = queue.delays_s, queue.loss_draws, queue.description


def make_packet_delay_queue(queue_number: int, queue_settings: dict[str, Any], wake_early_s: float) -> PacketDelayQueue:
    """Return a packet queue with the delay and loss that `queue_settings` describes.

    `queue_settings` consists of a `NetworkPath` and a seed.
    """
    if not queue_settings["path"]["jitters"] and not queue_settings["path"]["losses"]:
        delay_s = float(queue_settings["path"]["delay_s"])
        return PacketDelayQueue(queue_number, repeat(delay_s), wake_early_s=wake_early_s, description=queue_settings)
    from services.cluster.network import NetworkPath  # noqa: PLC0415 - a third of a second that most delay lines can save

    path, seed = NetworkPath.model_validate(queue_settings["path"]), queue_settings["seed"]
    loss_draws = tuple(loss.iter_packet_losses(Random(f"{seed} loss {k}")) for k, loss in enumerate(path.losses))
    return PacketDelayQueue(
        queue_number, path.iter_one_way_delays_s(Random(f"{seed} delay")), loss_draws, wake_early_s, queue_settings
    )


def main() -> int:
    """Delay packets until standard input ends.

    Input lines add queues, change queues or request their settings.
    """
    reduce_wakeup_latency()
    wake_early_s, netlink = _measure_sleep_overrun_s(), nfqueue.open_netlink_socket()
    queues: dict[int, PacketDelayQueue] = {}
    unfinished_line = b""
    while True:
        wait_s = _seconds_to_next_packet(queues)
        ready, _, _ = select.select([netlink.fileno(), 0], [], [], wait_s)
        now_s = time.monotonic()
        if netlink.fileno() in ready:
            _receive_packets(netlink, queues, now_s)
        if verdicts := b"".join(queue.release_due_packets(time.monotonic()) for queue in queues.values()):
            netlink.send(verdicts)
        if 0 in ready:
            unfinished_line += (read := os.read(0, 1 << 16))
            if not read:
                return 0
            *lines, unfinished_line = unfinished_line.split(b"\n")
            for line in lines:
                _handle_settings_request(netlink, queues, json.loads(line), wake_early_s)


def _seconds_to_next_packet(delay_queues: dict[int, PacketDelayQueue]) -> float | None:
    due_times_s = [queue.next_due_s for queue in delay_queues.values() if queue.next_due_s is not None]
    return max(0.0, min(due_times_s) - time.monotonic()) if due_times_s else None


def _receive_packets(netlink_socket: Any, delay_queues: dict[int, PacketDelayQueue], now_s: float) -> None:
    """Read at most `MAX_RECEIVED_AT_ONCE` arrived packets.

    The limit ensures that reading does not hold up packets that are due.
    """
    drop_verdicts = []
    for _ in range(MAX_RECEIVED_AT_ONCE):
        try:
            message = netlink_socket.recv(4096, 0x40)  # MSG_DONTWAIT
        except BlockingIOError:
            break
        if packet := nfqueue.parse_packet_message(message):
            queue_number, packet_number = packet
            drop_verdicts.append(delay_queues[queue_number].add_packet(now_s, packet_number))
    if verdicts := b"".join(drop_verdicts):
        netlink_socket.send(verdicts)


def _handle_settings_request(
    netlink_socket: Any,
    delay_queues: dict[int, PacketDelayQueue],
    settings_or_numbers: dict[str, Any] | list[str],
    wake_early_s: float,
) -> None:
    """Handle one line of input: new settings of packet queues, or a request for settings.

    A mapping of queue numbers to settings sets up queues. A list requests descriptions of queues.
    """
    if isinstance(settings_or_numbers, dict):
        _set_up_delay_queues(netlink_socket, delay_queues, settings_or_numbers, wake_early_s)
        response = {}
    else:
        response = {key: delay_queues[int(key)].description for key in settings_or_numbers if int(key) in delay_queues}
    sys.stdout.write(json.dumps(response) + "\n")
    sys.stdout.flush()


def _set_up_delay_queues(
    netlink_socket: Any,
    delay_queues: dict[int, PacketDelayQueue],
    settings_by_queue: dict[str, Any],
    wake_early_s: float,
) -> None:
    """Create packet queues, or change the settings of existing queues.

    `settings_by_queue` maps queue number to settings.
    """
    for key, settings in settings_by_queue.items():
        number = int(key)
        queue = make_packet_delay_queue(number, settings, wake_early_s)
        if number in delay_queues:
            delay_queues[number].copy_settings_from(queue)
        else:
            delay_queues[number] = queue
            netlink_socket.send(nfqueue.encode_queue_binding(number))


def _measure_sleep_overrun_s() -> float:
    """Return the delay, in seconds, with which this process wakes up from a sleep.

    The result is the least delay of several sleeps, because most sleeps on a busy host measure the load of the host.
    """
    late_s = []
    for _ in range(CALIBRATION_SLEEPS):
        started_s = time.monotonic()
        select.select([], [], [], CALIBRATION_SLEEP_S)
        late_s.append(time.monotonic() - started_s - CALIBRATION_SLEEP_S)
    return min(late_s)


if __name__ == "__main__":
    sys.exit(main())
