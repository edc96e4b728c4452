"""Interface to a pair of nodes that measure message times, link rates and CPU costs on this host."""

import secrets
from abc import ABC, abstractmethod

from services.node.message_probe import REQUESTER, RESPONDER, MessageTimesAndRates
from services.schema.errors import HostError

NODE_NAMES = (REQUESTER, RESPONDER)
MEASUREMENT_TIMEOUT_S = 60.0
READY_LINE = "ready"  # printed by the requesting node when both nodes are connected


class CalibrationNodePair(ABC):
    """Two nodes that measure the cost of messages over one transport.

    One node sends requests, the other replies.
    """

    @abstractmethod
    def measure_message_timing(self, link_rate_bps: float | None) -> MessageTimesAndRates:
        """Measure messages over a link of `link_rate_bps`, and return the results.

        `link_rate_bps` is in bit/s; None stands for an unshaped link.

        Raises:
            HostError: a node can't be started on this host, or has failed.
        """


def new_calibration_run_name() -> str:
    """Return a run name for one measurement, different from those of other measurements."""
    return f"calibrate-{secrets.token_hex(2)}"


def parse_probe_output(probe_stdout: str, probe_stderr: str) -> MessageTimesAndRates:
    """Return the measurement that the node that sends the requests has printed.

    The measurement is the node's last line of output, in JSON.

    Raises:
        HostError: the node printed no measurement.
    """
    json_lines = [line for line in probe_stdout.splitlines() if line.startswith("{")]
    if not json_lines:
        last_line = (probe_stderr.strip().splitlines() or ["no message"])[-1]
        raise HostError(
            f"calibration failed: the measuring nodes printed no result; last line of standard error: {last_line}"
        )
    return MessageTimesAndRates.model_validate_json(json_lines[-1])
