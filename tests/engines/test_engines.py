"""Engines agree on results. Every trial ends with a reason, whatever happens, and leaves no process running."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from compose.engines.base import TrialEngine
from compose.engines.local import RUN_ENV_VARIABLE, LocalEngine
from compose.engines.simulated import SimulatedEngine
from compose.runs.certificates import issue_certificates
from compose.runs.trials.supervisor import REPORTED_FAILURE_EXIT_CODE
from services.plan import Plan, make_plan
from services.plan.trial_outcome import TrialOutcome
from services.runtime.run_log import LOG_LINE_PREFIX
from services.runtime.runner_pipe import hold_runner_pipe
from services.scenario.scenario import Scenario
from services.transport.data_planes import DATA_PLANES

Document: TypeAlias = dict[str, Any]

STRATEGIES: dict[str, Document] = {
    "ring": {"kind": "all_reduce"},
    "bsp": {"kind": "parameter_server", "servers": 2},
    "asp": {"kind": "parameter_server", "synchrony": {"kind": "asp"}},
    "ring, then bsp": {
        "kind": "strategy_switch",
        "after": {"kind": "parameter_server", "servers": 2},
        "when": {"kind": "at", "fraction": 0.5},
    },
    "ring, then bsp beside workers": {
        "kind": "strategy_switch",
        "after": {"kind": "parameter_server", "placement": {"kind": "colocated"}},
        "when": {"kind": "at", "fraction": 0.5},
    },
    "asp, then ring": {
        "kind": "strategy_switch",
        "before": {"kind": "parameter_server", "synchrony": {"kind": "asp"}},
        "after": {"kind": "all_reduce"},
        "when": {"kind": "plateau", "loss": "train", "window": 2, "min_points": 1, "threshold": 10.0},
    },
}
ENGINES: dict[str, Callable[[], TrialEngine]] = {"local": LocalEngine, "simulated": SimulatedEngine}


@dataclass
class RecordingObserver:
    """Observer that records the coordinator's events, and may act on them."""

    on_event: Callable[[Mapping[str, Any]], None] = lambda event: None
    events: list[Mapping[str, Any]] = field(default_factory=list)

    def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None:
        self.events.append(log_event)
        self.on_event(log_event)

    def engine_preparation_started(self, description: str) -> None:
        """Ignore the preparation."""

    def value(self, key: str) -> Any:
        """Return the value of an event that was logged exactly once."""
        (value,) = (event["value"] for event in self.events if event["key"] == key)
        return value


@dataclass
class PreparedTrial:
    """A trial whose folder is ready to run."""

    engine: TrialEngine
    plan: Plan
    folder: Path

    def run(self, observer: RecordingObserver) -> TrialOutcome:
        return self.engine.run_trial(self.plan, self.folder, observer)


PrepareTrial: TypeAlias = Callable[..., PreparedTrial]


@pytest.fixture
def prepare_trial(tmp_path: Path) -> Iterator[PrepareTrial]:
    """Return `prepare_trial(engine, strategy, transport, **workload)`, which prepares a trial of three workers."""
    engines: list[TrialEngine] = []

    def prepare_one(engine_name: str, strategy: str, transport: str = "grpc", **workload: Any) -> PreparedTrial:
        engine = ENGINES[engine_name]()
        engines.append(engine)
        document = {
            "name": "rehearsal",
            "workload": {
                "dataset": {"kind": "digits"},
                "model": {"kind": "linear"},
                "optimiser": {"kind": "momentum", "rate": 0.05},
                "batch": 128,
                "epochs": 2,
                **workload,
            },
            "cluster": {
                "workers": 3,
                "worker": {"throughput": "20000/s", "uplink": "100mbit", "downlink": "100mbit"},
                "server": {"uplink": "1gbit", "downlink": "1gbit"},
            },
            "strategies": {"it": STRATEGIES[strategy]},
            "transport": transport,
            "baseline": False,
        }
        (trial,) = Scenario.decode(document).trials()
        run = f"{tmp_path.name}-{os.getpid()}-{len(engines)}"  # other checkouts may run the same test
        plan = make_plan(trial, run, engine.name, engine.choose_addresses(run, 10))
        folder = tmp_path / str(len(engines))
        (folder / "logs").mkdir(parents=True)
        (folder / "plan.json").write_text(plan.model_dump_json())
        engine.prepare(RecordingObserver())
        return PreparedTrial(engine, plan, folder)

    yield prepare_one
    for engine in engines:
        engine.close()


