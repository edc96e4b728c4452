"""Seeded delays, duplicates and reordering of single messages in the virtual network, and delays of calls."""

from collections.abc import Sequence
from random import Random

from pydantic import Field

from services.runtime.transport import Message
from services.scenario.run_settings import Share
from services.schema.component import FrozenRecord
from services.schema.units import Duration
from services.transport.virtual import MessageFaults


class MessageFaultSettings(FrozenRecord):
    """Shares of messages that are delayed or duplicated, and of calls that are delayed, in a fault schedule.

    Nodes call the coordinator, for example to send a heartbeat. A call and its reply are delayed independently.
    """

    seed: int = Field(description="seed of the drawn messages and delays")
    delayed: Share = Field(0.0, description="share of messages that arrive later than their links allow")
    longest_delay: Duration = Field(Duration("20ms"), description="longest extra delay; delays are uniform")
    duplicated: Share = Field(0.0, description="share of messages that arrive twice")
    keeps_order: bool = Field(
        default=True, description="whether messages between two nodes arrive in the order in which they were sent"
    )

    delayed_calls: Share = Field(0.0, description="share of calls and of replies that take time")
    # Heartbeats then arrive at most 11 ms apart; the shortest drawn heartbeat_timeout is 20 ms.
    longest_call_delay: Duration = Field(
        Duration("3ms"),
        description="longest delay of a call or of a reply; delays are uniform",
    )


class SeededMessageFaults(MessageFaults):
    """Disturbances drawn from the seed, in the order in which messages leave their links and calls are made."""

    def __init__(self, settings: MessageFaultSettings) -> None:
        self.keeps_order = settings.keeps_order
        self._settings = settings
        self._rng = Random(f"messages {settings.seed}")
        self._call_rng = Random(f"calls {settings.seed}")

    def draw_extra_delays(self, source: str, target: str, message: Message) -> Sequence[float]:  # noqa: ARG002 - all messages are alike
        copies = 1 + (self._rng.random() < self._settings.duplicated)
        return [self._draw_extra_delay_s() for _ in range(copies)]

    def draw_call_delay(self, node_name: str) -> float:  # noqa: ARG002 - all nodes are alike
        if self._call_rng.random() >= self._settings.delayed_calls:
            return 0.0
        return self._call_rng.uniform(0.0, self._settings.longest_call_delay)

    def _draw_extra_delay_s(self) -> float:
        if self._rng.random() >= self._settings.delayed:
            return 0.0
        return self._rng.uniform(0.0, self._settings.longest_delay)
