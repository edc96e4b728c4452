"""Small trials from start to end in containers: the same bits as everywhere, every byte accounted for."""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import pytest

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]

RunTrial: TypeAlias = Callable[..., Any]

LOCKSTEP = ["ring", "ps_bsp"]
EVERY = [*LOCKSTEP, "ps_asp"]
PATIENT_S = 30.0  # shorter than every time limit of a start or an end
MOST_HEADERS = 1.25  # interface bytes per payload byte: small messages, acknowledgements and the opening of streams


@pytest.fixture
def smoke(pytestconfig: pytest.Config) -> Path:
    """The smallest scenario."""
    return pytestconfig.rootpath / "scenarios" / "smoke.yaml"


@pytest.mark.slow_where(strategy=["ps_bsp"])
@pytest.mark.parametrize("strategy", EVERY)
@pytest.mark.exact
def test_every_strategy_succeeds_and_accounts_for_every_byte(run_trial: RunTrial, smoke: Path, strategy: str) -> None:
    """Payload as the plan says, and an interface that has sent at least that and not much more."""
    trial = run_trial("docker", smoke, strategy)

    steps = {node.name: len(trial.rows(node.name, "node_steps")) for node in trial.plan.node_plans_of_role("worker")}
    mean = sum(steps.values()) / len(steps)  # a server answers everybody's
    for node, per_step in trial.plan.bytes_per_step.items():
        stop = trial.value(node, "node_stop")
        assert stop["payload_bytes_sent"] == pytest.approx(per_step * steps.get(node, mean), rel=0.01)
        assert stop["payload_bytes_sent"] <= stop["interface_bytes_sent"]
        assert stop["interface_bytes_sent"] <= MOST_HEADERS * (stop["payload_bytes_sent"] + stop["framing_bytes_sent"])
    assert all(code == 0 for code in trial.status.exit_codes.values())
    assert set(trial.status.exit_codes) == {node.name for node in trial.plan.nodes}


@pytest.mark.slow_where(strategy=["ps_bsp"])
@pytest.mark.parametrize("strategy", LOCKSTEP)
@pytest.mark.exact
def test_a_seed_gives_the_same_bits_again_and_on_every_engine(run_trial: RunTrial, smoke: Path, strategy: str) -> None:
    """Sums are formed in a fixed order; containers use the host's versions and one BLAS thread."""
    found = {engine: run_trial(engine, smoke, strategy).params_sha256 for engine in ("docker", "local", "simulated")}

    assert run_trial("docker", smoke, strategy).params_sha256 == found["docker"]
    assert len(set(found.values())) == 1, found


BIG = """
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
@pytest.mark.parametrize("strategy", LOCKSTEP)
@pytest.mark.wall_clock
def test_a_step_takes_what_the_closed_form_says(
    run_trial: RunTrial, tmp_path: Path, capsys: pytest.CaptureFixture[str], strategy: str, workers: str
) -> None:
    """4.5 MB over links of 100 Mbit/s: what links and devices declare must be all that a step takes.

    A server's workers may be faster than the form: who is answered first computes behind the others' answers.
    """
    (tmp_path / "big.yaml").write_text(BIG)

    trial = run_trial("docker", tmp_path / "big.yaml", strategy, cluster__workers=workers)

    steps = [
        step for step in trial.rows("worker-0", "node_steps") if step["samples"] == trial.plan.batch // int(workers)
    ]
    measured, predicted = median(step["step_s"] for step in steps), trial.plan.predicted.step_s
    with capsys.disabled():
        said = f"{measured * 1e3:.0f} ms measured, {predicted * 1e3:.0f} ms predicted, {measured - predicted:+.3f} s"
        print(f"\n  {strategy}, {workers} workers: {said}")  # noqa: T201
    assert measured == pytest.approx(predicted, rel=0.10)


@pytest.mark.slow
@pytest.mark.wall_clock
def test_no_trial_begins_or_ends_by_a_time_limit(
    run_trial: RunTrial, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight workers; how soon they begin is the host's, and `make bench` measures it."""
    path = pytestconfig.rootpath / "scenarios" / "scaling-check.yaml"

    timings = run_trial("docker", path, "ring", workload__epochs="1").status.timings_s

    with capsys.disabled():
        print(f"\n  8 workers: {timings}")  # noqa: T201
    assert timings["up"] + timings["gate"] <= PATIENT_S
    assert timings["down"] <= PATIENT_S
