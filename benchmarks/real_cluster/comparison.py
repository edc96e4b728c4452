"""Comparison of measured runs with their rehearsal, and sizes of the effects that the rehearsal leaves out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.real_cluster.measured_runs import MeasuredRun
from benchmarks.real_cluster.rehearsal import LINK_RATES, RehearsalCase, RehearsedTimes, case_of
from services.cluster.links.ethernet import FRAME_BYTES, PAYLOAD_BYTES
from services.schema.units import Rate

MAX_MEAN_ERRORS = {"200m": 0.10, "5g": 0.05}  # aims for the mean step time, by bandwidth
MIN_TYPICAL_EXCHANGES = 3  # of a run whose median exchange is not that of a single, possibly long exchange
BYTES_PER_PARAMETER = 4
JUMBO_FRAME_BYTES, JUMBO_PAYLOAD_BYTES = 9015, 8949  # MTU 9001, with Ethernet header; TCP with timestamps
BITS_PER_BYTE = 8


@dataclass(frozen=True)
class ComparedRun:
    """A measured run beside its rehearsal. Errors are rehearsed / measured - 1."""

    measured: MeasuredRun
    rehearsed: RehearsedTimes
    typical_exchange_step_ms: float  # median step with an exchange, of runs with several counted exchanges

    @property
    def mean_step_ms(self) -> float:
        """Rehearsed mean step time."""
        return self.rehearsed.mean_step_ms(self.measured)

    @property
    def mean_error(self) -> float:
        """Error of the mean step time."""
        return self.mean_step_ms / self.measured.mean_wall_ms_step - 1

    @property
    def exchange_error(self) -> float:
        """Error of the time that an exchange blocks."""
        return self.rehearsed.blocked_ms_exchange / self.measured.blocked_ms_exchange - 1

    @property
    def typical_error(self) -> float:
        """Error against the mean over typical steps, without single long exchanges such as the first one."""
        plain_ms = self.measured.compute_ms_plain_step
        return self.mean_step_ms / self.measured.mean_of_steps(plain_ms, self.typical_exchange_step_ms) - 1

    @property
    def compute_utilisation(self) -> float:
        """Rehearsed compute utilisation."""
        return self.rehearsed.compute_utilisation(self.measured)

    @property
    def meets_aim(self) -> bool:
        """Whether the error of the mean step time is within the aim for the bandwidth."""
        return abs(self.mean_error) <= MAX_MEAN_ERRORS[self.measured.bandwidth]


def compare_runs(
    runs: Sequence[MeasuredRun], times_by_case: Mapping[RehearsalCase, RehearsedTimes]
) -> list[ComparedRun]:
    """Return the measured runs whose cases were rehearsed, each beside its rehearsal."""
    return [
        ComparedRun(run, times_by_case[case_of(run)], _typical_exchange_step_ms(run, runs))
        for run in runs
        if case_of(run) in times_by_case
    ]


def find_changed_orders(rows: Sequence[ComparedRun]) -> list[tuple[ComparedRun, ComparedRun]]:
    """Return pairs of runs of one algorithm that the rehearsal puts in the opposite order of mean step times.

    Repeats of one case are not compared: the rehearsal does not distinguish them.
    """
    return [
        (first, second)
        for number, first in enumerate(rows)
        for second in rows[number + 1 :]
        if first.measured.algorithm == second.measured.algorithm
        and case_of(first.measured) != case_of(second.measured)
        and (first.measured.mean_wall_ms_step < second.measured.mean_wall_ms_step)
        != (first.mean_step_ms < second.mean_step_ms)
    ]


def sent_bytes_per_exchange(run: MeasuredRun) -> float:
    """Return the payload bytes that each machine sends in a ring all-reduce of the parameters."""
    return 2 * (run.nodes - 1) / run.nodes * run.parameters * BYTES_PER_PARAMETER


def achieved_rate_share(run: MeasuredRun) -> float:
    """Return the payload rate of an exchange as a share of the limited rate, if it transfers all the blocked time."""
    payload_bps = BITS_PER_BYTE * sent_bytes_per_exchange(run) / (run.blocked_ms_exchange / 1e3)
    return payload_bps / limited_rate_bps(run.bandwidth)


def limited_rate_bps(bandwidth: str) -> float:
    """Return the limit of a bandwidth in the file, such as 5e9 for 5g, in bit/s."""
    return float(Rate(LINK_RATES[bandwidth]))


def jumbo_frame_factor() -> float:
    """Return the factor on exchange times if packets have an MTU of 9001 bytes instead of 1500."""
    return (PAYLOAD_BYTES / FRAME_BYTES) / (JUMBO_PAYLOAD_BYTES / JUMBO_FRAME_BYTES)


def constant_time_of_exchange_s(runs: Iterable[MeasuredRun]) -> float:
    """Return the time a of an exchange if it takes a + b / rate, from the median blocked times at both rates.

    Runs with a single counted exchange are left out.
    """
    times_s = {
        bandwidth: median(
            run.blocked_ms_exchange / 1e3
            for run in runs
            if run.bandwidth == bandwidth and run.exchanges >= MIN_TYPICAL_EXCHANGES
        )
        for bandwidth in LINK_RATES
    }
    (slow_bps, slow_s), (fast_bps, fast_s) = sorted(
        (limited_rate_bps(name), seconds) for name, seconds in times_s.items()
    )
    return (fast_s * fast_bps - slow_s * slow_bps) / (fast_bps - slow_bps)


def _typical_exchange_step_ms(run: MeasuredRun, runs: Iterable[MeasuredRun]) -> float:
    """Return the median step with an exchange of a run, or that of others if the run counts too few exchanges.

    The others are runs of the same algorithm, bandwidth and repeat.
    """
    if run.exchanges >= MIN_TYPICAL_EXCHANGES:
        return run.wall_ms_exchange_step
    return median(
        other.wall_ms_exchange_step
        for other in runs
        if (other.algorithm, other.bandwidth, other.repeat) == (run.algorithm, run.bandwidth, run.repeat)
        and other.exchanges >= MIN_TYPICAL_EXCHANGES
    )
