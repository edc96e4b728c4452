"""All rows of the fidelity benchmark by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from benchmarks.fidelity.pacing import paced_devices
from benchmarks.fidelity.row import FidelityMeasurement
from benchmarks.fidelity.rows import devices, links, runs
from benchmarks.fidelity.rows.collectives import MEGABYTE, TEN_MEGABYTES, make_collectives_row
from benchmarks.fidelity.rows.scenarios import FAST_RING, make_engine_comparison
from benchmarks.fidelity.trial_cases import TRIALS_PER_CASE
from compose.engines.containers.engine import DockerEngine

ROUNDS = 5  # samples of each measurement in containers that run no trial


class BenchRow(Protocol):
    """Subject that the benchmark measures, with a fixed number of samples."""

    def measure(self, engine: DockerEngine) -> list[FidelityMeasurement]:
        """Measure the row and return its measurements."""

    def estimate_wall_s(self, engine: DockerEngine) -> float:
        """Return the estimated wall seconds of measuring the row."""


@dataclass(frozen=True)
class ContainerRow:
    """Row that measures in containers and runs no trial."""

    measure_rounds: links.RowFunction
    wall_s: float  # measured on a host with two cores
    rounds: int = ROUNDS

    def measure(self, engine: DockerEngine) -> list[FidelityMeasurement]:
        """Measure all rounds of the row."""
        return self.measure_rounds(engine, self.rounds)

    def estimate_wall_s(self, engine: DockerEngine) -> float:  # noqa: ARG002 - the work does not depend on the host
        """Return the wall seconds that the row took when it was last timed."""
        return self.wall_s


BENCH_ROWS: Mapping[str, BenchRow] = {
    "uplinks": ContainerRow(links.measure_uplinks, 40),
    "downlinks": ContainerRow(links.measure_downlinks, 43),
    "messages": ContainerRow(links.measure_messages, 23),
    "incast": ContainerRow(links.measure_incast, 58),
    "racks": ContainerRow(links.measure_rack_uplink, 25),
    "pairs": ContainerRow(links.measure_pair_limit, 20),
    "round_trips": ContainerRow(links.measure_round_trips, 20),
    "loss": ContainerRow(links.measure_packet_loss, 35),
    "quotas": ContainerRow(devices.measure_cpu_quotas, 34),
    "paced": ContainerRow(paced_devices.measure_paced_workers, 99),
    "start": ContainerRow(runs.measure_start, 130, rounds=TRIALS_PER_CASE),
    "events": runs.EVENTS,
    "dilation": runs.DILATION,
    "staleness": runs.STALENESS,
    "engines_racks": make_engine_comparison("racks"),
    "engines_incast": make_engine_comparison("incast"),
    "engines_wan": make_engine_comparison("wan"),
    "fast_ring": FAST_RING,
    # One size for each rate: with both sizes, the whole benchmark would take more than two hours.
    "collectives_100mbit": make_collectives_row("100mbit", MEGABYTE),
    "collectives_1gbit": make_collectives_row("1gbit", TEN_MEGABYTES),
}
