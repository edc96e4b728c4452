"""Helper containers, which run `tc` and link probes inside the network namespace of a node's container.

A helper runs `services.shaper`: it reads one JSON request per line from standard input and prints one JSON reply per
line.
"""

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

from compose.runs.trials.node_runner import TrialFailed
from services.schema.errors import HostError

HELPER_ROLE = "shaper"
# Enough for a shell and one tc at a time, the threads of the probes, and the delay line.
HELPER_PIDS_LIMIT, HELPER_MEMORY_LIMIT = 64, "192m"
REPLY_TIMEOUT_S = 60.0
_FRAME_HEADER = struct.Struct(">BxxxI")  # of Docker's attach stream: number of the output stream, length in bytes
_STDOUT_STREAM = 1


class HelperRequestFailed(TrialFailed):
    """Error that a helper container reported when it tried to perform a request."""


class LinkHelperContainer:
    """A container that may change the links of a node, in the node's network namespace.

    It has the capability NET_ADMIN. The container ends when the connection to its standard input is closed.
    """

    def __init__(self, client: docker.DockerClient, image: str, network_mode: str, labels: Mapping[str, str]) -> None:
        """Start a helper container, which runs `services.shaper`.

        Args:
            client: connected to the Docker daemon.
            image: tag of the nodes' image.
            network_mode: `container:<id>` to share that container's network namespace, or `none`.
            labels: of the run; `ensayo clean` finds the container by them.

        Raises:
            DockerException: Docker can't start the container, for example because the node's container is gone.
        """
        self._client = client
        self._request_ids = count()
        self._pending_replies: dict[int, Future[dict[str, Any]]] = {}
        self._send_lock = threading.Lock()
        self._stderr = b""
        self._has_ended = self._is_closed = False
        self.container = client.containers.create(
            image,
            ["-m", "services.shaper"],
            entrypoint=["python"],
            network_mode=network_mode,
            user="0:0",
            cap_drop=["ALL"],
            cap_add=["NET_ADMIN"],
            security_opt=["no-new-privileges:true"],
            read_only=True,
            pids_limit=HELPER_PIDS_LIMIT,
            mem_limit=HELPER_MEMORY_LIMIT,
            stdin_open=True,  # the container ends with the connection, so also when the runner is killed
            labels=dict(labels),
        )
        try:
            self._attach_standard_streams()
            self.container.start()
        except BaseException:
            self._remove_container()  # the caller has no reference by which to remove the container
            raise
        threading.Thread(target=self._read_output, daemon=True).start()

    def _attach_standard_streams(self) -> None:
        parameters = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        self._stream = self._client.api.attach_socket(self.container.id, params=parameters)
        self._socket = getattr(self._stream, "_sock", self._stream)
        self._socket.settimeout(None)

    def _remove_container(self) -> None:
        with suppress(NotFound):
            self.container.remove(force=True)

    def submit(self, action_name: str, **arguments: Any) -> Future[dict[str, Any]]:
        """Send a request to the helper container and return a future of the reply.

        The future raises `HelperRequestFailed` when the helper reports an error, else `TrialFailed`.
        """
        request_id = next(self._request_ids)
        reply: Future[dict[str, Any]] = Future()
        self._pending_replies[request_id] = reply
        line = json.dumps({"id": request_id, "do": action_name, **arguments}) + "\n"
        try:
            with self._send_lock:
                self._socket.sendall(line.encode())
        except OSError as error:
            self._fail_pending_requests(f"the connection to the helper container is broken ({error})")
        if self._has_ended:
            self._fail_pending_requests(self._container_end_reason())
        return reply

    def request(self, action_name: str, timeout_s: float = REPLY_TIMEOUT_S, **arguments: Any) -> dict[str, Any]:
        """Send a request to the helper container, wait for the reply, and return the reply.

        Raises:
            TrialFailed: the helper reported an error, has ended, or did not reply within `timeout_s`.
        """
        try:
            return self.submit(action_name, **arguments).result(timeout_s)
        except TimeoutError as late:
            raise TrialFailed(f"the helper container did not reply to {action_name!r} within {timeout_s:g} s") from late

    @property
    def failure_reason(self) -> str:
        """Reason why the helper container has ended.

        Empty while the container runs and after `close`.
        """
        return self._container_end_reason() if self._has_ended and not self._is_closed else ""

    def close(self) -> None:
        """End the helper container.

        The trial removes it later, together with all other containers.
        """
        self._is_closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes up the thread that reads
        with suppress(OSError):
            self._socket.close()
            self._stream.close()

    def remove(self) -> None:
        """End the helper container and remove it."""
        self.close()
        self._remove_container()

    def _read_output(self) -> None:
        """Read the replies and errors of the helper container until its output ends.

        Replies come from standard output, errors from standard error.
        """
        unfinished_line = b""
        with suppress(OSError, ValueError):  # raised when `close` closes the socket meanwhile
            while header := self._receive_bytes(_FRAME_HEADER.size):
                stream, size_bytes = _FRAME_HEADER.unpack(header)
                text = self._receive_bytes(size_bytes)
                if stream != _STDOUT_STREAM:
                    self._stderr += text
                    continue
                *lines, unfinished_line = (unfinished_line + text).split(b"\n")
                for line in lines:
                    self._resolve_request(json.loads(line))
        self._has_ended = True
        self._fail_pending_requests(self._container_end_reason())

    def _resolve_request(self, helper_reply: dict[str, Any]) -> None:
        """Set a helper container's reply as the result of the request's future.

        If the reply contains an error, the error is set instead.
        """
        pending = self._pending_replies.pop(helper_reply.pop("id"), None)
        if pending is None:  # the request has failed already
            return
        with suppress(InvalidStateError):
            if helper_reply.pop("ok"):
                pending.set_result(helper_reply)
            else:
                pending.set_exception(HelperRequestFailed(helper_reply["why"]))

    def _fail_pending_requests(self, reason: str) -> None:
        for request_id in list(self._pending_replies):
            with suppress(InvalidStateError, KeyError):
                self._pending_replies.pop(request_id).set_exception(TrialFailed(reason))

    def _container_end_reason(self) -> str:
        lines = self._stderr.decode(errors="replace").strip().splitlines()
        return f"the helper container has ended: {lines[-1] if lines else 'no message'}"

    def _receive_bytes(self, byte_count: int) -> bytes:
        """Return exactly the requested number of bytes from the socket.

        Return no bytes if the connection ends earlier.
        """
        received = b""
        while len(received) < byte_count:
            if not (chunk := self._socket.recv(byte_count - len(received))):
                return b""
            received += chunk
        return received


def probe_kernel_features(
    client: docker.DockerClient, image: str, script_by_feature: Mapping[Any, str], labels: Mapping[str, str]
) -> set[Any]:
    """Return the kernel features whose test scripts succeed in a temporary container.

    The container has a network namespace of its own.

    Args:
        client: connected to the Docker daemon.
        image: tag of the nodes' image.
        script_by_feature: feature -> shell script that uses the feature.
        labels: of the temporary container; `ensayo clean` finds it by them.

    Raises:
        HostError: the temporary container could not be started, or it ended before all scripts were tried.
    """
    try:
        helper = LinkHelperContainer(client, image, "none", labels)
    except DockerException as error:
        raise HostError(
            f"the kernel's traffic-control features could not be probed, because no container of image {image} could "
            f"be started: {error}; `ensayo doctor` checks Docker, `ensayo images` builds the image"
        ) from error
    working_features = set()
    try:
        for name, script in script_by_feature.items():
            with suppress(HelperRequestFailed):
                helper.request("script", script=script)
                working_features.add(name)
    except TrialFailed as error:  # a missing reply does not show that the kernel lacks the feature
        raise HostError(f"the kernel's traffic-control features could not be probed: {name}: {error}") from error
    finally:
        helper.remove()
    return working_features
