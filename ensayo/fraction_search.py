"""What comes of switching after a fraction? One ordinary run, with a folder and a report of its own."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isnan, nan
from pathlib import Path
from statistics import fmean
from typing import Any

from ensayo.rehearsal import rehearse
from ensayo.switch_search import Try
from services.scenario.scenario import Scenario
from services.scenario.target import METRIC_PROPERTIES, MetricName
from services.scenario.workload import task_of
from services.schema.errors import UserError

OF_TASK: Mapping[str, MetricName] = {"cross_entropy": "accuracy", "mse": "r2"}


@dataclass
class Trying:
    """One scenario, run again and again with other fractions."""

    path: Path
    engine: str | None
    runs: Path
    settings: Mapping[str, str]
    scenario: Scenario
    label: str
    key: str  # dotted path of the fraction
    repeats: int
    folders: list[Path] = field(default_factory=list)

    def measure(self, fraction: float) -> tuple[float, float]:
        """Quality, more of which is better, and virtual seconds; means over the repeats.

        Raises:
            UserError: no trial came to its end.
        """
        changed = {
            self.key: f"{fraction}",
            "repeats": f"{self.repeats}",
            "workload.stop": "budget",  # a run that stops at its target has no quality to compare
            "baseline": "false",
            "sweep": "{}",
        }
        done = rehearse(self.path, self.engine, self.runs, {**self.settings, **changed})
        self.folders.append(done.folder)
        return self._found(json.loads((done.folder / "summary.json").read_text(encoding="utf-8")))

    @property
    def metric(self) -> MetricName:
        """The quality that is compared: the target's, else the task's own."""
        target = self.scenario.workload.target
        return target.metric if target else OF_TASK[task_of(self.scenario.workload.dataset).task.loss]

    def _found(self, summary: Mapping[str, Any]) -> tuple[float, float]:
        trials = [trial for trial in summary["trials"] if trial["strategy"] == self.label]
        ended = [trial for trial in trials if trial["final"] and trial["verdict"] != "invalid"]
        if not ended:
            raise UserError(f"no trial of {self.label} came to a valid end; {self.folders[-1]} has their logs")
        quality = fmean(self._sign * trial["final"][self.metric] for trial in ended)
        seconds = fmean(trial["seconds"] for trial in ended)
        return (quality if len(ended) == len(trials) else nan), seconds  # who failed is not left out of a mean

    @property
    def _sign(self) -> float:
        return 1.0 if METRIC_PROPERTIES[self.metric].bound_key == "at_least" else -1.0

    def shown(self, each: Try) -> str:
        """One line of the sequence."""
        verdict = "good enough" if each.good_enough else "too early"
        quality = "a repeat failed" if isnan(each.quality) else f"{self._sign * each.quality:.4f}"
        return f"fraction {each.fraction:<7g} {self.metric} {quality}  {each.seconds:.4g} s  {verdict}"
