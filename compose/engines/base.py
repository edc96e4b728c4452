"""The contract of an engine: it turns a plan into running nodes and a filled trial folder."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import Field

from services.cluster.addresses import Addressing
from services.plan import Plan
from services.scenario.scenario import EngineName
from services.schema.component import Record


class Watcher(Protocol):
    """Whoever looks on while a trial runs."""

    def event(self, plan: Plan, event: Mapping[str, Any]) -> None:
        """The coordinator has logged something."""


class Measured(Record):
    """Something that was declared, and what a probe before the run has found; virtual units."""

    declared: float
    achieved: float
    tries: tuple[float, ...] = ()  # all that were made, in their order; of round trips, all echoes of all tries


class Shaped(Record):
    """What is known of one node's link; the switch between racks or regions has an entry, too."""

    rung: str  # of the ladder, for rates: tc-htb, transport, fluid, none
    rungs: dict[str, str] = Field(default={})  # property (rate, delay, loss, partition) -> rung, where it is declared
    uplink_bps: float | None = None  # declared, virtual
    downlink_bps: float | None = None
    read_back_uplink_bps: float | None = None  # what the kernel says it enforces, virtual
    read_back_downlink_bps: float | None = None
    pipes_bps: dict[str, Measured] = Field(default={})  # limits of pairs and groups; achieved: as read back
    achieved_pipes_bps: dict[str, float] = Field(default={})  # of floods before the run, as for links
    achieved_uplink_bps: float | None = None  # of a flood before the run, in frames as tc counts, virtual
    achieved_downlink_bps: float | None = None
    round_trip_s: dict[str, Measured] = Field(default={})  # peer -> echoes before the run
    message_s: dict[str, Measured] = Field(default={})  # peer -> one message of the workload's size
    flooded: dict[str, Measured] = Field(default={})  # uplink, downlink, limit -> what senders could bring, what came
    unproven: dict[str, str] = Field(default={})  # uplink, downlink, limit -> why no flood was sent through it
    queues: dict[str, dict[str, int]] = Field(default={})  # device -> what its queue has counted during the run
    changed_meanwhile: tuple[str, ...] = ()  # what the kernel had after the run that nobody had told it
    unread: str = ""  # why nobody knows that
    details: dict[str, Any] = Field(default={})


class Throttling(Record):
    """How often the kernel held a node back for its CPU quota, while the trial ran."""

    periods: int  # scheduling periods in which it wanted to run
    throttled_periods: int
    throttled_s: float  # wall seconds


class Status(Record):
    """How a trial went, as far as its engine can tell."""

    trial: str
    engine: EngineName
    status: str  # success, failed, aborted
    reason: str = ""
    timings_s: dict[str, float] = Field(default={})  # wall seconds: up, gate, run, down
    exit_codes: dict[str, int] = Field(default={})
    shaping: dict[str, Shaped] = Field(default={})
    throttling: dict[str, Throttling] = Field(default={})  # nodes in containers
    kept: tuple[str, ...] = ()  # networks that the engine does not let go of, though nothing is in them
    host: dict[str, Any] = Field(default={})  # what compose.host.host_metrics has seen


class Engine(ABC):
    """A way to run trials on this host."""

    name: ClassVar[EngineName]

    @abstractmethod
    def missing(self) -> str | None:
        """What this host lacks for it; None when it can run."""

    @abstractmethod
    def addressing(self, run: str, nodes: int) -> Addressing:
        """Addresses for `nodes` nodes of a run."""

    @abstractmethod
    def run(self, plan: Plan, folder: Path, watch: Watcher) -> Status:
        """Run one trial to its end; leaves nothing running, whatever happens.

        Args:
            plan: of this engine.
            folder: the trial's; logs go to `<folder>/logs/<node>.log`.
            watch: is told what the coordinator logs, as it does.

        Raises:
            HostError: the host could not do what the plan asks.
        """

    def facts(self) -> dict[str, Any]:
        """What a reader of the record should know of it: versions, image digests."""
        return {}

    def prepare(self, watch: "Preparing") -> None:  # noqa: B027 - most engines have nothing to prepare
        """Make ready what all trials of a run need."""

    def close(self) -> None:  # noqa: B027 - most engines keep nothing
        """Give back what `prepare` took."""


class Preparing(Protocol):
    """Whoever looks on while an engine prepares."""

    def preparing(self, what: str) -> None:
        """Something is being built."""
