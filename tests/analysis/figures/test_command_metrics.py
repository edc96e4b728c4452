"""Metrics that a command declares: their order, and the figure of their curves."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from analysis.figures.learning import _figure_title
from analysis.metrics.learning.progress import final_eval_metrics
from analysis.reading.run_table import TrialLogTables

PATTERNS = {"loss": "loss=(.+)", "accuracy": "accuracy=(.+)", "f1": "f1=(.+)"}


@pytest.mark.parametrize(
    ("planned", "order"),
    [
        ({}, ["loss", "accuracy", "f1"]),
        ({"target": {"metric": "accuracy", "at_least": 0.9}}, ["accuracy", "loss", "f1"]),
    ],
)
def test_final_metrics_have_the_order_of_the_scenario_and_the_target_first(
    make_trial: Callable[..., TrialLogTables], line: Callable[..., str], planned: dict[str, Any], order: list[str]
) -> None:
    """Trials of one run are compared: their metrics must stand in the same order, whichever line comes first."""
    values = [{"f1": 0.5}, {"accuracy": 0.7}, {"loss": 0.3}]
    logs = [line("run_start", None, 10)]
    logs += [line("eval_metrics", each, 11 + i, epoch_num=i, samples_count=i, step=i) for i, each in enumerate(values)]
    trial = make_trial({"coordinator": logs}, workload={"metrics": PATTERNS}, **planned)

    assert list(final_eval_metrics(trial)) == order


@pytest.mark.parametrize(
    ("finals", "title"),
    [
        ([0.297], "The final loss is 0.297"),
        ([0.297, 0.2970001], "The final loss is 0.297 in all trials"),
        ([0.297, 0.4], "The final loss is between 0.297 and 0.400"),
    ],
)
def test_the_title_states_a_range_only_if_values_differ(finals: list[float], title: str) -> None:
    """ "Between 0.297 and 0.297" compares a value with itself."""
    rows = [("gloo", str(trial), "loss", value, 10.0, 100) for trial, value in enumerate(finals)]
    curves = pd.DataFrame(rows, columns=["strategy", "trial", "metric", "value", "bytes", "samples"])

    assert _figure_title(curves, "loss", None) == title
