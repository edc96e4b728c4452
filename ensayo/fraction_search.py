"""Measurement of quality and training time for one moment of the strategy switch.

Each measurement is an ordinary run. The moment is given by the switch fraction, the share of the workload before the
strategy switch.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isnan, nan
from pathlib import Path
from statistics import fmean
from typing import Any

from ensayo.rehearsal import rehearse
from ensayo.strategy_switch_search import SwitchFractionResult
from services.scenario.learning_task import learning_task_of
from services.scenario.scenario import Scenario
from services.scenario.target import QUALITY_METRICS, MetricName
from services.schema.errors import UserError

DEFAULT_METRIC_OF_LOSS: Mapping[str, MetricName] = {
    "cross_entropy": "accuracy",
    "mse": "r2",
    "detection": "map",
    "denoising": "denoising_error",
    "next_token": "perplexity",
    "masked_token": "perplexity",
}


@dataclass
class SwitchFractionRunner:
    """Runs of one scenario that switch to asynchronous training at different moments.

    The runs switch after different fractions of the workload, and each run has `repeats` repeats.
    """

    scenario_path: Path
    engine_name: str | None
    runs_folder: Path
    settings: Mapping[str, str]
    scenario: Scenario
    strategy_label: str
    fraction_key: str  # dotted path of the fraction in the scenario
    repeats: int
    run_folders: list[Path] = field(default_factory=list)

    def measure_quality_and_time(self, switch_fraction: float) -> tuple[float, float]:
        """Return mean quality and mean training time over the repeats with one switch fraction.

        The switch fraction is the share of the workload before the switch. The training time is in virtual seconds. A
        higher quality is better: metrics that should be low are negated.

        Raises:
            UserError: no trial finished with a verdict other than invalid.
        """
        changed_settings = {
            self.fraction_key: f"{switch_fraction}",
            "repeats": f"{self.repeats}",
            "workload.stop": "budget",  # trials that stop at their target have no quality to compare
            "baseline": "false",
            "sweep": "{}",
        }
        settings = {**self.settings, **changed_settings}
        run_folder = rehearse(self.scenario_path, self.engine_name, self.runs_folder, settings).folder
        self.run_folders.append(run_folder)
        return self._average_quality_and_time_s(json.loads((run_folder / "summary.json").read_text(encoding="utf-8")))

    @property
    def quality_metric(self) -> MetricName:
        """Quality metric of the scenario's training target, or else of its learning task.

        Without a training target, the metric is the default metric of the learning task. Switch fractions (shares of
        the workload before the strategy switch) are compared by this metric.
        """
        workload = self.scenario.training_workload
        target = workload.target
        return target.metric if target else DEFAULT_METRIC_OF_LOSS[learning_task_of(workload.dataset).task.loss]

    def _average_quality_and_time_s(self, run_summary: Mapping[str, Any]) -> tuple[float, float]:
        trials = [trial for trial in run_summary["trials"] if trial["strategy"] == self.strategy_label]
        finished = [trial for trial in trials if trial["final"] and trial["verdict"] != "invalid"]
        if not finished:
            raise UserError(
                f"every trial of strategy {self.strategy_label} failed or got the verdict `invalid`; "
                f"see the logs in {self.run_folders[-1]}"
            )
        quality = fmean(self._higher_better_sign * trial["final"][self.quality_metric] for trial in finished)
        seconds = fmean(trial["seconds"] for trial in finished)
        # A mean that leaves out failed trials would be biased.
        return (quality if len(finished) == len(trials) else nan), seconds

    @property
    def _higher_better_sign(self) -> float:
        return 1.0 if QUALITY_METRICS[self.quality_metric].bound_key == "at_least" else -1.0

    def format_switch_result(self, result: SwitchFractionResult) -> str:
        """Return a line of text with the measured result of one switch fraction.

        The line states quality, time and verdict. The switch fraction is the share of the workload before the switch.
        """
        verdict = "good enough" if result.is_good_enough else "too early"
        quality = "a repeat failed" if isnan(result.quality) else f"{self._higher_better_sign * result.quality:.4f}"
        return f"fraction {result.fraction:<7g} {self.quality_metric} {quality}  {result.virtual_s:.4g} s  {verdict}"
