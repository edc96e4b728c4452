"""How are packets delayed and lost where the kernel has no netem? Each waits in a queue of the kernel for our verdict.

One queue per source, so that each path has its own delay and its own laws, and packets of a path keep their order. A
packet is as large as TCP made it: where losses are declared, senders hand over single packets (`compose.shaping`).
The process dies with its input; packets of a queue without an owner are dropped, never let through early.
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

RECEIVED_AT_ONCE = 256
CALIBRATION_SLEEPS, CALIBRATION_SLEEP_S = 25, 0.001


@dataclass
class Queue:
    """The packets of one path; a machine: time is an argument, verdicts are returned."""

    number: int
    delays: Iterator[float]  # wall seconds
    losses: tuple[Iterator[bool], ...] = ()
    early_s: float = 0.0  # how much sooner to wake up, since sleepers oversleep
    told: dict[str, Any] = field(default_factory=dict)  # its description
    _waiting: deque[tuple[float, int]] = field(default_factory=deque)
    _last: float = 0.0

    def arrive(self, now: float, packet: int) -> bytes:
        """A packet has come; the verdict on it if it is lost, else nothing."""
        lost = [next(law) for law in self.losses]  # all of them: a law's state must not depend on the others
        if any(lost):
            return nfqueue.verdict(self.number, packet, nfqueue.DROP)
        self._last = max(self._last, now + next(self.delays) - self.early_s)
        self._waiting.append((self._last, packet))
        return b""

    def due(self, now: float) -> bytes:
        """The verdict on all packets whose time has come, or nothing."""
        last = None
        while self._waiting and self._waiting[0][0] <= now:
            last = self._waiting.popleft()[1]
        return b"" if last is None else nfqueue.verdicts_up_to(self.number, last)

    @property
    def next_at(self) -> float | None:
        """When the next packet is due."""
        return self._waiting[0][0] if self._waiting else None

    def change(self, other: "Queue") -> None:
        """Take over the laws of another queue; packets that wait keep their times."""
        self.delays, self.losses, self.told = other.delays, other.losses, other.told


def queue_of(number: int, spec: dict[str, Any], early_s: float) -> Queue:
    """A queue from its description: a path (`services.cluster.network.Path`) and a seed."""
    if not spec["path"]["jitters"] and not spec["path"]["losses"]:
        return Queue(number, repeat(float(spec["path"]["delay_s"])), early_s=early_s, told=spec)
    from services.cluster.network import Path  # noqa: PLC0415 - a third of a second, which most delay lines need not spend

    path = Path.model_validate(spec["path"])
    losses = tuple(law.losses(Random(f"{spec['seed']} loss {k}")) for k, law in enumerate(path.losses))
    return Queue(number, path.delays(Random(f"{spec['seed']} delay")), losses, early_s, spec)


def main() -> int:
    """Serve the queues that standard input names; each line may add some or change some, or ask what some do."""
    reduce_wakeup_latency()
    early_s, link = _overslept_s(), nfqueue.connect()
    queues: dict[int, Queue] = {}
    pending = b""
    while True:
        wait_s = _until_next(queues)
        ready, _, _ = select.select([link.fileno(), 0], [], [], wait_s)
        now = time.monotonic()
        if link.fileno() in ready:
            _receive(link, queues, now)
        if verdicts := b"".join(queue.due(time.monotonic()) for queue in queues.values()):
            link.send(verdicts)
        if 0 in ready:
            pending += (read := os.read(0, 1 << 16))
            if not read:
                return 0
            *lines, pending = pending.split(b"\n")
            for line in lines:
                _heed(link, queues, json.loads(line), early_s)


def _until_next(queues: dict[int, Queue]) -> float | None:
    due = [queue.next_at for queue in queues.values() if queue.next_at is not None]
    return max(0.0, min(due) - time.monotonic()) if due else None


def _receive(link: Any, queues: dict[int, Queue], now: float) -> None:
    """Read some of what has come; not all, or what is due would wait."""
    lost = []
    for _ in range(RECEIVED_AT_ONCE):
        try:
            message = link.recv(4096, 0x40)  # MSG_DONTWAIT
        except BlockingIOError:
            break
        if found := nfqueue.packet(message):
            lost.append(queues[found[0]].arrive(now, found[1]))
    if verdicts := b"".join(lost):
        link.send(verdicts)


def _heed(link: Any, queues: dict[int, Queue], said: dict[str, Any] | list[str], early_s: float) -> None:
    """A line: descriptions of queues, or numbers of those whose descriptions are asked for."""
    if isinstance(said, dict):
        _take(link, queues, said, early_s)
        answer = {}
    else:
        answer = {key: queues[int(key)].told for key in said if int(key) in queues}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _take(link: Any, queues: dict[int, Queue], specs: dict[str, Any], early_s: float) -> None:
    """Bind new queues, change the laws of others."""
    for key, spec in specs.items():
        number = int(key)
        queue = queue_of(number, spec, early_s)
        if number in queues:
            queues[number].change(queue)
        else:
            queues[number] = queue
            link.send(nfqueue.bind(number))


def _overslept_s() -> float:
    """By how much this process wakes up too late at least: on a host that is busy just now, most sleeps say nothing."""
    late = []
    for _ in range(CALIBRATION_SLEEPS):
        started = time.monotonic()
        select.select([], [], [], CALIBRATION_SLEEP_S)
        late.append(time.monotonic() - started - CALIBRATION_SLEEP_S)
    return min(late)


if __name__ == "__main__":
    sys.exit(main())
