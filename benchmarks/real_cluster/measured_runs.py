"""Runs measured on the real cluster, read from `four_l40s.csv`. README.md states source, licence and columns."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

MEASURED_RUNS_FILE = Path(__file__).with_name("four_l40s.csv")


@dataclass(frozen=True)
class MeasuredRun:
    """One run on the real cluster. The names of the fields are the columns of the file; times are milliseconds."""

    algorithm: str
    period_steps: int  # local steps per exchange
    bandwidth: str  # of the limit on what a machine sends: 200m or 5g
    repeat: int
    nodes: int
    parameters: int
    steps: int  # counted, after warm-up
    exchanges: int  # among the counted steps
    compute_ms_plain_step: float | None  # None: every step exchanges
    compute_ms_exchange_step: float
    wall_ms_exchange_step: float
    blocked_ms_exchange: float
    mean_wall_ms_step: float

    @property
    def name(self) -> str:
        """Name of the run, such as "diloco H=8 at 5g, repeat 0"."""
        return f"{self.algorithm} H={self.period_steps} at {self.bandwidth}, repeat {self.repeat}"

    @property
    def compute_utilisation(self) -> float:
        """Mean compute time of a step / mean step time, from 0 to 1."""
        return self.mean_of_steps(self.compute_ms_plain_step, self.compute_ms_exchange_step) / self.mean_wall_ms_step

    @property
    def unexplained_ms(self) -> float:
        """Total time of the counted steps that median steps do not explain, for example one long exchange."""
        typical_ms = self.mean_of_steps(self.compute_ms_plain_step, self.wall_ms_exchange_step)
        return self.steps * (self.mean_wall_ms_step - typical_ms)

    def mean_of_steps(self, plain_step: float | None, exchange_step: float) -> float:
        """Return the mean of a time over the counted steps, given that of a plain step and of one with an exchange."""
        plain_steps = self.steps - self.exchanges
        return (plain_steps * (plain_step or 0.0) + self.exchanges * exchange_step) / self.steps


def read_measured_runs(path: Path = MEASURED_RUNS_FILE) -> list[MeasuredRun]:
    """Read all runs of a file."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_parse_run(row) for row in csv.DictReader(file)]


def plain_compute_s(runs: Iterable[MeasuredRun], algorithm: str) -> float:
    """Return the median compute time of a step without an exchange, in seconds.

    It is the only measurement that enters predictions: one machine alone shows it, before any exchange.
    """
    times = (run.compute_ms_plain_step for run in runs if run.algorithm == algorithm)
    return median(time_ms for time_ms in times if time_ms is not None) / 1e3


def _parse_run(row: dict[str, str]) -> MeasuredRun:
    plain_ms = row["compute_ms_plain_step"]
    return MeasuredRun(
        algorithm=row["algorithm"],
        period_steps=int(row["period_steps"]),
        bandwidth=row["bandwidth"],
        repeat=int(row["repeat"]),
        nodes=int(row["nodes"]),
        parameters=int(row["parameters"]),
        steps=int(row["steps"]),
        exchanges=int(row["exchanges"]),
        compute_ms_plain_step=float(plain_ms) if plain_ms else None,
        compute_ms_exchange_step=float(row["compute_ms_exchange_step"]),
        wall_ms_exchange_step=float(row["wall_ms_exchange_step"]),
        blocked_ms_exchange=float(row["blocked_ms_exchange"]),
        mean_wall_ms_step=float(row["mean_wall_ms_step"]),
    )
