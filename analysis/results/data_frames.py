"""Data frames of a finished run: one row per trial, and one row per point of a speedup curve.

The values are those of summary.json. Column names end with the unit; times are virtual seconds.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

TRIAL_COLUMNS = {  # key of a trial in summary.json -> column
    "id": "trial", "strategy": "strategy", "condition": "condition", "workers": "workers", "servers": "servers",
    "repeat": "repeat", "seed": "seed", "baseline": "baseline", "status": "status", "verdict": "verdict",
    "steps": "steps", "samples": "samples", "seconds": "training_s", "samples_per_second": "samples_per_s",
    "declared_samples_per_second": "declared_samples_per_s", "time_to_target_s": "time_to_target_s",
    "samples_to_target": "samples_to_target", "typical_step_seconds": "typical_step_s",
    "predicted_step_seconds": "predicted_step_s", "accelerator_hours": "accelerator_h",
    "energy_joules": "energy_joules", "cost": "cost", "currency": "currency",
}  # fmt: skip
CURVE_POINT_COLUMNS = {  # key of a point of a curve in summary.json -> column
    "workers": "workers", "runs": "runs", "seconds": "time_s", "speedup": "speedup", "efficiency": "efficiency",
    "hardware_efficiency": "hardware_efficiency", "statistical_efficiency": "statistical_efficiency",
    "predicted_speedup": "predicted_speedup",
}  # fmt: skip
CURVE_COLUMNS = (
    *("strategy", "condition", "time_metric", "base_strategy", "base_workers", "base_time_s"),
    *(*CURVE_POINT_COLUMNS.values(), "speedup_ci_low", "speedup_ci_high"),
)


def make_trial_frame(run_summary: Mapping[str, Any]) -> pd.DataFrame:
    """Return a data frame with one row per trial, given the content of summary.json.

    Each swept key has a column. Each metric of the last evaluation has a column such as `final_accuracy`.
    """
    return pd.DataFrame([_trial_row(trial) for trial in run_summary["trials"]])


def make_curve_frame(run_summary: Mapping[str, Any]) -> pd.DataFrame:
    """Return a data frame with one row per speedup curve and number of workers, given the content of summary.json."""
    rows = [_curve_point_row(curve, point) for curve in run_summary["curves"] for point in curve["points"]]
    return pd.DataFrame(rows, columns=list(CURVE_COLUMNS))


def _trial_row(trial: Mapping[str, Any]) -> dict[str, Any]:
    row = {column: trial[key] for key, column in TRIAL_COLUMNS.items()}
    row |= {f"final_{metric}": value for metric, value in trial["final"].items()}
    row["compute_utilisation"] = (trial.get("compute_utilisation") or {}).get("share")
    row["goodput"] = (trial.get("goodput") or {}).get("share")
    row["disturbed_attempts"] = len(trial.get("disturbed_attempts", ()))
    return row | {key: value for key, value in trial["labels"].items() if key not in row}


def _curve_point_row(curve: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    low, high = point["speedup_ci"] or (None, None)
    return {
        "strategy": curve["strategy"],
        "condition": curve["condition"],
        "time_metric": curve["of"],
        "base_strategy": curve["base"]["strategy"],
        "base_workers": curve["base"]["workers"],
        "base_time_s": curve["base"]["seconds"],
        **{column: point[key] for key, column in CURVE_POINT_COLUMNS.items()},
        "speedup_ci_low": low,
        "speedup_ci_high": high,
    }
