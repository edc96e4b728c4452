"""Connection of a metered process to the agent of its node."""

import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from .protocol import BEGIN, COMPUTE_S, END, HELLO, NOTE, STEP, STEP_TIMES, encode_message
from .step_records import CollectiveRecord, StepRecord


class AgentClient:
    """Receiver of steps that reports them to the node agent.

    Replies have no time limit: the agent waits for the agents of other nodes, and its end closes the connection.
    """

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._lines = self._socket.makefile("rb")

    def send_hello(self, pid: int, torch_version: str) -> None:
        """Report the process."""
        self._send({"kind": HELLO, "pid": pid, "torch": torch_version})

    def begin_training(self, begin_s: float) -> float | None:
        """Report the begin of the first step; return its compute time."""
        self._send({"kind": BEGIN, "begin_s": begin_s})
        return self._read_compute_time()

    def receive_step(self, step: StepRecord) -> float | None:
        """Report a step; return the compute time of the next step."""
        times = {
            name: value() if callable(value) else value
            for name, value in ((name, getattr(step, name)) for name in STEP_TIMES)
        }
        rows = [record.row() for record in (*step.start_collectives, *step.collectives)]
        self._send({"kind": STEP, "number": step.number, **times, "collectives": rows})
        return self._read_compute_time()

    def send_end(self, collectives: Sequence[CollectiveRecord], parameters_sha256: str | None) -> None:
        """Report the collectives after the last step and the digest of the parameters, and close the connection."""
        rows = [record.row() for record in collectives]
        self._send({"kind": END, "collectives": rows, "parameters_sha256": parameters_sha256})
        self.close()

    def send_note(self, text: str) -> None:
        """Report a problem."""
        self._send({"kind": NOTE, "text": text})

    def close(self) -> None:
        """Close the connection."""
        self._lines.close()
        self._socket.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        self._socket.sendall(encode_message(message))

    def _read_compute_time(self) -> float | None:
        line = self._lines.readline()
        if not line:
            raise ConnectionError("the node agent has closed the connection")
        compute_s = json.loads(line)[COMPUTE_S]
        return None if compute_s is None else float(compute_s)
