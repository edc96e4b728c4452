"""Outcome of a trial: the records in the file status.json.

An engine writes the records, and the analysis reads them.
"""

from typing import Any

from pydantic import Field
from typing_extensions import TypedDict

from services.scenario.run_settings import EngineName
from services.schema.component import FrozenRecord


class MeasuredLinkValue(FrozenRecord):
    """Declared and measured value of a link's rate or delay.

    The value is measured before the run; both values are in the cluster's virtual time.
    """

    declared: float
    achieved: float
    tries: tuple[float, ...] = ()  # all values in the order of measurement; for round trips, every echo of every try


class LinkShapingRecord(FrozenRecord):
    """Record of the shaping, probes and monitoring of emulated links.

    The links are one node's link, or the shared links in the network switch. Rates and times are virtual. A *limit* is
    a rate limit of a pair or a group of nodes, such as a rack's uplink.
    """

    rung: str  # mechanism that enforces rates: tc-htb, transport, fluid, none
    rungs: dict[str, str] = Field(default={})  # declared property (rate, delay, loss, partition, pipes) -> mechanism
    uplink_bps: float | None = None  # declared
    downlink_bps: float | None = None  # declared
    read_back_uplink_bps: float | None = None  # enforced according to the kernel
    read_back_downlink_bps: float | None = None  # enforced according to the kernel
    # limit -> declared rate, rate read back from the kernel
    pipes_bps: dict[str, MeasuredLinkValue] = Field(default={})
    achieved_pipes_bps: dict[str, float] = Field(default={})  # limit -> rate of a flood before the run
    achieved_uplink_bps: float | None = None  # rate of a flood before the run, headers included, as tc counts
    achieved_downlink_bps: float | None = None
    round_trip_s: dict[str, MeasuredLinkValue] = Field(default={})  # peer -> echoes before the run
    message_s: dict[str, MeasuredLinkValue] = Field(default={})  # peer -> time of one message of the workload's size
    flooded: dict[str, MeasuredLinkValue] = Field(default={})  # uplink, downlink or limit -> rate expected and received
    unproven: dict[str, str] = Field(default={})  # uplink, downlink or limit -> reason why no flood was sent through it
    queues: dict[str, dict[str, int]] = Field(default={})  # network device -> counters of its queue during the run
    changed_meanwhile: tuple[str, ...] = ()  # differences, after the run, between the kernel and what Ensayo had set
    unread: str = ""  # reason why the link could not be read after the run
    details: dict[str, Any] = Field(default={})


class CpuThrottleCounts(FrozenRecord):
    """Counts of how often the kernel stopped a node during a trial because its CPU quota was used up."""

    periods: int  # scheduling periods in which the node had something to run
    throttled_periods: int
    throttled_s: float  # wall seconds


class HostMetrics(TypedDict, total=False):
    """Load of the host (CPU, pressure, timer lateness) while a trial ran.

    Values that were not recorded are missing.
    """

    cpu_busy: float | None  # busy share of the cores
    cpu_steal: float | None  # share of the cores that the hypervisor gave to other machines
    pressure: dict[str, float]  # resource -> share of time in which processes waited for it
    canary_late_ms: dict[str, float]  # p50, p99, max of the lateness of a sleeping thread, in wall ms


class TrialOutcome(FrozenRecord):
    """Outcome of a trial as its engine reports it: the content of status.json."""

    trial: str
    engine: EngineName
    status: str  # success, failed, aborted
    reason: str = ""
    disturbance: str = ""  # how the host disturbed the trial, for example with missed deadlines; empty: not at all
    timings_s: dict[str, float] = Field(
        default={}
    )  # wall seconds of the stages up, gate, run and down; `probe` is a part of `gate`
    exit_codes: dict[str, int] = Field(default={})
    shaping: dict[str, LinkShapingRecord] = Field(default={})
    throttling: dict[str, CpuThrottleCounts] = Field(default={})  # nodes in containers
    kept: tuple[str, ...] = ()  # networks that the engine did not remove although they are empty
    host: HostMetrics = Field(default=HostMetrics())