def process_ids(run: str) -> dict[str, int]:
    """Return the process ids of a run's nodes by name, as known to the kernel."""
    ids_by_name = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_marked = f"{RUN_ENV_VARIABLE}={run}".encode() in (folder / "environ").read_bytes().split(b"\0")
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to another user
            continue
        if is_marked and b"node" in words:
            ids_by_name[words[words.index(b"node") + 1].decode()] = int(folder.name)
    return ids_by_name


@pytest.mark.side_by_side
@pytest.mark.slow_where(strategy=list(STRATEGIES)[3:])
@pytest.mark.parametrize(("strategy", "transport"), list(zip(STRATEGIES, itertools.cycle(DATA_PLANES))))
def test_processes_and_virtual_time_give_the_same_result(
    prepare_trial: PrepareTrial, strategy: str, transport: str
) -> None:
    """The simulation is credible because it runs the same code: synchronous strategies give the same bits."""
    observers, event_kinds = {}, []
    for engine in ENGINES:
        trial, observer = prepare_trial(engine, strategy, transport), RecordingObserver()
        outcome = trial.run(observer)
        observers[engine] = observer
        event_kinds.append(
            {node.name: event_kinds_in_log(trial.folder / "logs" / f"{node.name}.log") for node in trial.plan.nodes}
        )

        assert (outcome.status, outcome.reason) == ("success", "")
        assert outcome.exit_codes == {node.name: 0 for node in trial.plan.nodes}
        assert not process_ids(trial.plan.run)

    local, simulated = observers["local"], observers["simulated"]
    is_same_result = local.value("params_sha256") == simulated.value("params_sha256")
    assert is_same_result is ("asp" not in strategy), "the order of arrival decides an asynchronous result"
    stop_events = [event for observer in (local, simulated) for event in observer.events if event["key"] == "run_stop"]
    assert [event["metadata"]["reason"] for event in stop_events] == ["budget used"] * 2
    assert is_same_result is (stop_events[0]["metadata"] == stop_events[1]["metadata"]) or "asp" in strategy
    assert event_kinds[0] == event_kinds[1], "analysis reads one format for all engines"


@pytest.mark.side_by_side
@pytest.mark.parametrize(("strategy", "transport"), [("ring", "tcp"), ("bsp", "grpc")])
def test_processes_count_messages_of_the_declared_size(
    prepare_trial: PrepareTrial, strategy: str, transport: str
) -> None:
    """The links between processes are emulated: they carry the declared size, and training is that of the small model.

    The model of 650 parameters sends messages of 100,000.
    """
    digests = set()
    for engine, payload in (("local", "100K x fp32"), ("simulated", None)):
        trial, observer = prepare_trial(engine, strategy, transport, payload=payload), RecordingObserver()
        assert trial.run(observer).status == "success"
        digests.add(observer.value("params_sha256"))
        for node, bytes_per_step in trial.plan.bytes_per_step.items():
            sent = value_in_log(trial.folder / "logs" / f"{node}.log", "node_stop")["payload_bytes_sent"]
            assert sent == pytest.approx(trial.plan.steps * bytes_per_step, rel=0.01)
        vectors = {"ring": 2 * 2 / 3, "bsp": 1}[strategy]  # that a worker sends in a step
        vector_bytes = 400_000 if payload else 2_600
        assert trial.plan.bytes_per_step["worker-0"] == pytest.approx(vectors * vector_bytes, rel=0.01)
    assert len(digests) == 1


def value_in_log(log: Path, key: str) -> Any:
    """Return the value of an event that a node has logged exactly once."""
    events = [json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in log.read_text().splitlines()]
    (value,) = (event["value"] for event in events if event["key"] == key)
    return value


def event_kinds_in_log(log: Path) -> set[tuple[str, str]]:
    """Return the kinds of events in a log, with their columns."""
    events = [json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in log.read_text().splitlines()]
    assert events, f"{log} is empty"
    columns = [sorted(event["value"]) if isinstance(event["value"], dict) else [] for event in events]
    return {(event["key"], str(event_columns)) for event, event_columns in zip(events, columns, strict=True)}


