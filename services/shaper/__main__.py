"""What shall be done to this node's links? One JSON object per line in, one answer per line out, until the input ends.

script     {script}                      a shell script, now; its output
at         {moment, programs, delays}    feed programs their inputs at a moment of the monotonic clock; when they ended
delays     {delays}                      queues of the delay line, which starts with the first
listen     {address}                     open an ear (`services.shaper.probe`)
echoes     {peers, count, gap_s}         round trips to peers
flood      {targets, since, until}       send datagrams
heard      {since, until}                rates of what came: in all, and by sender
message    {address, size}               seconds that one message takes
hush       {}                            close the ear

Every request has an `id`, which its answer repeats: requests run side by side.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from services.scheduling import wake_soon
from services.shaper import probe

SPIN_S = 0.001  # before a moment: a sleep may end late, an empty loop does not
Answer = dict[str, Any]


class Shaper:
    """One node's helper."""

    does: dict[str, Callable[..., Answer]]

    def __init__(self) -> None:
        self._line: subprocess.Popen[str] | None = None
        self._ear: probe.Ear | None = None
        self._lock = threading.Lock()
        self.does = {
            "script": self.script,
            "at": self.at,
            "delays": self.delays,
            "listen": self.listen,
            "echoes": lambda **given: {"round_trips_s": probe.echoes(**given)},
            "flood": self.flood,
            "heard": self.heard,
            "message": lambda **given: {"seconds": probe.message_s(**given)},
            "hush": self.hush,
        }

    def script(self, script: str) -> Answer:
        """Run a script.

        Raises:
            RuntimeError: it failed, with the last line of what it said.
        """
        done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise RuntimeError(((done.stderr + done.stdout).strip().splitlines() or ["no message"])[-1])
        return {"said": done.stdout}

    def at(self, moment: float, programs: list[tuple[list[str], str]], delays: dict[str, Any]) -> Answer:
        """Start programs, which wait for their input; at the moment, change queues and give it to them.

        Raises:
            RuntimeError: one of them failed.
        """
        wake_soon()
        started = [(_start(command), text) for command, text in programs]
        time.sleep(max(0.0, moment - SPIN_S - time.monotonic()))
        while time.monotonic() < moment:
            pass
        if delays:
            self.delays(delays)
        for program, text in started:
            _feed(program, text)
        for program, _ in started:
            if program.wait():
                raise RuntimeError(program.stderr.read() if program.stderr else "no message")
        return {"applied": time.monotonic()}

    def delays(self, delays: dict[str, Any]) -> Answer:
        """Tell the delay line, and wait until it has understood.

        Raises:
            RuntimeError: it has ended.
        """
        with self._lock:
            if self._line is None:
                command = [sys.executable, "-m", "services.shaper.delay_line"]
                self._line = subprocess.Popen(  # noqa: S603
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
                threading.Thread(target=_outlive, args=(self._line,), daemon=True).start()
            assert self._line.stdin is not None and self._line.stdout is not None  # noqa: S101, PT018 - pipes
            self._line.stdin.write(json.dumps(delays) + "\n")
            self._line.stdin.flush()
            if not self._line.stdout.readline():
                raise RuntimeError("the delay line has ended")
        return {}

    def listen(self, address: str) -> Answer:
        """Open an ear."""
        self._ear = probe.Ear(address)
        self._ear.open()
        return {}

    def hush(self) -> Answer:
        """Close the ear."""
        if self._ear is not None:
            self._ear.close()
        self._ear = None
        return {}

    def flood(self, targets: dict[str, float], since: float, until: float) -> Answer:
        """Send datagrams."""
        probe.flood(targets, since, until)
        return {}

    def heard(self, since: float, until: float) -> Answer:
        """What came meanwhile, once it is over."""
        time.sleep(max(0.0, until - time.monotonic()))
        if self._ear is None:
            raise RuntimeError("nobody listens")
        return {"total_bps": self._ear.total(since, until), "by_source_bps": self._ear.rates(since, until)}


def _outlive(line: "subprocess.Popen[str]") -> None:
    """End with the delay line: without it nothing reaches the node, and whoever leads the trial should know why."""
    code = line.wait()
    sys.stderr.write(f"the delay line has ended with exit code {code}\n")
    sys.stderr.flush()
    os._exit(1)


def _start(command: list[str]) -> subprocess.Popen[str]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=subprocess.PIPE, text=True)  # noqa: S603


def _feed(program: subprocess.Popen[str], text: str) -> None:
    """Its whole input at once; the end of it is when it may begin."""
    if program.stdin:
        program.stdin.write(text + "\n")
        program.stdin.close()


def main() -> int:
    """Read requests until there are no more; what was started dies with this process."""
    shaper = Shaper()
    for line in sys.stdin:
        threading.Thread(target=_answer, args=(shaper, json.loads(line)), daemon=True).start()
    return 0


def _answer(shaper: Shaper, request: dict[str, Any]) -> None:
    number, what = request.pop("id"), request.pop("do")
    try:
        answer = {"id": number, "ok": True, **shaper.does[what](**request)}
    except Exception as error:  # noqa: BLE001 - whoever asked decides what it means
        answer = {"id": number, "ok": False, "why": f"{error}" or type(error).__name__}
    with _SAYING:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


_SAYING = threading.Lock()

if __name__ == "__main__":
    sys.exit(main())
