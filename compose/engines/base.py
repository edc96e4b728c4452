"""Interface of an engine, which starts the nodes of a plan, and the records that an engine writes about a trial."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import Field

from services.cluster.addresses import AddressAllocator
from services.plan import Plan
from services.scenario.scenario import EngineName
from services.schema.component import FrozenRecord


class EventObserver(Protocol):
    """Observer that is notified of the events that the coordinator logs while a trial runs."""

    def event_logged(self, plan: Plan, event: Mapping[str, Any]) -> None:
        """Handle one event from the coordinator's log."""


class PreparationObserver(Protocol):
    """Observer that is notified when an engine starts a preparation, such as building an image."""

    def preparation_started(self, description: str) -> None:
        """Handle the start of a preparation, such as building an image."""


class ProbeMeasurement(FrozenRecord):
    """Declared value of a link property and the value measured by a probe before the run, both in virtual time."""

    declared: float
    achieved: float
    tries: tuple[float, ...] = ()  # all values in the order of measurement; for round trips, every echo of every try


class LinkRecord(FrozenRecord):
    """Record of how the link of one node, or of the network switch, was shaped, probed and monitored.

    Rates and times are virtual. A *limit* is a rate limit of a pair or a group of nodes, such as a rack's uplink.
    """

    rung: str  # mechanism that enforces rates: tc-htb, transport, fluid, none
    rungs: dict[str, str] = Field(default={})  # declared property (rate, delay, loss, partition, pipes) -> mechanism
    uplink_bps: float | None = None  # declared
    downlink_bps: float | None = None  # declared
    read_back_uplink_bps: float | None = None  # enforced according to the kernel
    read_back_downlink_bps: float | None = None  # enforced according to the kernel
    pipes_bps: dict[str, ProbeMeasurement] = Field(default={})  # limit -> declared rate, rate read back from the kernel
    achieved_pipes_bps: dict[str, float] = Field(default={})  # limit -> rate of a flood before the run
    achieved_uplink_bps: float | None = None  # rate of a flood before the run, headers included, as tc counts
    achieved_downlink_bps: float | None = None
    round_trip_s: dict[str, ProbeMeasurement] = Field(default={})  # peer -> echoes before the run
    message_s: dict[str, ProbeMeasurement] = Field(default={})  # peer -> time of one message of the workload's size
    flooded: dict[str, ProbeMeasurement] = Field(default={})  # uplink, downlink or limit -> rate expected and received
    unproven: dict[str, str] = Field(default={})  # uplink, downlink or limit -> reason why no flood was sent through it
    queues: dict[str, dict[str, int]] = Field(default={})  # network device -> counters of its queue during the run
    changed_meanwhile: tuple[str, ...] = ()  # differences, after the run, between the kernel and what Ensayo had set
    unread: str = ""  # reason why the link could not be read after the run
    details: dict[str, Any] = Field(default={})


class CpuThrottling(FrozenRecord):
    """Counters of how often the kernel stopped a container during a trial because its CPU quota was used up."""

    periods: int  # scheduling periods in which the node had something to run
    throttled_periods: int
    throttled_s: float  # wall seconds


class TrialOutcome(FrozenRecord):
    """Outcome of a trial as its engine reports it: the content of status.json."""

    trial: str
    engine: EngineName
    status: str  # success, failed, aborted
    reason: str = ""
    timings_s: dict[str, float] = Field(default={})  # wall seconds of the stages up, gate, run and down
    exit_codes: dict[str, int] = Field(default={})
    shaping: dict[str, LinkRecord] = Field(default={})
    throttling: dict[str, CpuThrottling] = Field(default={})  # nodes in containers
    kept: tuple[str, ...] = ()  # networks that the engine did not remove although they are empty
    host: dict[str, Any] = Field(default={})  # measurements of compose.host.host_metrics


class Engine(ABC):
    """A way to run the nodes of a trial on this host: as containers, as processes, or simulated in virtual time."""

    name: ClassVar[EngineName]

    @abstractmethod
    def missing_requirement(self) -> str | None:
        """Return a message about the software that the engine needs and this host lacks; None if the engine can run."""

    @abstractmethod
    def choose_addresses(self, run_name: str, node_count: int) -> AddressAllocator:
        """Return free addresses for the nodes of a run."""

    @abstractmethod
    def run_trial(self, plan: Plan, trial_folder: Path, observer: EventObserver) -> TrialOutcome:
        """Run one trial to its end, and stop all its nodes even after an error.

        Args:
            plan: made for this engine.
            trial_folder: receives the logs, `<trial_folder>/logs/<node>.log`.
            observer: receives the coordinator's events as they are logged.

        Raises:
            HostError: this host can't do what the plan requires.
        """

    def manifest_facts(self) -> dict[str, Any]:
        """Return facts about the engine for the run's manifest, such as versions and image digests."""
        return {}

    def prepare(self, observer: PreparationObserver) -> None:  # noqa: B027 - most engines have nothing to prepare
        """Prepare resources that all trials of a run share, such as container images."""

    def close(self) -> None:  # noqa: B027 - most engines keep nothing
        """Release the resources that `prepare` acquired."""
