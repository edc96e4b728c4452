"""Two measuring processes on the loopback interface, for the engine `local`."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from compose.calibration.node_pair import (
    MEASUREMENT_TIMEOUT_S,
    NODE_NAMES,
    READY_LINE,
    CalibrationNodePair,
    new_calibration_run_name,
    parse_probe_output,
)
from compose.engines.local import NODE_COMMAND, node_process_environment
from compose.runs.secrets_folder import RUNNER_PIPE_FILE, open_secrets_folder
from services.node.message_probe import MessageTimesAndRates
from services.runtime.control import OPEN_START_GATE_SIGNAL
from services.scenario.run_settings import TransportName


class ProcessPair(CalibrationNodePair):
    """Two measuring processes on the loopback interface, for the engine `local`.

    The transport shapes the link between the processes.
    """

    def __init__(self, transport: TransportName) -> None:
        """Store the transport to measure.

        `measure_message_timing` starts the two processes.
        """
        self._transport = transport

    def measure_message_timing(self, link_rate_bps: float | None) -> MessageTimesAndRates:
        """Start the two measuring processes and return what they have measured.

        See `CalibrationNodePair.measure_message_timing`.
        """
        run_name = new_calibration_run_name()
        with ExitStack() as stack:
            folder = stack.enter_context(open_secrets_folder(run_name, NODE_NAMES))
            addresses = _free_loopback_addresses()
            environment = node_process_environment(run_name)
            options = ["--transport", self._transport, "--runner-pipe", str(folder / RUNNER_PIPE_FILE)]
            options += [] if link_rate_bps is None else ["--rate", str(link_rate_bps), "--by-transport"]
            requester, _ = (
                stack.enter_context(
                    _start_probe_process([name, *addresses, "--secrets", str(folder / name), *options], environment)
                )
                for name in NODE_NAMES
            )
            assert requester.stdout is not None  # noqa: S101 - started with a pipe
            if requester.stdout.readline().strip() == READY_LINE:
                requester.send_signal(OPEN_START_GATE_SIGNAL)
            stdout, stderr = requester.communicate(timeout=MEASUREMENT_TIMEOUT_S)
        return parse_probe_output(stdout, stderr)


def _free_loopback_addresses() -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in NODE_NAMES]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{listener.getsockname()[1]}" for listener in sockets]


@contextmanager
def _start_probe_process(
    command_line_arguments: list[str], environment_variables: dict[str, str]
) -> Iterator["subprocess.Popen[str]"]:
    """Run one measuring node as a process inside the `with` block.

    The process is killed at the end of the block.
    """
    command = [*NODE_COMMAND, "measure", *command_line_arguments]
    with subprocess.Popen(  # noqa: S603 - our own module, our own arguments
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment_variables
    ) as process:
        try:
            yield process
        finally:
            process.kill()
