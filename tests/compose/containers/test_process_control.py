"""Control of the processes in containers on a host whose kernel does not freeze them at once."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest
from docker.errors import APIError

from compose.engines.containers import process_control
from compose.engines.containers.process_control import ContainerProcessControl
from compose.runs.trials.node_runner import TrialFailed

if TYPE_CHECKING:
    from docker.models.containers import Container

    from services.plan import Plan

BUSY = "Cannot pause container 1: OCI runtime pause failed: unable to freeze: unknown"  # of Docker on a busy host


@dataclass
class ContainerStub:
    """Container whose requests are recorded; the first requests to freeze it fail."""

    failures: int  # of `pause`
    error: str = BUSY
    exit_codes: dict[str, int] = field(default_factory=lambda: {"worker-1": 137})
    calls: list[str] = field(default_factory=list)

    def start(self) -> None:
        self.calls.append("start")

    def kill(self) -> None:
        self.calls.append("kill")
        self.exit_codes["worker-1"] = 137

    def unpause(self) -> None:
        self.calls.append("unpause")

    def pause(self) -> None:
        self.calls.append("pause")
        if self.failures:
            self.failures -= 1
            raise APIError(self.error)

    def control(self) -> ContainerProcessControl:
        container = cast("Container", self)
        return ContainerProcessControl(
            cast("Plan", None), lambda _: container, self.exit_codes, lambda name: self.calls.append(f"shape {name}")
        )


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_control, "FREEZE_RETRY_DELAY_S", 0.0)


def test_a_container_that_the_kernel_does_not_freeze_at_once_is_frozen_again() -> None:
    """On a busy host, the restart of a node failed, and the trial with it."""
    container = ContainerStub(failures=2)

    container.control().apply_action("freeze", "worker-1")

    assert container.calls == ["pause"] * 3


def test_a_restarted_node_is_shaped_while_it_is_frozen() -> None:
    container = ContainerStub(failures=1)

    container.control().apply_action("start", "worker-1")

    assert container.calls == ["start", "pause", "pause", "shape worker-1", "unpause"]
    assert container.exit_codes == {}


def test_a_restarted_node_that_can_not_be_frozen_in_time_is_killed_and_started_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It could join before its link is shaped."""
    monkeypatch.setattr(process_control, "FREEZE_TIMEOUT_S", -1.0)
    container = ContainerStub(failures=1)

    container.control().apply_action("start", "worker-1")

    assert container.calls == ["start", "pause", "kill", "start", "pause", "shape worker-1", "unpause"]
    assert container.exit_codes == {}


def test_a_node_that_can_never_be_frozen_fails_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_control, "FREEZE_TIMEOUT_S", -1.0)
    container = ContainerStub(failures=99)

    with pytest.raises(TrialFailed, match=r"worker-1 could not be frozen in -1 s: .*unable to freeze"):
        container.control().apply_action("start", "worker-1")

    assert container.calls.count("start") == process_control.START_ATTEMPTS
    assert "shape worker-1" not in container.calls


def test_other_errors_of_docker_are_not_repeated() -> None:
    container: Any = ContainerStub(failures=1, error="No such container: 1")

    with pytest.raises(APIError, match="No such container"):
        container.control().apply_action("freeze", "worker-1")

    assert container.calls == ["pause"]
