"""One line of the table: what was declared, what was achieved, and whether that is close enough."""

from statistics import median

from benchmarks.fidelity.provenance import Origin
from services.schema.component import FrozenRecord


class Gate(FrozenRecord):
    """What has to hold; what is None is not asked."""

    median_off: float | None = None  # relative error of the median
    each_off: float | None = None  # relative error of every sample
    median_off_by: float | None = None  # absolute error of the median, in the line's unit
    at_most: float | None = None  # the median, in the line's unit

    @property
    def asks(self) -> bool:
        """Whether anything has to hold; other lines only show what is."""
        return any(limit is not None for _, limit in self)

    def __str__(self) -> str:
        """As a reader wants it: `median ±1 %, each ±5 %`."""
        told = (
            ("median ±{:.0%}", self.median_off),
            ("each ±{:.0%}", self.each_off),
            ("median ±{:g}", self.median_off_by),
            ("at most {:.4g}", self.at_most),
        )
        return ", ".join(text.format(limit) for text, limit in told if limit is not None) or "–"


class Line(FrozenRecord):
    """What was declared and what was measured, a sample per round; in `unit`."""

    what: str
    unit: str
    declared: float
    samples: tuple[float, ...]
    gate: Gate

    @property
    def achieved(self) -> float:
        """The median."""
        return median(self.samples)

    @property
    def error(self) -> float | None:
        """Relative error of the median; None where nothing was declared."""
        return self.achieved / self.declared - 1 if self.declared else None

    @property
    def ok(self) -> bool:
        """Whether the gate holds."""
        gate, off_by = self.gate, abs(self.achieved - self.declared)
        worst = max(abs(sample - self.declared) for sample in self.samples)
        return (
            (gate.median_off is None or off_by <= gate.median_off * self.declared)
            and (gate.each_off is None or worst <= gate.each_off * self.declared)
            and (gate.median_off_by is None or off_by <= gate.median_off_by)
            and (gate.at_most is None or self.achieved <= gate.at_most)
        )


class Outcome(FrozenRecord):
    """A row that was measured, or why it was not."""

    row: str
    origin: Origin
    lines: tuple[Line, ...] = ()
    failed: str = ""  # reason
    wall_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether it was measured and every gate holds."""
        return not self.failed and all(line.ok for line in self.lines)
