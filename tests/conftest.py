"""Fixtures, marks and records that tests of several folders share."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, get_args

import pytest
from guarded_arrays import GuardedDevice
from hypothesis import settings
from threadpoolctl import threadpool_limits

from compose.engines import create_engine
from compose.engines.containers.engine import DockerEngine
from compose.runs.interrupt import raise_on_first_stop_signal
from compose.runs.trials.log_tail import LogTail
from compose.runs.trials.node_runner import LinkProbeFailed, TrialFailed
from compose.scenario_files.load import load_scenario
from services.plan import COORDINATOR, Plan, make_plan
from services.plan.trial_outcome import TrialOutcome
from services.runtime.clock import VirtualTimeLoop
from services.runtime.device import ComputeDevice, DeviceSelection, select_compute_device, selection
from services.schema.errors import HostError

settings.register_profile("any host", deadline=None)  # on a busy host tests are slow, not wrong
settings.load_profile("any host")

SERIAL_FOLDERS = {"compose", "docker", "engines", "ensayo"}  # their tests start nodes, unless marked `without_nodes`

InVirtualTime: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["cpu", "guarded", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> ComputeDevice:
    """Return each device of this host in turn; the same test body runs on each.

    The device `guarded` refuses what a GPU refuses.
    """
    if request.param == GuardedDevice.name:
        return GuardedDevice()
    kind: DeviceSelection = request.param
    try:
        return select_compute_device(kind)
    except HostError as error:
        pytest.skip(str(error))


@pytest.fixture
def use_guarded_device(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after whose call all workers in this process compute on the guarded device."""

    def use() -> None:
        for kind in get_args(DeviceSelection):
            monkeypatch.setitem(selection._SELECTORS, kind, lambda _: GuardedDevice())

    return use


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Generator[None, object, object]:
    """Remove the started containers and processes when a signal stops the tests, as `timeout` does."""
    with raise_on_first_stop_signal():
        return (yield)


@pytest.hookimpl(tryfirst=True)  # before pytest evaluates `-m`
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow and serial cases, and tests that may be repeated.

    Trials in containers begin with a probe of their links, and a probe fails on a busy host. So tests in containers are
    repeated after a failed probe. Only tests that compare measured seconds are repeated after a wrong result: a result
    that is right five times of six is wrong. A shared host may be busy for minutes, so there is a pause between the
    attempts, and each is listed.
    """
    for item in items:
        if any(has_values(item, mark.kwargs) for mark in item.iter_markers("slow_where")):
            item.add_marker(pytest.mark.slow)
        folders = set(item.nodeid.split("/"))
        may_run_beside_others = any(map(item.get_closest_marker, ("without_nodes", "side_by_side")))
        starts_nodes = folders & SERIAL_FOLDERS and not may_run_beside_others
        if starts_nodes or any(map(item.get_closest_marker, ("docker", "wall_clock"))):
            item.add_marker(pytest.mark.serial)
        if item.get_closest_marker("wall_clock"):
            item.add_marker(_repeat_after("AssertionError", "TimeoutExpired", LinkProbeFailed.__name__))
        elif item.get_closest_marker("docker"):
            item.add_marker(_repeat_after(LinkProbeFailed.__name__))


def _repeat_after(*error_names: str) -> pytest.MarkDecorator:
    """Return the mark of a test that has six attempts, as long as one of these errors ends them."""
    return pytest.mark.flaky(reruns=5, reruns_delay=20, only_rerun=list(error_names))


def has_values(item: pytest.Item, values: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether every named parameter of a test case has one of its allowed values."""
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return all(name in params and params[name] in allowed_values for name, allowed_values in values.items())


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--rewrite`, which writes the files of expected texts beside their inputs again, for review."""
    parser.addoption("--rewrite", action="store_true", help="write expected texts anew")


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread() -> Iterator[None]:
    """Compute on one thread, because several processes run tests at the same time."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def in_virtual_time() -> InVirtualTime:
    """Return a function that runs a coroutine in its own virtual-time loop and returns the result."""

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:  # cancels the tasks that are left after an error
            return runner.run(main)

    return run


@pytest.fixture(scope="session")
def docker_engine() -> DockerEngine:
    """Return the Docker engine with its image built; skip without Docker, or fail if Docker is required."""
    engine = DockerEngine()
    if missing := engine.missing_software():
        (pytest.fail if os.environ.get("ENSAYO_REQUIRE_DOCKER") == "1" else pytest.skip)(missing)
    engine.prepare(SilentObserver())
    return engine


class SilentObserver:
    """Observer that ignores all notifications."""

    def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None:
        """Ignore the event."""

    def engine_preparation_started(self, description: str) -> None:
        """Ignore the preparation."""


@dataclass(frozen=True)
class Trial:
    """A finished trial, with access to the events in its log files."""

    plan: Plan
    status: TrialOutcome
    folder: Path

    def events(self, node: str, key: str) -> list[dict[str, Any]]:
        """Return a node's events that have this key."""
        return [
            event for event in LogTail(self.folder / "logs" / f"{node}.log").read_new_events() if event["key"] == key
        ]

    def value(self, node: str, key: str) -> Any:
        """Return the value of an event that a node has logged exactly once."""
        (event,) = self.events(node, key)
        return event["value"]

    def rows(self, node: str, key: str) -> list[dict[str, Any]]:
        """Return all rows of a batched event, each as a dictionary by column."""
        batches = (event["value"] for event in self.events(node, key))
        return [dict(zip(batch["columns"], row, strict=True)) for batch in batches for row in batch["rows"]]

    def hashes(self, worker: str) -> dict[int, str]:
        """Return the digests of a worker's parameters, by the step after which they were logged."""
        return {event["metadata"]["step"]: event["value"] for event in self.events(worker, "node_hash")}

    @property
    def params_sha256(self) -> str:
        return str(self.value(COORDINATOR, "params_sha256"))


RunTrial: TypeAlias = Callable[..., Trial]


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.docker)])
def engine(request: pytest.FixtureRequest) -> str:
    """Return the name of each engine that runs nodes as separate processes; skip those that this host lacks."""
    if request.param == "docker":
        request.getfixturevalue("docker_engine")
    return str(request.param)


@pytest.fixture
def run_trial(tmp_path: Path) -> RunTrial:
    """Return `run_trial(engine, path, strategy, **settings)`, which runs the scenario's trial of this strategy."""

    def run(engine: str, scenario: Path, strategy: str, *, hash_every_step: bool = False, **settings: str) -> Trial:
        trials = load_scenario(scenario, {key.replace("__", "."): value for key, value in settings.items()}).trials()
        trial = next(trial for trial in trials if f"-{strategy}-" in trial.id)
        chosen_engine, run_name = create_engine(engine), f"test-{time.time_ns():x}"
        node_count = 1 + trial.strategy.training_phases().server_count + trial.scenario.cluster.workers
        plan = make_plan(trial, run_name, chosen_engine.name, chosen_engine.choose_addresses(run_name, node_count))
        plan = plan.model_copy(update={"hash_every_step": hash_every_step})
        folder = tmp_path / run_name
        (folder / "logs").mkdir(parents=True)
        (folder / "plan.json").write_text(plan.model_dump_json())
        with closing(chosen_engine):
            chosen_engine.prepare(SilentObserver())
            outcome = chosen_engine.run_trial(plan, folder, SilentObserver())
        if outcome.disturbance:
            raise LinkProbeFailed(outcome.disturbance)
        if outcome.status != "success":
            raise TrialFailed(outcome.reason)
        return Trial(plan, outcome, folder)

    return run
