"""Networks on every engine: processes whose transport shapes links agree with virtual time and the closed form."""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import pytest

from compose.engines.local import LocalEngine
from compose.engines.simulated import SimulatedEngine
from services.plan import make_plan
from services.scenario.scenario import Scenario

RunTrial: TypeAlias = Callable[..., Any]

# 301,066 parameters are 1.2 MB; 32 samples per worker take 32 ms. Dilated, since a butterfly round costs the host 7 ms.
SCENARIO = """
name: networks
dilation: 4
workload:
  dataset: {{kind: synthetic_regression, samples: {samples}, features: 64, outputs: 10}}
  model: {{kind: mlp, hidden: [512, 512]}}
  optimiser: {{kind: sgd, rate: 0.01}}
  batch_per_worker: 32
  epochs: 1
cluster:
  workers: 4
  worker: {{throughput: 1000/s, uplink: 100mbit, downlink: 100mbit}}
  server: {{uplink: 100mbit, downlink: 100mbit}}
  network: {network}
strategies:
  ring: {{kind: all_reduce}}
  across: {{kind: all_reduce, collective: {{kind: ring, stride: 2}}}}
  levels: {{kind: all_reduce, collective: {{kind: hierarchical}}}}
  halves: {{kind: all_reduce, collective: {{kind: halving_doubling}}}}
  trees: {{kind: all_reduce, collective: {{kind: double_tree}}}}
  turns: {{kind: all_reduce, collective: {{kind: reduce_to_one, senders: serial, fused: false}}}}
  ps: {{kind: parameter_server}}
events: {events}
"""
SWITCH = "{kind: switch}"
RACKS = "{kind: racks, size: 2, uplink: 50mbit}"
REGIONS = (
    "{kind: regions, regions: {east: {}, west: {workers: [0, 1, 2, 3]}}, "
    "between: [{regions: [east, west], rate: 200mbit, delay: 20ms}]}"
)


@pytest.fixture
def write_scenario(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes the scenario with a network and with events."""

    def write(network: str, events: str = "[]", steps: int = 6) -> Path:
        path = tmp_path / "networks.yaml"
        path.write_text(SCENARIO.format(network=network, events=events, samples=steps * 160))
        return path

    return write


def median_step_s(trial: Any) -> float:
    """Return the median step time over all workers, without the first and the last step."""
    return median(row["step_s"] for rank in range(4) for row in trial.rows(f"worker-{rank}", "node_steps")[1:-1])


@pytest.mark.slow_where(strategy=["ring", "across", "levels", "halves", "trees", "turns"])
@pytest.mark.slow_where(network=[REGIONS])
@pytest.mark.parametrize(
    ("network", "strategy"),
    [
        (RACKS, "ring"),
        (RACKS, "across"),
        (RACKS, "levels"),
        (SWITCH, "halves"),
        (SWITCH, "trees"),
        (SWITCH, "turns"),
        (SWITCH, "ps"),
        (REGIONS, "ps"),
    ],
    ids=[
        "one flow leaves a rack",
        "two flows leave a rack",
        "two levels",
        "butterfly",
        "two trees",
        "tokens",
        "incast",
        "two regions",
    ],
)
@pytest.mark.wall_clock
def test_the_step_time_of_processes_agrees_with_simulation_and_closed_form(
    run_trial: RunTrial, write_scenario: Callable[..., Path], network: str, strategy: str
) -> None:
    """Processes share the rates of links, delays are added, and the host's own time has no visible effect."""
    path = write_scenario(network)
    local, simulated = (run_trial(engine, path, strategy) for engine in ("local", "simulated"))

    predicted_s = local.plan.predicted.step_s
    assert median_step_s(simulated) == pytest.approx(predicted_s, rel=0.1)  # messages are large beside a vector of 1 MB
    assert median_step_s(local) == pytest.approx(median_step_s(simulated), rel=0.1)
    assert median_step_s(local) == pytest.approx(predicted_s, rel=0.1)
    assert local.params_sha256 == simulated.params_sha256


@pytest.mark.wall_clock
def test_events_have_the_same_effect_in_processes_as_in_virtual_time(
    run_trial: RunTrial, write_scenario: Callable[..., Path]
) -> None:
    """Every process applies the events by the shared clock, so their steps become longer and shorter together."""
    events = """
  - {kind: link, of: [server-0], downlink: 50mbit, at: {step: 3}, lasts: 2s}
  - {kind: slowdown, of: [worker-2], factor: 20, at: {step: 8}, lasts: 300ms}
"""
    path = write_scenario(SWITCH, events, steps=10)
    local, simulated = (run_trial(engine, path, "ps", dilation="1") for engine in ("local", "simulated"))

    rows = [trial.rows("worker-0", "node_steps") for trial in (local, simulated)]
    for measured, expected in list(zip(*rows, strict=True))[1:]:
        assert measured["step_s"] == pytest.approx(expected["step_s"], rel=0.15)
    longest = max(row["step_s"] for row in rows[1])
    assert longest > 1.3 * median_step_s(simulated)
    applied_events = {
        node: [event["value"] for event in local.events(node, "event_applied")] for node in ("server-0", "worker-2")
    }
    assert [(value["kind"], value["phase"]) for value in applied_events["server-0"]] == [
        ("link", "begin"),
        ("link", "end"),
    ]
    assert [value["kind"] for value in applied_events["worker-2"]] == ["slowdown", "slowdown"]
    assert all(0 <= value["lateness_s"] < 0.05 for values in applied_events.values() for value in values)


@pytest.mark.parametrize("engine_class", [LocalEngine, SimulatedEngine])
@pytest.mark.parametrize("strict", [True, False])
def test_a_loss_that_is_not_emulated_is_an_error_if_strict_and_else_recorded(
    engine_class: Any, strict: bool, tmp_path: Path
) -> None:
    """These engines lose no packets: a scenario with losses must not get numbers that seem to include them."""
    document = {
        "name": "lossy",
        "workload": {
            "dataset": {"kind": "synthetic_regression", "samples": 40, "features": 4, "outputs": 2},
            "model": {"kind": "linear"},
            "optimiser": {"kind": "sgd", "rate": 0.01},
            "batch": 8,
            "epochs": 1,
        },
        "cluster": {
            "workers": 2,
            "worker": {"uplink": "100mbit", "delay": "1ms", "loss": {"kind": "independent", "share": 0.01}},
        },
        "strategies": {"ring": {"kind": "all_reduce"}},
        "baseline": False,
        "strict": strict,
    }
    (trial,) = Scenario.decode(document).trials()
    chosen_engine = engine_class()
    plan = make_plan(trial, f"lossy-{tmp_path.name}", chosen_engine.name, chosen_engine.choose_addresses("lossy", 3))
    (tmp_path / "logs").mkdir()
    (tmp_path / "plan.json").write_text(plan.model_dump_json())

    outcome = chosen_engine.run_trial(plan, tmp_path, SilentObserver())
    chosen_engine.close()

    mechanism = outcome.shaping["worker-0"].rung
    assert outcome.shaping["worker-0"].rungs == {"rate": mechanism, "delay": mechanism, "loss": "none"}
    assert outcome.status == ("failed" if strict else "success")
    assert ("does not emulate loss" in outcome.reason) is strict
    assert bool(list((tmp_path / "logs").iterdir())) is not strict, "rejected before any node was started"


class SilentObserver:
    """Observer that ignores all events."""

    def coordinator_event_logged(self, plan: Any, log_event: Any) -> None:
        """Ignore the event."""
