"""The study behind the scenario `thesis` measured a ring's speedup of 2.2 on 16 workers; its own model predicts 9.4."""

import json

import pytest

from compose.scenario_files.load import find_scenario, load_scenario
from services.cluster.addresses import DummyAddresses
from services.node.simulate import simulate_trial
from services.plan import Plan, make_plan
from services.runtime.run_log import LOG_LINE_PREFIX


def test_ring_speedup_on_sixteen_workers_equals_the_closed_form() -> None:
    """Within 10 %; and the closed form equals the model of the study, which the report shows beside it."""
    scenario = load_scenario(find_scenario("thesis"), {"workload.epochs": "1"})
    (published,) = (point for point in scenario.published[0].points if point.workers == 16)
    trials = scenario.trials()
    trials_by_key = {(trial.label, trial.scenario.cluster.workers): trial for trial in trials}
    serial, ring = (
        make_plan(trials_by_key[key], "r", "simulated", DummyAddresses()) for key in (("none", 1), ("ring", 16))
    )

    predicted, measured = serial.predicted_s / ring.predicted_s, run_seconds(serial) / run_seconds(ring)

    assert (round(published.measured or 0, 1), published.predicted) == (2.2, 9.4)
    assert predicted == pytest.approx(published.predicted, abs=0.05)
    assert measured == pytest.approx(predicted, rel=0.1)


def run_seconds(plan: Plan) -> float:
    """Return the virtual seconds from the start of a simulated run to its stop."""
    lines: list[str] = []
    simulate_trial(plan, lambda node: lines.append if node == "coordinator" else (lambda _: None))
    times_ms = {
        event["key"]: event["time_ms"] for event in (json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in lines)
    }
    return float(times_ms["run_stop"] - times_ms["run_start"]) / 1000
