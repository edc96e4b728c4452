"""Traces of compute times: read when a scenario is loaded, recorded with their digest, and followed by the nodes."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from compose.scenario_files.load import load_scenario
from compose.scenario_files.problems import ScenarioError
from services.cluster.addresses import DummyAddresses
from services.cluster.device_profiles import TraceVariation
from services.node.simulate import simulate_trial
from services.plan import Plan, make_plan
from services.runtime.run_log import LOG_LINE_PREFIX
from services.scenario.scenario import Scenario

TRACE = "worker-0,worker-1\n1,1\n1,3\n2,1\n"


def document(variation: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """Return a scenario of two workers with 10 steps, whose declared compute time per step is 0.1 s."""
    return {
        "name": "traced",
        "workload": {
            "dataset": {"kind": "synthetic_regression", "samples": 250, "features": 2, "outputs": 1},
            "model": {"kind": "linear"},
            "optimiser": {"kind": "sgd", "rate": 0.01},
            "batch": 20,
            "epochs": 1,
        },
        "cluster": {"workers": 2, "worker": {"throughput": "100/s", "variation": variation}},
        "strategies": {"ring": {"kind": "all_reduce"}},
        "baseline": False,
        **keys,
    }


def load(folder: Path, variation: dict[str, Any], **keys: Any) -> Scenario:
    path = folder / "traced.yaml"
    path.write_text(yaml.safe_dump(document(variation, **keys), sort_keys=False), encoding="utf-8")
    return load_scenario(path, engine="simulated")


def plan_of(scenario: Scenario) -> Plan:
    (trial,) = scenario.trials()
    return make_plan(trial, "run", "simulated", DummyAddresses())


def simulated_compute_s(plan: Plan, worker: str) -> list[float]:
    """Return the compute times that a worker has logged."""

    lines: dict[str, list[str]] = {node.name: [] for node in plan.nodes}
    simulate_trial(plan, lambda node: lines[node].append)
    events = [json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in lines[worker]]
    batches = [event["value"] for event in events if event["key"] == "node_steps"]
    return [dict(zip(batch["columns"], row, strict=True))["compute_s"] for batch in batches for row in batch["rows"]]


def test_each_step_takes_the_time_of_its_line_and_the_trace_repeats(tmp_path: Path) -> None:
    """The factors belong to worker and step, not to the order in which workers ask."""
    (tmp_path / "times.csv").write_text(TRACE)
    plan = plan_of(load(tmp_path, {"kind": "trace", "file": "times.csv"}))

    assert simulated_compute_s(plan, "worker-0") == pytest.approx([0.1, 0.1, 0.2] * 3 + [0.1])
    assert simulated_compute_s(plan, "worker-1") == pytest.approx([0.1, 0.3, 0.1] * 3 + [0.1])
    assert plan.predicted.compute_s == pytest.approx((0.1 + 0.3 + 0.2) * 3 / 10 + 0.01)


def test_durations_are_relative_to_the_mean_of_the_file(tmp_path: Path) -> None:
    """A trace in milliseconds of another cluster keeps its differences between workers."""
    (tmp_path / "times.csv").write_text("worker-0,worker-1\n10,30\n20,20\n")
    plan = plan_of(load(tmp_path, {"kind": "trace", "file": "times.csv", "values": "durations"}))

    assert simulated_compute_s(plan, "worker-0")[:3] == pytest.approx([0.05, 0.1, 0.05])
    assert simulated_compute_s(plan, "worker-1")[:3] == pytest.approx([0.15, 0.1, 0.15])


def test_scenario_records_path_digest_and_factors(tmp_path: Path) -> None:
    """A run must be repeatable, and each node needs only its own column."""
    (tmp_path / "times.csv").write_text(TRACE)
    scenario = load(tmp_path, {"kind": "trace", "file": "times.csv"})

    variation = scenario.cluster.worker.variation
    assert isinstance(variation, TraceVariation)
    assert variation.sha256 == sha256(TRACE.encode()).hexdigest()
    assert variation.file == str(tmp_path / "times.csv")
    for node in plan_of(scenario).node_plans_of_role("worker"):
        assert [trace.worker for trace in node.variation.recorded] == [node.name]


def test_recorded_scenario_does_not_need_the_file(tmp_path: Path) -> None:
    """The resolved scenario of a run folder is repeated on other hosts, too."""
    (tmp_path / "times.csv").write_text(TRACE)
    scenario = load(tmp_path, {"kind": "trace", "file": "times.csv"})
    (tmp_path / "times.csv").unlink()

    again = load_scenario(scenario)

    assert again.cluster == scenario.cluster


def test_changed_file_is_rejected_for_a_recorded_scenario(tmp_path: Path) -> None:
    """Otherwise a repeated run would silently have other compute times."""
    (tmp_path / "times.csv").write_text(TRACE)
    scenario = load(tmp_path, {"kind": "trace", "file": "times.csv"})
    (tmp_path / "times.csv").write_text(TRACE + "1,1\n")

    with pytest.raises(ScenarioError, match="has the digest"):
        load_scenario(scenario)


def test_sweep_over_traces_has_short_labels(tmp_path: Path) -> None:
    """A trial is named by what the user has written, not by thousands of numbers."""
    (tmp_path / "times.csv").write_text(TRACE)
    (tmp_path / "others.csv").write_text("worker-0,worker-1\n1,2\n")
    cases = {
        name: {"cluster.worker.variation": {"kind": "trace", "file": f"{name}.csv"}} for name in ("times", "others")
    }
    values = [{"kind": "trace", "file": "times.csv"}, {"kind": "trace", "file": "others.csv"}]
    plain = {"kind": "lognormal", "sigma": 0.1}

    by_case = load(tmp_path, plain, sweep={"trace": {"cases": cases}}).trials()
    by_value = load(tmp_path, plain, sweep={"cluster.worker.variation": values}).trials()

    assert [trial.labels["trace"] for trial in by_case] == ["times", "others"]
    assert [trial.labels["cluster.worker.variation"] for trial in by_value] == [
        '{"kind": "trace", "file": "times.csv"}',
        '{"kind": "trace", "file": "others.csv"}',
    ]
    for trials in (by_case, by_value):
        lengths = [len(trial.scenario.cluster.worker.variation.recorded[0].factors) for trial in trials]
        assert lengths == [3, 1]


def test_too_long_trace_is_rejected_with_its_line(tmp_path: Path) -> None:
    """Plans contain all numbers, so their number is limited."""
    (tmp_path / "times.csv").write_text("worker-0,worker-1\n" + "1,1\n" * 10_001)

    with pytest.raises(ScenarioError, match=r"times\.csv:10002: more than 20,000 values"):
        load(tmp_path, {"kind": "trace", "file": "times.csv"})
