"""Expected bytes of a trial whose first steps have messages of other sizes."""

from collections.abc import Callable
from typing import Any

import pytest

from analysis.metrics.bytes_sent import bytes_sent, expected_bytes_sent
from analysis.reading.run_table import RunLogTables

RunSimulated = Callable[..., RunLogTables]
REACHED_AT_ONCE = {"metric": "accuracy", "at_least": 0.01}


@pytest.mark.parametrize("target", [None, REACHED_AT_ONCE], ids=["whole budget", "stops during the warm-up"])
def test_expected_bytes_are_those_of_the_stages_that_were_reached(
    run_simulated: RunSimulated, target: dict[str, Any] | None
) -> None:
    """A mean over the budget would be wrong for a run that stops at its target, here after 17 of 48 steps."""
    compress = {"kind": "dgc", "ratio": 0.01, "momentum": 0, "warm_up_steps": 24}
    workload = {"batch": 90, "epochs": 3, "evaluate_every": 1500, "target": target}

    (trial,) = run_simulated({"dgc": {"kind": "all_reduce", "compress": compress}}, workload=workload).trials

    assert trial.steps["step"].max() + 1 == (17 if target else 48)
    sent = bytes_sent(trial)
    assert expected_bytes_sent(trial) == {node: sent[node] for node in trial.plan.bytes_per_step}
