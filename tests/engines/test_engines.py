"""Engines agree on results, and whatever happens, a trial ends with its reason and leaves nothing running."""

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

from compose.engines.base import Engine
from compose.engines.local import RUN_ENV_VARIABLE, LocalEngine
from compose.engines.simulated import SimulatedEngine
from compose.runs.certificates import issue_certificates
from compose.runs.supervisor import REPORTED_FAILURE_EXIT_CODE
from services.plan import Plan, make_plan
from services.plan.trial_outcome import TrialOutcome
from services.runtime.run_log import LOG_LINE_PREFIX
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
ENGINES: dict[str, Callable[[], Engine]] = {"local": LocalEngine, "simulated": SimulatedEngine}


@dataclass
class Onlooker:
    """Keeps what the coordinator logs, and may act on it."""

    act: Callable[[Mapping[str, Any]], None] = lambda event: None
    events: list[Mapping[str, Any]] = field(default_factory=list)

    def event_logged(self, plan: Plan, event: Mapping[str, Any]) -> None:
        self.events.append(event)
        self.act(event)

    def preparation_started(self, what: str) -> None:
        """Nothing to see."""

    def value(self, key: str) -> Any:
        """What was logged exactly once."""
        (value,) = (event["value"] for event in self.events if event["key"] == key)
        return value


@dataclass
class Trial:
    """A trial that can be run."""

    engine: Engine
    plan: Plan
    folder: Path

    def run(self, watch: Onlooker) -> TrialOutcome:
        return self.engine.run_trial(self.plan, self.folder, watch)


Prepare: TypeAlias = Callable[..., Trial]


@pytest.fixture
def prepare(tmp_path: Path) -> Iterator[Prepare]:
    """`prepare(engine, strategy, transport, **workload)`: a trial of three workers whose folder is ready."""
    engines: list[Engine] = []

    def make(name: str, strategy: str, transport: str = "grpc", **workload: Any) -> Trial:
        engine = ENGINES[name]()
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
            "cluster": {"workers": 3, "worker": {"throughput": "20000/s", "uplink": "100mbit", "downlink": "100mbit"}},
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
        engine.prepare(Onlooker())
        return Trial(engine, plan, folder)

    yield make
    for engine in engines:
        engine.close()


