"""A helper that does not answer is not one that can't, and none is left behind."""

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
from compose.engines.containers.link_enforcement import TrialLinks
from compose.runs.supervisor import TrialFailed
from services.schema.errors import HostError

Answers = Callable[[dict[str, Any]], list[dict[str, Any]]]


class Engine:
    """Containers whose helpers answer as a function says, until it says nothing."""

    def __init__(self, answers: Answers, attach: Exception | None = None) -> None:
        self.answers, self.attach, self.removed = answers, attach, 0
        self.containers, self.api = SimpleNamespace(create=self._create), SimpleNamespace(attach_socket=self._attach)

    def _create(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(id="any", start=lambda: None, remove=self._remove)

    def _remove(self, *, force: bool) -> None:
        self.removed += force

    def _attach(self, _: str, params: dict[str, int]) -> socket.socket:
        if self.attach:
            raise self.attach
        ours, theirs = socket.socketpair()
        threading.Thread(target=self._serve, args=(theirs,), daemon=True).start()
        return ours

    def _serve(self, wire: socket.socket) -> None:
        for line in wire.makefile():
            if not (answers := self.answers(json.loads(line))):
                wire.shutdown(socket.SHUT_RDWR)
                return
            for answer in answers:
                text = json.dumps(answer).encode() + b"\n"
                wire.sendall(struct.pack(">BxxxI", 1, len(text)) + text)


def refuses(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The kernel can do `yes` and nothing else."""
    works = request["script"] == "yes"
    return [{"id": request["id"], "ok": works, **({"said": ""} if works else {"why": "no such module"})}]


def tried(engine: Engine) -> set[Any]:
    """What of two scripts works."""
    return probe_kernel_features(engine, "any", {"htb": "yes", "netem": "no"}, {})  # type: ignore[arg-type]


def test_a_script_that_fails_is_a_kernel_that_cannot() -> None:
    engine = Engine(refuses)

    assert tried(engine) == {"htb"}
    assert engine.removed == 1


def test_a_helper_that_dies_says_nothing_about_the_kernel() -> None:
    """A lower rung would be used in silence."""
    engine = Engine(lambda request: refuses(request) if request["script"] == "yes" else [])

    with pytest.raises(HostError, match="netem: the helper container has ended"):
        tried(engine)
    assert engine.removed == 1


def test_an_answer_that_nobody_waits_for_ends_no_reader() -> None:
    """Its request has failed already; the next one must still be heard."""
    engine = Engine(lambda request: [{"id": 99, "ok": True}, *refuses(request)])
    helper = LinkHelperContainer(engine, "any", "none", {})  # type: ignore[arg-type]

    assert helper.request("script", timeout_s=5.0, script="yes") == {"said": ""}
    assert helper.request("script", timeout_s=5.0, script="yes") == {"said": ""}


def test_a_container_that_cannot_be_attached_to_does_not_stay() -> None:
    engine = Engine(refuses, attach=APIError("busy"))

    with pytest.raises(APIError):
        LinkHelperContainer(engine, "any", "none", {})  # type: ignore[arg-type]
    assert engine.removed == 1


def test_a_helper_that_comes_up_after_the_end_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    links = TrialLinks.__new__(TrialLinks)
    links.__dict__.update(plan=SimpleNamespace(run="run", trial="trial"), helpers={}, _client=None, _image="any")
    links.__dict__.update(_wait_for_container_id=lambda name: name, _lock=threading.Lock(), _closed=False)

    def slow(*_: Any) -> Any:
        links.close()  # while the engine still starts it
        return SimpleNamespace(close=lambda: closed.append("helper"))

    monkeypatch.setattr("compose.engines.containers.link_enforcement.LinkHelperContainer", slow)

    with pytest.raises(TrialFailed, match="being stopped"):
        links._start_helper_container("worker-0")
    assert closed == ["helper"]


def test_whatever_fails_at_the_end_the_rest_is_removed() -> None:
    done: list[str] = []

    def step(name: str, *, fails: bool = False) -> Callable[..., Any]:
        def act(*_: Any, **__: Any) -> tuple[()]:
            done.append(name)
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
    assert done == ["timeline", "links", "pool", "containers", "networks", "events", "client"]


@pytest.mark.parametrize(("error", "asked"), [(TrialFailed, DOWN_TRIES), (DockerDaemonTimeout, 1)])
def test_an_engine_that_refuses_is_asked_again_and_one_that_hangs_is_not(
    error: type[TrialFailed], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks: list[str] = []

    def compose(*arguments: str) -> None:
        asks.append(arguments[0])
        raise error

    monkeypatch.setattr("compose.engines.containers.containers.DOWN_RETRY_DELAY_S", 0.0)
    nobody = SimpleNamespace(list=lambda **_: [])
    nodes = NodeContainers.__new__(NodeContainers)
    nodes.__dict__.update(_run_docker_compose=compose, _client=SimpleNamespace(containers=nobody, networks=nobody))
    nodes.__dict__.update(_plan=SimpleNamespace(run="run", trial="trial"))

    with pytest.raises(DockerDaemonTimeout) if error is DockerDaemonTimeout else nullcontext():
        nodes._remove_networks()
    assert asks == ["down"] * asked