@pytest.mark.slow_where(transport=["grpc"])
@pytest.mark.parametrize(
    ("strategy", "killed_node", "transport"),
    [
        ("ring", "worker-1", "grpc"),
        ("ring", "worker-1", "tcp"),
        ("bsp", "worker-1", "tcp"),
        ("asp", "server-0", "tcp"),
        ("ring", "coordinator", "tcp"),
    ],
)
@pytest.mark.wall_clock
def test_a_killed_node_fails_the_trial_at_once_and_is_named(
    prepare_trial: PrepareTrial, strategy: str, killed_node: str, transport: str
) -> None:
    """The user must find a reason, and not a run that hangs."""
    trial = prepare_trial("local", strategy, transport, epochs=10_000)
    killed_at: list[float] = []

    def kill_node(event: Mapping[str, Any]) -> None:
        if event["key"] == "eval_stop" and not killed_at:
            killed_at.append(time.monotonic())
            os.kill(process_ids(trial.plan.run)[killed_node], signal.SIGKILL)

    outcome = trial.run(RecordingObserver(kill_node))

    assert time.monotonic() - killed_at[0] < 5
    assert outcome.status == "failed"
    assert outcome.reason.startswith(f"{killed_node} ended with exit code -9")
    assert outcome.exit_codes[killed_node] == -9
    assert not process_ids(trial.plan.run)


def test_a_node_without_a_valid_plan_fails_the_trial_with_its_error(prepare_trial: PrepareTrial) -> None:
    """The node's standard error is the only source of the reason."""
    trial = prepare_trial("local", "ring")
    (trial.folder / "plan.json").write_text('{"workload_kind": "training", "run": 7}')

    outcome = trial.run(RecordingObserver())

    assert outcome.status == "failed"
    assert outcome.reason.endswith("plan.json is not a plan: training.run: Input should be a valid string")
    assert "ended with exit code 2" in outcome.reason
    assert not process_ids(trial.plan.run)


@pytest.mark.side_by_side
@pytest.mark.slow_where(transport=["tcp"])
@pytest.mark.parametrize(("node", "transport"), [("coordinator", "grpc"), ("server-0", "tcp"), ("worker-0", "grpc")])
def test_the_last_error_line_of_a_failing_node_is_the_reason(
    prepare_trial: PrepareTrial, tmp_path: Path, node: str, transport: str
) -> None:
    """The node runs alone, with no peers to reach; the trial's reason is the last line of standard error."""
    trial = prepare_trial("local", "asp", transport)
    plan = json.loads(trial.plan.model_dump_json())
    plan["timeouts"] |= {"start": "500ms", "run": "1s"}
    (trial.folder / "plan.json").write_text(json.dumps(plan))
    issue_certificates(trial.plan.run, (node_plan.name for node_plan in trial.plan.nodes), tmp_path)
    files = ("--plan", trial.folder / "plan.json", "--secrets", tmp_path / node, "--runner-pipe", tmp_path / "runner")

    with hold_runner_pipe(tmp_path / "runner"):
        finished = subprocess.run(
            [sys.executable, "-m", "services.node", "node", node, *files],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert finished.returncode == REPORTED_FAILURE_EXIT_CODE
    (error_line,) = finished.stderr.splitlines()
    assert error_line.startswith(("DeadlineExceeded: ", "PeerUnreachable: "))


def test_a_failed_simulation_reports_its_reason_and_the_next_one_runs(prepare_trial: PrepareTrial) -> None:
    """One process simulates all trials in turn: a failing trial must not end the others."""
    valid_trial, failing_trial = prepare_trial("simulated", "ring"), prepare_trial("simulated", "bsp")
    plan = json.loads(failing_trial.plan.model_dump_json())
    plan["timeouts"]["step"] = "1us"
    (failing_trial.folder / "plan.json").write_text(json.dumps(plan))
    failing_trial.engine.close()
    failing_trial.engine = valid_trial.engine

    failed, succeeded = failing_trial.run(RecordingObserver()), valid_trial.run(RecordingObserver())

    assert failed.status == "failed"
    assert "DeadlineExceeded: no message" in failed.reason
    assert succeeded.status == "success"
