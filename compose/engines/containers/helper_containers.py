"""How is something done inside a node's network namespace? By a container beside it, told line by line what to do."""

import json
import socket
import struct
import threading
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from itertools import count
from typing import Any

import docker
from docker.errors import DockerException, NotFound

from compose.runs.supervisor import TrialFailed
from services.schema.errors import HostError

HELPER = "shaper"
PIDS, MEMORY = 64, "192m"  # a shell and one tc at a time, threads of probes, a delay line with its laws
ANSWER_S = 60.0
_FRAME = struct.Struct(">BxxxI")
_STDOUT = 1


class Refused(TrialFailed):
    """A helper has tried what it was asked for, and could not."""


class Helper:
    """A container that shares a node's network namespace and holds NET_ADMIN; it ends when nobody is attached."""

    def __init__(self, client: docker.DockerClient, image: str, network: str, labels: Mapping[str, str]) -> None:
        """Starts it.

        Args:
            client: of the engine.
            image: of nodes.
            network: `container:<id>` or `none`.
            labels: of a run; `ensayo clean` finds it by them.

        Raises:
            DockerException: the engine refuses, as when the node is gone.
        """
        self._client = client
        self._numbers = count()
        self._asked: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._complaints = b""
        self._ended = self._closed = False
        self.container = client.containers.create(
            image,
            ["-m", "services.shaper"],
            entrypoint=["python"],
            network_mode=network,
            user="0:0",
            cap_drop=["ALL"],
            cap_add=["NET_ADMIN"],
            security_opt=["no-new-privileges:true"],
            read_only=True,
            pids_limit=PIDS,
            mem_limit=MEMORY,
            stdin_open=True,  # it ends with the connection, so also when this process is killed
            labels=dict(labels),
        )
        try:
            self._attach()
            self.container.start()
        except BaseException:
            self._discard()  # nobody else knows of it
            raise
        threading.Thread(target=self._read, daemon=True).start()

    def _attach(self) -> None:
        wanted = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        self._stream = self._client.api.attach_socket(self.container.id, params=wanted)
        self._socket = getattr(self._stream, "_sock", self._stream)
        self._socket.settimeout(None)

    def _discard(self) -> None:
        with suppress(NotFound):
            self.container.remove(force=True)

    def ask(self, what: str, **given: Any) -> Future[dict[str, Any]]:
        """Send a request; its answer comes later, and fails with TrialFailed; Refused is the helper's own word."""
        number = next(self._numbers)
        answer: Future[dict[str, Any]] = Future()
        self._asked[number] = answer
        line = json.dumps({"id": number, "do": what, **given}) + "\n"
        try:
            with self._lock:
                self._socket.sendall(line.encode())
        except OSError as error:
            self._fail(f"its helper is gone ({error})")
        if self._ended:
            self._fail(self._last_words())
        return answer

    def do(self, what: str, timeout_s: float = ANSWER_S, **given: Any) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
            TrialFailed: it could not be done, or not in time.
        """
        try:
            return self.ask(what, **given).result(timeout_s)
        except TimeoutError as late:
            raise TrialFailed(f"no answer from its helper within {timeout_s:g} s") from late

    @property
    def complaint(self) -> str:
        """Why it has ended, unless it was told to; empty while it lives."""
        return self._last_words() if self._ended and not self._closed else ""

    def close(self) -> None:
        """End it; the engine removes it with everything else of the trial."""
        self._closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # its reader wakes up
        with suppress(OSError):
            self._socket.close()
            self._stream.close()

    def remove(self) -> None:
        """End and remove it."""
        self.close()
        self._discard()

    def _read(self) -> None:
        """Sort what the container prints into answers and complaints, until it ends."""
        said = b""
        with suppress(OSError, ValueError):  # closed under its reader
            while header := self._exactly(_FRAME.size):
                stream, size = _FRAME.unpack(header)
                text = self._exactly(size)
                if stream != _STDOUT:
                    self._complaints += text
                    continue
                *lines, said = (said + text).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        self._ended = True
        self._fail(self._last_words())

    def _take(self, answer: dict[str, Any]) -> None:
        asked = self._asked.pop(answer.pop("id"), None)
        if asked is None:  # it has failed meanwhile
            return
        with suppress(InvalidStateError):
            if answer.pop("ok"):
                asked.set_result(answer)
            else:
                asked.set_exception(Refused(answer["why"]))

    def _fail(self, why: str) -> None:
        for number in list(self._asked):
            with suppress(InvalidStateError, KeyError):
                self._asked.pop(number).set_exception(TrialFailed(why))

    def _last_words(self) -> str:
        words = self._complaints.decode(errors="replace").strip().splitlines()
        return f"its helper has ended: {words[-1] if words else 'no message'}"

    def _exactly(self, size: int) -> bytes:
        """So many bytes; none at the end."""
        parts = b""
        while len(parts) < size:
            if not (part := self._socket.recv(size - len(parts))):
                return b""
            parts += part
        return parts


def capabilities(
    client: docker.DockerClient, image: str, trials: Mapping[Any, str], labels: Mapping[str, str]
) -> set[Any]:
    """Which of some scripts work in a network namespace that is thrown away afterwards.

    Raises:
        HostError: no such namespace could be had, or nobody told whether a script works.
    """
    try:
        helper = Helper(client, image, "none", labels)
    except DockerException as error:
        raise HostError(f"the kernel's features could not be tried: {error}") from error
    works = set()
    try:
        for name, script in trials.items():
            with suppress(Refused):
                helper.do("script", script=script)
                works.add(name)
    except TrialFailed as error:  # silence must not be taken for a kernel that can't
        raise HostError(f"the kernel's features could not be tried: {name}: {error}") from error
    finally:
        helper.remove()
    return works
