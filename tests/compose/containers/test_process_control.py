"""Control of the processes in containers: faults that overlap, and a host whose kernel can't freeze them at once."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest
from docker.errors import APIError
from requests import Response

from compose.engines.containers import process_control
from compose.engines.containers.process_control import ContainerProcessControl
from compose.runs.trials.node_runner import TrialFailed
from services.cluster.node_faults import NodeAction

if TYPE_CHECKING:
    from docker.models.containers import Container

    from services.plan import Plan

BUSY = "Cannot pause container 1: OCI runtime pause failed: unable to freeze: unknown"  # of Docker on a busy host


@dataclass
class ContainerStub:
    """Container whose requests are recorded; the first requests to freeze it fail, and those that Docker rejects."""

    failures: int = 0  # of `pause`
    error: str = BUSY
    exit_codes: dict[str, int] = field(default_factory=lambda: {"worker-1": 137})
    calls: list[str] = field(default_factory=list)
    status: str = "running"  # as of the last `reload`
    present_status: str = "running"

    def reload(self) -> None:
        self.status = self.present_status

    def start(self) -> None:
        self.calls.append("start")
        self.present_status = "running"

    def kill(self) -> None:
        if self.present_status == "exited":
            raise APIError("is not running", response=make_response(409))
        self.calls.append("kill")
        self.exit_codes["worker-1"] = 137
        self.present_status = "exited"

    def unpause(self) -> None:
        if self.present_status != "paused":
            raise APIError("is not paused", response=make_response(500))
        self.calls.append("unpause")
        self.present_status = "running"

    def pause(self) -> None:
        if self.present_status != "running":
            raise APIError(f"is {self.present_status}", response=make_response(409))
        self.calls.append("pause")
        if self.failures:
            self.failures -= 1
            raise APIError(self.error)
        self.present_status = "paused"

    def control(self) -> ContainerProcessControl:
        container = cast("Container", self)
        return ContainerProcessControl(
            cast("Plan", None), lambda _: container, self.exit_codes, lambda name: self.calls.append(f"shape {name}")
        )


def make_response(status_code: int) -> Response:
    """Return Docker's response to a request that it rejects."""
    response = Response()
    response.status_code = status_code
    return response


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


def test_the_end_of_a_stop_ignores_a_node_that_was_killed_meanwhile() -> None:
    """The stop and the kill of a node may overlap; `local` ignores the end of the stop, too."""
    container = ContainerStub()

    for action in ("freeze", "kill", "thaw"):
        container.control().apply_action(action, "worker-1")

    assert container.calls == ["pause", "kill"]


def test_a_stop_that_begins_during_another_one_has_no_effect() -> None:
    container = ContainerStub()

    for action in ("freeze", "freeze", "thaw", "thaw"):
        container.control().apply_action(action, "worker-1")

    assert container.calls == ["pause", "unpause"]


@pytest.mark.parametrize("action", ["kill", "freeze"])
def test_a_fault_ignores_a_node_that_has_just_ended(action: NodeAction) -> None:
    """The supervisor learns of the end of a node only after a while."""
    container = ContainerStub(present_status="exited")

    container.control().apply_action(action, "worker-1")

    assert container.calls == []


def test_other_errors_of_a_kill_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    container = ContainerStub()

    def fail(_: ContainerStub) -> None:
        raise APIError("permission denied", response=make_response(500))

    monkeypatch.setattr(ContainerStub, "kill", fail)

    with pytest.raises(APIError, match="500 Server Error"):
        container.control().apply_action("kill", "worker-1")
