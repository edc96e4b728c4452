"""Parameter servers on engines that run nodes as processes: the logs explain the results."""

import hashlib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from replay.trial import replay_trial

from analysis.reading.run_folder import TrialFolder

RunTrial: TypeAlias = Callable[..., Any]

SERVERS_SCENARIO = """
name: servers
workload:
  dataset: {kind: synthetic_regression, samples: 100, features: 4, outputs: 2, hidden: 8}
  model: {kind: mlp, hidden: [5], activation: tanh}
  optimiser: {kind: momentum, rate: 0.05}
  batch: 13
  epochs: 3
  stop: budget
cluster:
  workers: 3
  worker: {throughput: 1000/s, uplink: 100mbit, downlink: 100mbit}
  server: {uplink: 100mbit, downlink: 100mbit}
  groups:
    - {name: slow, ranks: [0], throughput: 400/s}
strategies:
  asp: {kind: parameter_server, servers: 2, synchrony: {kind: asp}}
  ssp: {kind: parameter_server, servers: 2, synchrony: {kind: ssp, staleness: 1}}
  backup: {kind: parameter_server, servers: 2, synchrony: {kind: backup, backups: 1}}
  gba: {kind: parameter_server, servers: 2, synchrony: {kind: gba}, staleness: {kind: exponential, decay: 0.5}}
  dc: {kind: parameter_server, servers: 2, synchrony: {kind: asp}, compensation: {kind: dc_asgd}}
  beside: {kind: parameter_server, placement: {kind: colocated}, synchrony: {kind: asp}}
  together: {kind: parameter_server, placement: {kind: colocated}}
  spare: {kind: parameter_server, servers: 1, placement: {kind: spare}}
"""


pytestmark = pytest.mark.side_by_side


@pytest.fixture
def servers_scenario(tmp_path: Path) -> Path:
    """Return the path of the scenario."""
    path = tmp_path / "servers.yaml"
    path.write_text(SERVERS_SCENARIO)
    return path


@pytest.mark.slow_where(engine=["docker"])
@pytest.mark.slow_where(strategy=["ssp", "backup", "gba"])
@pytest.mark.parametrize(
    ("engine", "strategy"),
    [
        *product(["local"], ["asp", "ssp", "backup", "gba", "dc", "beside"]),
        *(pytest.param("docker", strategy, marks=pytest.mark.docker) for strategy in ("backup", "beside")),
    ],
    indirect=["engine"],
)
def test_replaying_the_folder_of_a_trial_gives_its_parameters(
    run_trial: RunTrial, servers_scenario: Path, engine: str, strategy: str
) -> None:
    """On a real clock the order of arrival cannot be repeated; the log records it, so the result can be recomputed."""
    trial = run_trial(engine, servers_scenario, strategy)

    params = replay_trial(TrialFolder(trial.folder))

    assert hashlib.sha256(params.tobytes()).hexdigest() == trial.params_sha256


@pytest.mark.slow_where(engine=["docker"])
@pytest.mark.parametrize("strategy", ["together", "spare"])
def test_shards_on_workers_equal_the_bits_of_virtual_time(
    run_trial: RunTrial, servers_scenario: Path, engine: str, strategy: str
) -> None:
    """Shards share a process with a worker, or run in a node of their own; the simulation runs the same code."""
    real, simulated = (run_trial(name, servers_scenario, strategy) for name in (engine, "simulated"))

    assert real.params_sha256 == simulated.params_sha256
    for node, per_step in real.plan.bytes_per_step.items():
        assert real.value(node, "node_stop")["payload_bytes_sent"] == per_step * real.plan.steps
