"""What tests ask for by name."""

import os
import time
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import settings

from compose.engines import create_engine
from compose.engines.containers.engine import DockerEngine
from compose.runs.interrupt import raise_on_first_stop_signal
from compose.runs.supervisor import LogTail, TrialFailed
from compose.scenario_files.load import load_scenario
from services.plan import COORDINATOR, Plan, make_plan
from services.plan.trial_outcome import TrialOutcome
from services.runtime.clock import VirtualTimeLoop
from services.runtime.device import Device, DeviceSelection, select_device
from services.schema.errors import HostError

settings.register_profile("any host", deadline=None)  # a busy host is slow, not wrong
settings.load_profile("any host")

SERIAL_FOLDERS = {"compose", "docker", "engines", "ensayo"}  # their tests start nodes

InVirtualTime: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """Every device that this host has; the same test body runs on each."""
    want: DeviceSelection = request.param
    try:
        return select_device(want)
    except HostError as absent:
        pytest.skip(str(absent))


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Generator[None, object, object]:
    """Tests that are told to stop, as by `timeout`, remove the containers and processes that they have started."""
    with raise_on_first_stop_signal():
        return (yield)


@pytest.hookimpl(tryfirst=True)  # before pytest looks at `-m`
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow cases, and tests that may try again.

    Whoever else uses a host makes some seconds longer, a fault of ours all: six tries, every one listed.

    Trials in containers begin with a probe of their links in real seconds, and fail where those are not as declared.
    A shared host may be busy for minutes: tries are apart from each other. Where bits and bytes are compared only a
    trial that failed has another try: what is right five times of six is wrong.
    """
    for item in items:
        if any(has_values(item, mark.kwargs) for mark in item.iter_markers("slow_where")):
            item.add_marker(pytest.mark.slow)
        if item.path.parent.name in SERIAL_FOLDERS or any(map(item.get_closest_marker, ("docker", "wall_clock"))):
            item.add_marker(pytest.mark.serial)
        if item.get_closest_marker("wall_clock") or item.get_closest_marker("docker"):
            reasons = ["TrialFailed", "TimeoutExpired", *["AssertionError"] * (not item.get_closest_marker("exact"))]
            item.add_marker(pytest.mark.flaky(reruns=5, reruns_delay=20, only_rerun=reasons))


def has_values(item: pytest.Item, values: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether every named parameter of a test case has one of the values listed for it."""
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return all(name in params and params[name] in listed for name, listed in values.items())


def pytest_addoption(parser: pytest.Parser) -> None:
    """Expected texts are files beside their inputs; this writes them anew, for review."""
    parser.addoption("--rewrite", action="store_true", help="write expected texts anew")


@pytest.fixture(scope="session")
def in_virtual_time() -> InVirtualTime:
    """Runs a coroutine in a virtual loop of its own; what it returns."""

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        loop = VirtualTimeLoop()
        try:
            return loop.run_until_complete(main)
        finally:
            loop.close()

    return run


@pytest.fixture(scope="session")
def docker_engine() -> DockerEngine:
    """The engine that runs containers, its image built; where a run of the tests must not go without, absence fails."""
    engine = DockerEngine()
    if missing := engine.missing_requirement():
        (pytest.fail if os.environ.get("ENSAYO_REQUIRE_DOCKER") == "1" else pytest.skip)(missing)
    engine.prepare(Nobody())
    return engine


class Nobody:
    """Looks on and says nothing."""

    def event_logged(self, plan: Plan, event: Mapping[str, Any]) -> None:
        """The coordinator has logged something."""

    def preparation_started(self, what: str) -> None:
        """An engine builds."""


@dataclass(frozen=True)
class Trial:
    """A trial that is over, as its folder tells it."""

    plan: Plan
    status: TrialOutcome
    folder: Path

    def events(self, node: str, key: str) -> list[dict[str, Any]]:
        """A node's events of one key."""
        return [
            event for event in LogTail(self.folder / "logs" / f"{node}.log").read_new_events() if event["key"] == key
        ]

    def value(self, node: str, key: str) -> Any:
        """What a node has logged exactly once."""
        (event,) = self.events(node, key)
        return event["value"]

    def rows(self, node: str, key: str) -> list[dict[str, Any]]:
        """All rows of a batched event, by column."""
        batches = (event["value"] for event in self.events(node, key))
        return [dict(zip(batch["columns"], row, strict=True)) for batch in batches for row in batch["rows"]]

    def hashes(self, worker: str) -> dict[int, str]:
        """The digest of a worker's parameters after each step that logged one."""
        return {event["metadata"]["step"]: event["value"] for event in self.events(worker, "node_hash")}

    @property
    def params_sha256(self) -> str:
        return str(self.value(COORDINATOR, "params_sha256"))


RunTrial: TypeAlias = Callable[..., Trial]


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.docker)])
def engine(request: pytest.FixtureRequest) -> str:
    """Every engine that runs nodes as processes of their own, if this host has it."""
    if request.param == "docker":
        request.getfixturevalue("docker_engine")
    return str(request.param)


@pytest.fixture
def run_trial(tmp_path: Path) -> RunTrial:
    """`run_trial(engine, path, strategy, **settings)`: runs the trial of a scenario that has this strategy."""

    def run(engine: str, scenario: Path, strategy: str, *, hash_every_step: bool = False, **settings: str) -> Trial:
        trials = load_scenario(scenario, {key.replace("__", "."): value for key, value in settings.items()}).trials()
        trial = next(trial for trial in trials if f"-{strategy}-" in trial.id)
        chosen, name = create_engine(engine), f"test-{time.time_ns():x}"
        nodes = 1 + trial.strategy.training_phases().server_count + trial.scenario.cluster.workers
        plan = make_plan(trial, name, chosen.name, chosen.choose_addresses(name, nodes))
        plan = plan.model_copy(update={"hash_every_step": hash_every_step})
        folder = tmp_path / name
        (folder / "logs").mkdir(parents=True)
        (folder / "plan.json").write_text(plan.model_dump_json())
        with closing(chosen):
            chosen.prepare(Nobody())
            status = chosen.run_trial(plan, folder, Nobody())
        if status.status != "success":
            raise TrialFailed(status.reason)
        return Trial(plan, status, folder)

    return run
