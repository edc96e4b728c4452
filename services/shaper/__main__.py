"""Commands of the link shaper: one JSON request per input line, one JSON response per output line.

script     {script}                      run a shell script now; response: its output
at         {number, moment, programs, delays}   change the link at a time of the monotonic clock: first the queues of
                                         the delay line, then the programs, which get their inputs; response: the time
                                         when all programs had ended, or null if the change was replaced or cancelled
                                         (`services.shaper.changes`)
forget     {}                            cancel all further changes; response: number of the last applied change
delays     {delays}                      set queues of the delay line, which is started by the first request
laws       {queues}                      response: descriptions of queues as the delay line has them
listen     {address}                     start the probe receiver (`services.shaper.probe`)
echoes     {peers, count, gap_s}         measure round trips to peers
flood      {targets, since, until}       send datagrams
heard      {since, until}                response: received rates, in total and by sender
message    {address, size}               response: seconds that one message takes
stop_receiver {}                          stop the probe receiver

Every request has an `id`, which its response repeats. Requests run concurrently, changes one after another.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from services.shaper import probe
from services.shaper.changes import LinkChangeSchedule, Response


class ShaperRequestHandler:
    """Handler of the requests that the engine sends to the helper container of one node."""

    handlers: dict[str, Callable[..., Response]]

    def __init__(self) -> None:
        self._delay_line: subprocess.Popen[str] | None = None
        self._receiver: probe.ProbeReceiver | None = None
        self._delay_line_lock = threading.Lock()
        self._change_schedule = LinkChangeSchedule(self.set_queue_delays)
        self.handlers = {
            "script": self.run_shell_script,
            "forget": self._change_schedule.cancel_all_changes,
            "delays": self.set_queue_delays,
            "laws": self.read_queue_delays,
            "listen": self.start_probe_receiver,
            "echoes": lambda peers, count, gap_s: {"round_trips_s": probe.measure_round_trips(peers, count, gap_s)},
            "flood": self.send_probe_datagrams,
            "heard": self.measure_received_rates,
            "message": lambda address, size: {"seconds": probe.measure_message_seconds(address, size)},
            "stop_receiver": self.stop_probe_receiver,
        }

    def start_request(self, request_name: str, arguments: dict[str, Any]) -> Callable[[], Response]:
        """Start to handle a request, and return a function that waits for its response.

        A change of the link is scheduled before this returns.

        Raises:
            OSError: a program of a change can't be started.
        """
        if request_name == "at":
            return self._change_schedule.schedule_link_change(**arguments).result
        return partial(self.handlers[request_name], **arguments)

    def run_shell_script(self, script: str) -> Response:
        """Run a shell script, and respond with its output.

        Raises:
            RuntimeError: the script failed; the message is the last line of its output.
        """
        process = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)  # noqa: S603
        if process.returncode:
            raise RuntimeError(((process.stderr + process.stdout).strip().splitlines() or ["no message"])[-1])
        return {"output": process.stdout}

    def set_queue_delays(self, delays: dict[str, Any]) -> Response:
        """Send delay settings to the delay line (process that delays packets), and wait until they are applied.

        Raises:
            RuntimeError: the delay line has ended.
        """
        self._send_delay_line_request(delays)
        return {}

    def read_queue_delays(self, queues: list[str]) -> Response:
        """Respond with the delay settings of the given packet queues.

        Unknown queues are left out.

        Raises:
            RuntimeError: the delay line has ended.
        """
        return {"laws": self._send_delay_line_request(queues)}

    def _send_delay_line_request(self, request: dict[str, Any] | list[str]) -> Any:
        """Send a request to the delay line and return its response.

        The first request starts the delay line.
        """
        with self._delay_line_lock:
            if self._delay_line is None:
                command = [sys.executable, "-m", "services.shaper.delay_line"]
                self._delay_line = subprocess.Popen(  # noqa: S603
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
                threading.Thread(target=_exit_when_delay_line_exits, args=(self._delay_line,), daemon=True).start()
            assert self._delay_line.stdin is not None and self._delay_line.stdout is not None  # noqa: S101, PT018 - pipes
            self._delay_line.stdin.write(json.dumps(request) + "\n")
            self._delay_line.stdin.flush()
            if not (response := self._delay_line.stdout.readline()):
                raise RuntimeError("the delay line has ended")
        return json.loads(response)

    def start_probe_receiver(self, address: str) -> Response:
        """Start the probe receiver at an address of this node."""
        self._receiver = probe.ProbeReceiver(address)
        self._receiver.start()
        return {}

    def stop_probe_receiver(self) -> Response:
        """Stop the probe receiver, if it is running."""
        if self._receiver is not None:
            self._receiver.stop()
        self._receiver = None
        return {}

    def send_probe_datagrams(self, targets: dict[str, float], since: float, until: float) -> Response:
        """Send probe datagrams between two times of the monotonic clock.

        The datagrams are sent from the time `since` to the time `until`. `targets` maps addresses to maximum bit/s.
        """
        probe.send_flood(targets, since, until)
        return {}

    def measure_received_rates(self, since: float, until: float) -> Response:
        """Respond with the data rates received between the times `since` and `until`.

        The call waits until the time `until`.
        """
        time.sleep(max(0.0, until - time.monotonic()))
        if self._receiver is None:
            raise RuntimeError("the probe receiver is not running; send the request `listen` first")
        return {
            "total_bps": self._receiver.total_rate_bps(since, until),
            "by_source_bps": self._receiver.rates_by_source_bps(since, until),
        }


def _exit_when_delay_line_exits(delay_line: "subprocess.Popen[str]") -> None:
    """Exit this process when the delay line (the process that delays packets) exits.

    Without the delay line, no packet would reach the node.
    """
    exit_code = delay_line.wait()
    sys.stderr.write(f"the delay line has ended with exit code {exit_code}\n")
    sys.stderr.flush()
    os._exit(1)


def main() -> int:
    """Handle the requests on standard input until the input ends.

    All started programs end with this process.
    """
    handler = ShaperRequestHandler()
    for line in sys.stdin:
        arguments = json.loads(line)
        request_id, command = arguments.pop("id"), arguments.pop("do")
        try:
            complete = handler.start_request(command, arguments)
        except Exception as error:  # noqa: BLE001 - reported in the response
            complete = partial(_raise_request_error, error)
        threading.Thread(target=_print_response, args=(request_id, complete), daemon=True).start()
    return 0


def _raise_request_error(request_error: Exception) -> Response:
    raise request_error


def _print_response(request_id: int, get_response: Callable[[], Response]) -> None:
    try:
        response = {"id": request_id, "ok": True, **get_response()}
    except Exception as error:  # noqa: BLE001 - reported in the response
        response = {"id": request_id, "ok": False, "why": f"{error}" or type(error).__name__}
    with _OUTPUT_LOCK:
        sys.stdout.write(json.dumps(response) + "\n")
        sys.stdout.flush()


_OUTPUT_LOCK = threading.Lock()

if __name__ == "__main__":
    sys.exit(main())
