"""The study that `thesis` repeats measured a ring's speedup of 2.2 on 16 workers, where its own model said 9.4."""

import json

import pytest

from compose.scenario_files.load import find_scenario, load_scenario
from services.cluster.addresses import InProcessAddresses
from services.node.simulate import simulate_trial
from services.plan import Plan, make_plan
from services.runtime.run_log import LOG_LINE_PREFIX


def test_the_ring_gains_on_sixteen_workers_what_its_closed_form_says() -> None:
    """Within a tenth; and the form says what the original's does, which stands beside it in the report."""
    scenario = load_scenario(find_scenario("thesis"), {"workload.epochs": "1"})
    (theirs,) = (point for point in scenario.published[0].points if point.workers == 16)
    trials = scenario.trials()
    by_kind = {(trial.label, trial.scenario.cluster.workers): trial for trial in trials}
    alone, ring = (
        make_plan(by_kind[key], "r", "simulated", InProcessAddresses()) for key in (("none", 1), ("ring", 16))
    )

    told, measured = alone.predicted_s / ring.predicted_s, seconds(alone) / seconds(ring)

    assert (round(theirs.measured or 0, 1), theirs.predicted) == (2.2, 9.4)
    assert told == pytest.approx(theirs.predicted, abs=0.05)
    assert measured == pytest.approx(told, rel=0.1)


def seconds(plan: Plan) -> float:
    """From the beginning of training to its end, in virtual time."""
    lines: list[str] = []
    simulate_trial(plan, lambda node: lines.append if node == "coordinator" else (lambda _: None))
    times_ms = {
        event["key"]: event["time_ms"] for event in (json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in lines)
    }
    return float(times_ms["run_stop"] - times_ms["run_start"]) / 1000
