"""How far is a run? What the coordinator's log and the clock tell about it, without a screen."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from services.plan import Plan


@dataclass(frozen=True)
class Pace:
    """What the coordinator has logged about one trial; times in virtual milliseconds."""

    samples: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)  # on held-out samples
    since_ms: float | None = None
    until_ms: float | None = None

    def after(self, event: Mapping[str, Any]) -> Self:
        """What is known after one more event."""
        metadata = event.get("metadata") or {}
        return replace(
            self,
            samples=max(self.samples, metadata.get("samples_count", 0)),
            since_ms=event["time_ms"] if event["key"] == "run_start" else self.since_ms,
            until_ms=event["time_ms"],
            metrics=event["value"] if event["key"] == "eval_metrics" else self.metrics,
        )

    @property
    def samples_per_s(self) -> float | None:
        """Per virtual second since training began; None before there is anything to divide."""
        if self.since_ms is None or self.until_ms is None or self.until_ms <= self.since_ms:
            return None
        return 1000 * self.samples / (self.until_ms - self.since_ms)

    def __str__(self) -> str:
        parts = (
            *(
                f"{name} {value:.4g}"
                for name, value in sorted(self.metrics.items(), key=lambda each: each[0] != "loss")
            ),
            f"{self.samples_per_s:,.0f} samples/s" if self.samples_per_s else "",
        )
        return ", ".join(part for part in parts if part)


@dataclass
class Course:
    """Trial k of n, and how much is left."""

    plans: Sequence[Plan]
    clock: Callable[[], float]  # wall seconds
    pace: Pace = field(default_factory=Pace)
    begun: int = 0  # trials
    spent_s: list[float] = field(default_factory=list)  # of ended trials
    _since: float = 0.0

    def begin(self) -> None:
        """The next trial starts now."""
        self.begun, self.pace, self._since = self.begun + 1, Pace(), self.clock()

    def hear(self, event: Mapping[str, Any]) -> None:
        """The coordinator of the running trial has logged something."""
        self.pace = self.pace.after(event)

    def end(self, seconds: float) -> None:
        """The running trial took so many wall seconds."""
        self.spent_s.append(seconds)

    @property
    def plan(self) -> Plan:
        """The running trial."""
        return self.plans[self.begun - 1]

    @property
    def step(self) -> int:
        """Steps that the running trial has done, told by its samples: without a barrier workers count their own."""
        return round(self._share() * self.plan.steps)

    def left_s(self) -> float:
        """Wall seconds until all trials have ended: a guess from the pace so far and from the plans."""
        running = self._left_of_running() if self.begun > len(self.spent_s) else 0.0
        return running + sum(self._whole(plan) for plan in self.plans[self.begun :])

    def _share(self) -> float:
        """How much of the running trial's budget is used."""
        return min(1.0, self.pace.samples / (self.plan.epochs * self.plan.train_samples))

    def _left_of_running(self) -> float:
        elapsed_s, share = self.clock() - self._since, self._share()
        return elapsed_s * (1 - share) / share if share else max(0.0, self._whole(self.plan) - elapsed_s)

    def _whole(self, plan: Plan) -> float:
        """Wall seconds of a trial that has not begun: planned, or as long as the others when that is not known."""
        mean = sum(self.spent_s) / len(self.spent_s) if self.spent_s else 0.0
        return plan.estimated_wall_s or mean
