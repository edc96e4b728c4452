"""Faults of messages in the virtual network, drawn from a seed: delays, reordering and duplicates."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from services.runtime.transport import Message
from services.transport import virtual
from services.transport.mailbox import Mailbox

# Several steps of 2 ms, so that messages of consecutive steps overtake each other, but fewer than mailboxes remember.
MEAN_DELAY_S, MAX_DELAY_S = 0.005, 0.02
MEAN_REPETITION_S = 0.01
DELAYED_SHARE = 0.3
DUPLICATED_SHARE = 0.3


@dataclass
class MessageFaults:
    """Faults that the mailboxes of one trial have received, and the seed that they are drawn from."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)  # of delayed, overtaken and repeated messages
    accepts_duplicates: bool = False  # a planted error: a repeated message counts as the message of the next step
    _mailbox_count: int = 0

    def make_mailbox(self, timeout_s: float) -> Mailbox:
        """Return a mailbox that receives messages late, out of order and more than once."""
        self._mailbox_count += 1
        return _FaultyMailbox(timeout_s, self, Random(f"{self.seed} mailbox {self._mailbox_count}"))


class _FaultyMailbox(Mailbox):
    """Mailbox of a network that delays, reorders and repeats messages."""

    def __init__(self, timeout_s: float, faults: MessageFaults, rng: Random) -> None:
        super().__init__(timeout_s)
        self._faults = faults
        self._rng = rng
        self._newest_due_s = 0.0

    def deliver_at(self, loop_time_s: float, source: str, message: Message) -> None:
        """Deliver a message late, or twice, and maybe after later messages of the same sender."""
        is_delayed = self._rng.random() < DELAYED_SHARE
        due_s = loop_time_s + is_delayed * min(self._rng.expovariate(1 / MEAN_DELAY_S), MAX_DELAY_S)
        self._faults.counts["delayed"] += is_delayed
        self._faults.counts["overtaken"] += due_s < self._newest_due_s
        self._newest_due_s = max(self._newest_due_s, due_s)
        loop = asyncio.get_running_loop()
        loop.call_at(due_s, self.deliver, source, message)
        if self._rng.random() < DUPLICATED_SHARE:
            self._faults.counts["repeated"] += 1
            loop.call_at(due_s + self._rng.expovariate(1 / MEAN_REPETITION_S), self._repeat, source, message)

    def _repeat(self, source: str, message: Message) -> None:
        if self._faults.accepts_duplicates:
            message = message._replace(tag=message.tag._replace(step=message.tag.step + 1))
        self.deliver(source, message)


def inject_message_faults(
    monkeypatch: pytest.MonkeyPatch, seed: int, *, accepts_duplicates: bool = False
) -> MessageFaults:
    """Give the mailboxes of all later trials faults until the end of the test, and return the record of the faults."""
    faults = MessageFaults(seed, accepts_duplicates=accepts_duplicates)
    monkeypatch.setattr(virtual, "Mailbox", faults.make_mailbox)
    return faults