def processes(run: str) -> dict[str, int]:
    """Process ids of a run's nodes by name, as this host's kernel knows them."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            marked = f"{RUN_ENV_VARIABLE}={run}".encode() in (folder / "environ").read_bytes().split(b"\0")
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended, or is somebody else's
            continue
        if marked and b"node" in words:
            found[words[words.index(b"node") + 1].decode()] = int(folder.name)
    return found


@pytest.mark.slow_where(transport=["tcp"], strategy=list(STRATEGIES)[1:])
@pytest.mark.slow_where(transport=["grpc"], strategy=["ring"])
@pytest.mark.parametrize("transport", DATA_PLANES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_trial_in_processes_and_in_virtual_time_has_the_same_result(
    prepare: Prepare, strategy: str, transport: str
) -> None:
    """The simulation is worth believing because it runs the same code: in lockstep it finds the same bits."""
    seen, kinds = {}, []
    for engine in ENGINES:
        trial, watch = prepare(engine, strategy, transport), Onlooker()
        status = trial.run(watch)
        seen[engine] = watch
        kinds.append({node.name: keys(trial.folder / "logs" / f"{node.name}.log") for node in trial.plan.nodes})

        assert (status.status, status.reason) == ("success", "")
        assert status.exit_codes == {node.name: 0 for node in trial.plan.nodes}
        assert not processes(trial.plan.run)

    local, simulated = seen["local"], seen["simulated"]
    same = local.value("params_sha256") == simulated.value("params_sha256")
    assert same is ("asp" not in strategy), "who comes first decides an asynchronous result"
    stops = [event for watch in (local, simulated) for event in watch.events if event["key"] == "run_stop"]
    assert [stop["metadata"]["reason"] for stop in stops] == ["budget used"] * 2
    assert same is (stops[0]["metadata"] == stops[1]["metadata"]) or "asp" in strategy
    assert kinds[0] == kinds[1], "analysis reads one format, whoever ran the nodes"


def keys(log: Path) -> set[tuple[str, str]]:
    """The kinds of events in a log, with their columns."""
    events = [json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in log.read_text().splitlines()]
    assert events, f"{log} is empty"
    shapes = [sorted(event["value"]) if isinstance(event["value"], dict) else [] for event in events]
    return {(event["key"], str(shape)) for event, shape in zip(events, shapes, strict=True)}


@pytest.mark.slow_where(transport=["grpc"])
@pytest.mark.parametrize("transport", DATA_PLANES)
@pytest.mark.parametrize(
    ("strategy", "victim"), [("ring", "worker-1"), ("bsp", "worker-1"), ("asp", "server-0"), ("ring", "coordinator")]
)
@pytest.mark.wall_clock
def test_a_killed_node_fails_the_trial_at_once_by_name(
    prepare: Prepare, strategy: str, victim: str, transport: str
) -> None:
    """Somebody who comes back from lunch must find a reason, not a run that hangs."""
    trial = prepare("local", strategy, transport, epochs=10_000)
    killed_at: list[float] = []

    def kill(event: Mapping[str, Any]) -> None:
        if event["key"] == "eval_stop" and not killed_at:
            killed_at.append(time.monotonic())
            os.kill(processes(trial.plan.run)[victim], signal.SIGKILL)

    status = trial.run(Onlooker(kill))

    assert time.monotonic() - killed_at[0] < 5
    assert status.status == "failed"
    assert status.reason.startswith(f"{victim} ended with exit code -9")
    assert status.exit_codes[victim] == -9
    assert not processes(trial.plan.run)


def test_a_node_without_a_plan_fails_the_trial_with_its_complaint(prepare: Prepare) -> None:
    """What a node says on its standard error is the only thing that tells what is wrong with it."""
    trial = prepare("local", "ring")
    (trial.folder / "plan.json").write_text('{"run": 7}')

    status = trial.run(Onlooker())

    assert status.status == "failed"
    assert status.reason.endswith("plan.json is not a plan: run: Input should be a valid string")
    assert "ended with exit code 2" in status.reason
    assert not processes(trial.plan.run)


@pytest.mark.slow_where(transport=["tcp"])
@pytest.mark.parametrize("transport", DATA_PLANES)
@pytest.mark.parametrize("node", ["coordinator", "server-0", "worker-0"])
def test_the_last_word_of_a_node_that_fails_is_why(prepare: Prepare, tmp_path: Path, node: str, transport: str) -> None:
    """A trial's reason is the last line of its standard error, and nobody else is there."""
    trial = prepare("local", "asp", transport)
    plan = json.loads(trial.plan.model_dump_json())
    plan["timeouts"] |= {"start": "500ms", "run": "1s"}
    (trial.folder / "plan.json").write_text(json.dumps(plan))
    issue_certificates(trial.plan.run, (each.name for each in trial.plan.nodes), tmp_path)
    given = ("--plan", trial.folder / "plan.json", "--secrets", tmp_path / node)

    alone = subprocess.run(
        [sys.executable, "-m", "services.node", "node", node, *given],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert alone.returncode == REPORTED_FAILURE_EXIT_CODE
    (said,) = alone.stderr.splitlines()
    assert said.startswith(("DeadlineExceeded: ", "PeerUnreachable: "))


def test_a_simulation_that_fails_says_why_and_the_next_one_runs(prepare: Prepare) -> None:
    """One process simulates trial after trial: a broken one must not take the others with it."""
    good, bad = prepare("simulated", "ring"), prepare("simulated", "bsp")
    plan = json.loads(bad.plan.model_dump_json())
    plan["timeouts"]["step"] = "1us"
    (bad.folder / "plan.json").write_text(json.dumps(plan))
    bad.engine.close()
    bad.engine = good.engine

    failed, succeeded = bad.run(Onlooker()), good.run(Onlooker())

    assert failed.status == "failed"
    assert "DeadlineExceeded: no message" in failed.reason
    assert succeeded.status == "success"
