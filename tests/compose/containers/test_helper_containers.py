"""A helper container that does not answer is not a kernel that lacks a feature, and no helper is left running."""

import json
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError

from compose.engines.containers.containers import DOWN_TRIES, DockerDaemonTimeout, NodeContainers
from compose.engines.containers.helper_containers import LinkHelperContainer, probe_kernel_features
from compose.engines.containers.link_enforcement import LinkShaper
from compose.runs.trials.node_runner import TrialFailed
from services.plan.trial_outcome import LinkShapingRecord
from services.schema.errors import HostError

AnswerRequest = Callable[[dict[str, Any]], list[dict[str, Any]]]


class FakeDockerClient:
    """A Docker client whose helper containers answer as a function decides; an empty answer ends the helper."""

    def __init__(self, answer_request: AnswerRequest, attach_error: Exception | None = None) -> None:
        self.answer_request, self.attach_error, self.removal_count = answer_request, attach_error, 0
        self.containers, self.api = SimpleNamespace(create=self._create), SimpleNamespace(attach_socket=self._attach)

    def _create(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(id="any", start=lambda: None, remove=self._remove)

    def _remove(self, *, force: bool) -> None:
        self.removal_count += force

    def _attach(self, _: str, params: dict[str, int]) -> socket.socket:
        if self.attach_error:
            raise self.attach_error
        local_socket, remote_socket = socket.socketpair()
        threading.Thread(target=self._serve, args=(remote_socket,), daemon=True).start()
        return local_socket

    def _serve(self, connection: socket.socket) -> None:
        for line in connection.makefile():
            if not (responses := self.answer_request(json.loads(line))):
                connection.shutdown(socket.SHUT_RDWR)
                return
            for answer in responses:
                text = json.dumps(answer).encode() + b"\n"
                connection.sendall(struct.pack(">BxxxI", 1, len(text)) + text)


def answer_as_kernel_without_netem(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Answer that the script `yes` works in the kernel and all others fail."""
    works = request["script"] == "yes"
    return [{"id": request["id"], "ok": works, **({"output": ""} if works else {"why": "no such module"})}]


def working_scripts(client: FakeDockerClient) -> set[Any]:
    """Return the names of the two scripts that work."""
    return probe_kernel_features(client, "any", {"htb": "yes", "netem": "no"}, {})  # type: ignore[arg-type]


def test_a_failing_script_means_that_the_kernel_lacks_the_feature() -> None:
    client = FakeDockerClient(answer_as_kernel_without_netem)

    assert working_scripts(client) == {"htb"}
    assert client.removal_count == 1


def test_a_helper_that_dies_is_an_error_and_not_a_missing_feature() -> None:
    """Otherwise a less exact mechanism would be used without notice."""
    client = FakeDockerClient(
        lambda request: answer_as_kernel_without_netem(request) if request["script"] == "yes" else []
    )

    with pytest.raises(HostError, match="netem: the helper container has ended"):
        working_scripts(client)
    assert client.removal_count == 1


def test_an_unexpected_answer_does_not_end_the_reader() -> None:
    """The request of this answer has failed already; the next answer must still be read."""
    client = FakeDockerClient(lambda request: [{"id": 99, "ok": True}, *answer_as_kernel_without_netem(request)])
    helper = LinkHelperContainer(client, "any", "none", {})  # type: ignore[arg-type]

    assert helper.request("script", timeout_s=5.0, script="yes") == {"output": ""}
    assert helper.request("script", timeout_s=5.0, script="yes") == {"output": ""}


def test_a_container_that_cannot_be_attached_to_is_removed() -> None:
    client = FakeDockerClient(answer_as_kernel_without_netem, attach_error=APIError("busy"))

    with pytest.raises(APIError):
        LinkHelperContainer(client, "any", "none", {})  # type: ignore[arg-type]
    assert client.removal_count == 1


def test_a_helper_that_starts_after_the_end_of_the_trial_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed_containers = []
    links = LinkShaper.__new__(LinkShaper)
    links.__dict__.update(plan=SimpleNamespace(run="run", trial="trial"), helpers={}, _client=None, _image="any")
    links.__dict__.update(_wait_for_container_id=lambda name: name, _lock=threading.Lock(), _closed=False)

    def close_trial_while_starting(*_: Any) -> Any:
        links.close()  # while Docker still starts the helper
        return SimpleNamespace(close=lambda: closed_containers.append("helper"))

    monkeypatch.setattr("compose.engines.containers.link_enforcement.LinkHelperContainer", close_trial_while_starting)

    with pytest.raises(TrialFailed, match="being stopped"):
        links._start_helper_container("worker-0")
    assert closed_containers == ["helper"]


def test_a_link_change_that_is_due_while_a_helper_is_replaced_fails_with_a_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error other than that of the reply would end the thread that sends the link changes of all nodes."""
    helper = LinkHelperContainer(FakeDockerClient(answer_as_kernel_without_netem), "any", "none", {})  # type: ignore[arg-type]
    record = LinkShapingRecord(rung="tc-htb")
    links = LinkShaper.__new__(LinkShaper)
    links.__dict__.update(helpers={"worker-1": helper}, records={"worker-1": record}, _initial_counters={})
    replies = []

    def change_link_while_shaping(_: LinkShaper, name: str) -> LinkShapingRecord:
        replies.append(links.helpers[name].submit("at", number=0, moment=0.0, programs=[], delays={}))
        return record

    monkeypatch.setattr(LinkShaper, "shape_link", change_link_while_shaping)

    links.shape_link_again("worker-1")

    (reply,) = replies
    with pytest.raises(TrialFailed, match="the helper container"):
        reply.result(5.0)


def test_a_failing_step_of_the_removal_does_not_prevent_the_others() -> None:
    executed_steps: list[str] = []

    def step(name: str, *, fails: bool = False) -> Callable[..., Any]:
        def act(*_: Any, **__: Any) -> tuple[()]:
            executed_steps.append(name)
            if fails:
                raise RuntimeError(name)
            return ()

        return act

    nodes = NodeContainers.__new__(NodeContainers)
    nodes.__dict__.update(
        link_events=SimpleNamespace(close=step("timeline")),
        links=SimpleNamespace(close=step("links", fails=True)),
        _container_ids={},
        _executor=SimpleNamespace(shutdown=step("pool")),
        _remove_containers=step("containers", fails=True),
        _remove_networks=step("networks"),
        _engine_events=SimpleNamespace(close=step("events")),
        _client=SimpleNamespace(close=step("client")),
    )

    with pytest.raises(RuntimeError):
        nodes.stop()
    assert executed_steps == ["timeline", "links", "pool", "containers", "networks", "events", "client"]


@pytest.mark.parametrize(("error", "call_count"), [(TrialFailed, DOWN_TRIES), (DockerDaemonTimeout, 1)])
def test_compose_down_is_repeated_after_an_error_but_not_after_a_timeout(
    error: type[TrialFailed], call_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def failing_compose(*arguments: str) -> None:
        calls.append(arguments[0])
        raise error

    monkeypatch.setattr("compose.engines.containers.containers.DOWN_RETRY_DELAY_S", 0.0)
    empty_collection = SimpleNamespace(list=lambda **_: [])
    nodes = NodeContainers.__new__(NodeContainers)
    nodes.__dict__.update(
        _call_docker_compose=failing_compose,
        _client=SimpleNamespace(containers=empty_collection, networks=empty_collection),
    )
    nodes.__dict__.update(_plan=SimpleNamespace(run="run", trial="trial"))

    with pytest.raises(DockerDaemonTimeout) if error is DockerDaemonTimeout else nullcontext():
        nodes._remove_networks()
    assert calls == ["down"] * call_count
