"""Records of the fidelity benchmark: declared and achieved values, the limits of their error, and results of rows."""

from collections import Counter
from math import isclose
from statistics import median
from typing import Self

from benchmarks.fidelity.provenance import MeasurementOrigin
from services.schema.component import FrozenRecord


class FidelityGate(FrozenRecord):
    """Limits that a measurement has to meet. A limit of None is not checked."""

    median_off: float | None = None  # relative error of the median
    each_off: float | None = None  # relative error of every sample
    median_off_by: float | None = None  # absolute error of the median, in the unit of the measurement
    at_most: float | None = None  # largest median, in the unit of the measurement

    @property
    def has_limits(self) -> bool:
        """Whether the gate has any limit. Measurements without limits are only shown."""
        return any(limit is not None for _, limit in self)

    def format_limits(self, unit: str) -> str:
        """Return the limits as text, absolute limits with their unit: `median ±1%, each ±5%`, `at most 50 ms`."""
        limits = (
            ("median ±{:.0%}", self.median_off),
            ("each ±{:.0%}", self.each_off),
            (append_unit("median ±{:g}", unit), self.median_off_by),
            (append_unit("at most {:.4g}", unit), self.at_most),
        )
        return ", ".join(text.format(limit) for text, limit in limits if limit is not None) or "–"


class FidelityMeasurement(FrozenRecord):
    """Declared value and all measured samples, in `unit`, and what is known about the trials of the samples."""

    what: str
    unit: str  # empty for a ratio
    declared: float
    samples: tuple[float, ...]  # a trial that failed has no sample
    gate: FidelityGate
    trials: int = 0  # trials that were run for the samples; 0: the row runs no trials
    failed_trials: int = 0
    defects: tuple[str, ...] = ()  # why a trial failed or its verdict is not valid; one reason per such trial

    @property
    def median_achieved(self) -> float:
        """Median of the samples, of which there must be one."""
        return median(self.samples)

    @property
    def trial_text(self) -> str:
        """Number of valid trials and the reasons of the others, for example `2 of 3 valid: busy host`."""
        if not self.trials:
            return "–"
        counts = Counter(self.defects).items()
        reasons = "; ".join(f"{count}x {reason}" if count > 1 else reason for reason, count in counts)
        return f"{self.trials - len(self.defects)} of {self.trials} valid" + (f": {reasons}" if reasons else "")

    @property
    def relative_error(self) -> float | None:
        """Relative error of the median; None if the declared value is 0 or no trial succeeded."""
        return self.median_achieved / self.declared - 1 if self.declared and self.samples else None

    @property
    def is_within_gate(self) -> bool:
        """Whether no trial failed and the samples meet every limit of the gate."""
        if self.failed_trials or not self.samples:
            return False
        gate, median_error = self.gate, abs(self.median_achieved - self.declared)
        largest_error = max(abs(sample - self.declared) for sample in self.samples)
        return (
            (gate.median_off is None or _is_at_most(median_error, gate.median_off * self.declared))
            and (gate.each_off is None or _is_at_most(largest_error, gate.each_off * self.declared))
            and (gate.median_off_by is None or _is_at_most(median_error, gate.median_off_by))
            and (gate.at_most is None or _is_at_most(self.median_achieved, gate.at_most))
        )

    def round_samples(self, digits: int) -> Self:
        """Return the measurement with samples of as many significant digits."""
        return self.model_copy(update={"samples": tuple(float(f"{sample:.{digits}g}") for sample in self.samples)})


def append_unit(value_text: str, unit: str) -> str:
    """Return the text of a value with its unit, if the value has one."""
    return f"{value_text} {unit}" if unit else value_text


def _is_at_most(value: float, limit: float) -> bool:
    """Return whether a value meets its limit. Rounding errors of floats do not count: 1.05 is within 1 ± 5 %."""
    return value <= limit or isclose(value, limit)


class RowOutcome(FrozenRecord):
    """Measurements of a row, or the reason why the row failed."""

    row: str
    origin: MeasurementOrigin
    lines: tuple[FidelityMeasurement, ...] = ()
    failed: str = ""  # error message; empty if the row was measured
    wall_s: float = 0.0

    @property
    def is_within_gates(self) -> bool:
        """Whether the row was measured and all its measurements meet their gates."""
        return not self.failed and all(line.is_within_gate for line in self.lines)
