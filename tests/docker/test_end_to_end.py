"""Small complete trials in containers: the same bits as on the other engines, and every byte is counted."""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import pytest

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]

RunTrial: TypeAlias = Callable[..., Any]

SYNCHRONOUS = ["ring", "ps_bsp"]
ALL_STRATEGIES = [*SYNCHRONOUS, "ps_asp"]
MAX_START_OR_STOP_S = 30.0  # shorter than every time limit of a start or an end
MAX_INTERFACE_BYTES_RATIO = 1.25  # for small messages, acknowledgements and the opening of streams


@pytest.fixture
def smoke_scenario(pytestconfig: pytest.Config) -> Path:
    """Return the path of the smallest scenario."""
    return pytestconfig.rootpath / "scenarios" / "smoke.yaml"


@pytest.mark.slow_where(strategy=["ps_bsp", "ps_asp"])
@pytest.mark.parametrize("strategy", ALL_STRATEGIES)
def test_every_strategy_succeeds_and_sends_the_planned_bytes(
    run_trial: RunTrial, smoke_scenario: Path, strategy: str
) -> None:
    """The payload is as planned; the interface has sent at least the payload, and not much more."""
    trial = run_trial("docker", smoke_scenario, strategy)

    steps_by_worker = {
        node.name: len(trial.rows(node.name, "node_steps")) for node in trial.plan.node_plans_of_role("worker")
    }
    mean_steps = sum(steps_by_worker.values()) / len(steps_by_worker)  # a server answers the steps of all workers
    for node, bytes_per_step in trial.plan.bytes_per_step.items():
        stop = trial.value(node, "node_stop")
        assert stop["payload_bytes_sent"] == pytest.approx(
            bytes_per_step * steps_by_worker.get(node, mean_steps), rel=0.01
        )
        assert stop["payload_bytes_sent"] <= stop["interface_bytes_sent"]
        assert stop["interface_bytes_sent"] <= MAX_INTERFACE_BYTES_RATIO * (
            stop["payload_bytes_sent"] + stop["framing_bytes_sent"]
        )
    assert all(code == 0 for code in trial.status.exit_codes.values())
    assert set(trial.status.exit_codes) == {node.name for node in trial.plan.nodes}


def test_containers_send_messages_of_the_declared_size(run_trial: RunTrial, smoke_scenario: Path) -> None:
    """Links of the kernel carry bytes: padding is sent, and takes its time on the link; the trained model is the same.

    The interface has sent the declared bytes, 400 times those of the trained model of 2,410 parameters.
    """
    payload, small = (
        run_trial("docker", smoke_scenario, "ring", workload__epochs="1", **changes)
        for changes in ({"workload__payload": "964K x fp32"}, {})
    )

    assert payload.params_sha256 == small.params_sha256
    for rank in range(2):
        stop = payload.value(f"worker-{rank}", "node_stop")
        steps = len(payload.rows(f"worker-{rank}", "node_steps"))
        assert stop["payload_bytes_sent"] == pytest.approx(steps * 964_000 * 4, rel=0.01)
        assert stop["payload_bytes_sent"] <= stop["interface_bytes_sent"] <= 1.1 * stop["payload_bytes_sent"]
        step_s = median(row["step_s"] for row in payload.rows(f"worker-{rank}", "node_steps"))
        assert step_s == pytest.approx(payload.plan.predicted.step_s, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_a_seed_gives_the_same_bits_in_every_trial_and_on_every_engine(
    run_trial: RunTrial, smoke_scenario: Path, strategy: str
) -> None:
    """Sums are formed in a fixed order; containers use the host's versions of libraries, and one BLAS thread."""
    digests = {
        engine: run_trial(engine, smoke_scenario, strategy).params_sha256 for engine in ("docker", "local", "simulated")
    }

    assert run_trial("docker", smoke_scenario, strategy).params_sha256 == digests["docker"]
    assert len(set(digests.values())) == 1, digests


LARGE_MODEL_SCENARIO = """
name: step-time
workload:
  dataset: {kind: digits}
  model: {kind: mlp, hidden: [1024, 1024]}
  optimiser: {kind: sgd, rate: 0.1}
  batch: 256
  epochs: 1
  stop: budget
cluster:
  workers: 2
  worker: {throughput: 800/s, uplink: 100mbit, downlink: 100mbit, cpus: 2}
  server: {uplink: 100mbit, downlink: 100mbit, cpus: 2}
strategies:
  ring: {kind: all_reduce, collective: {kind: ring}}
  ps_bsp: {kind: parameter_server, servers: 1, synchrony: {kind: bsp}}
baseline: false
"""


@pytest.mark.slow_where(workers=["2"])
@pytest.mark.slow_where(strategy=["ps_bsp"])
@pytest.mark.parametrize("workers", ["2", "4"])
@pytest.mark.parametrize("strategy", SYNCHRONOUS)
@pytest.mark.wall_clock
def test_the_measured_step_time_agrees_with_the_closed_form(
    run_trial: RunTrial, tmp_path: Path, capsys: pytest.CaptureFixture[str], strategy: str, workers: str
) -> None:
    """With 4.5 MB over links of 100 Mbit/s, only the declared links and devices may decide the time of a step.

    Workers of a server may be faster than the closed form: the worker that is answered first computes while the server
    answers the others.
    """
    (tmp_path / "step-time.yaml").write_text(LARGE_MODEL_SCENARIO)

    trial = run_trial("docker", tmp_path / "step-time.yaml", strategy, cluster__workers=workers)

    steps = [
        step for step in trial.rows("worker-0", "node_steps") if step["samples"] == trial.plan.batch // int(workers)
    ]
    measured, predicted = median(step["step_s"] for step in steps), trial.plan.predicted.step_s
    with capsys.disabled():
        comparison = (
            f"{measured * 1e3:.0f} ms measured, {predicted * 1e3:.0f} ms predicted, {measured - predicted:+.3f} s"
        )
        print(f"\n  {strategy}, {workers} workers: {comparison}")  # noqa: T201
    assert measured == pytest.approx(predicted, rel=0.10)


@pytest.mark.slow
@pytest.mark.wall_clock
def test_no_trial_reaches_a_time_limit_when_it_starts_or_stops(
    run_trial: RunTrial, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight workers; the start-up time depends on the host, and `make bench` measures it."""
    path = pytestconfig.rootpath / "scenarios" / "scaling-check.yaml"

    timings = run_trial("docker", path, "ring", workload__epochs="1").status.timings_s

    with capsys.disabled():
        print(f"\n  8 workers: {timings}")  # noqa: T201
    assert timings["up"] + timings["gate"] <= MAX_START_OR_STOP_S
    assert timings["down"] <= MAX_START_OR_STOP_S
