"""What shall be done to this node's links? One JSON object per line in, one answer per line out, until the input ends.

script     {script}                      a shell script, now; its output
at         {number, moment, programs, delays}   change the link at a moment of the monotonic clock: queues of the delay
                                         line, then programs, which get their inputs; when they ended, or null when
                                         the change was asked for anew, or forgotten (`services.shaper.changes`)
forget     {}                            make no more changes; the number of the last that was made
delays     {delays}                      queues of the delay line, which starts with the first
laws       {queues}                      what the delay line does in some queues, by its own word
listen     {address}                     open an ear (`services.shaper.probe`)
echoes     {peers, count, gap_s}         round trips to peers
flood      {targets, since, until}       send datagrams
heard      {since, until}                rates of what came: in all, and by sender
message    {address, size}               seconds that one message takes
hush       {}                            close the ear

Every request has an `id`, which its answer repeats: requests run side by side, changes one after the other.
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
from services.shaper.changes import Changes

Answer = dict[str, Any]


class Shaper:
    """One node's helper."""

    does: dict[str, Callable[..., Answer]]

    def __init__(self) -> None:
        self._line: subprocess.Popen[str] | None = None
        self._ear: probe.Ear | None = None
        self._lock = threading.Lock()
        self._changes = Changes(self.delays)
        self.does = {
            "script": self.script,
            "forget": self._changes.forget,
            "delays": self.delays,
            "laws": self.laws,
            "listen": self.listen,
            "echoes": lambda **given: {"round_trips_s": probe.echoes(**given)},
            "flood": self.flood,
            "heard": self.heard,
            "message": lambda **given: {"seconds": probe.message_s(**given)},
            "hush": self.hush,
        }

    def begin(self, what: str, given: dict[str, Any]) -> Callable[[], Answer]:
        """What is left to do for a request, which may take its time; a change has its place among the others by then.

        Raises:
            OSError: a change's program can't be started.
        """
        if what == "at":
            return self._changes.plan(**given).result
        return partial(self.does[what], **given)

    def script(self, script: str) -> Answer:
        """Run a script.

        Raises:
            RuntimeError: it failed, with the last line of what it said.
        """
        done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise RuntimeError(((done.stderr + done.stdout).strip().splitlines() or ["no message"])[-1])
        return {"said": done.stdout}

    def delays(self, delays: dict[str, Any]) -> Answer:
        """Tell the delay line, and wait until it has understood.

        Raises:
            RuntimeError: it has ended.
        """
        self._tell_line(delays)
        return {}

    def laws(self, queues: list[str]) -> Answer:
        """What the delay line does in some queues; those that it does not know are absent.

        Raises:
            RuntimeError: it has ended.
        """
        return {"laws": self._tell_line(queues)}

    def _tell_line(self, said: dict[str, Any] | list[str]) -> Any:
        """Its answer to one line."""
        with self._lock:
            if self._line is None:
                command = [sys.executable, "-m", "services.shaper.delay_line"]
                self._line = subprocess.Popen(  # noqa: S603
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
                threading.Thread(target=_outlive, args=(self._line,), daemon=True).start()
            assert self._line.stdin is not None and self._line.stdout is not None  # noqa: S101, PT018 - pipes
            self._line.stdin.write(json.dumps(said) + "\n")
            self._line.stdin.flush()
            if not (answer := self._line.stdout.readline()):
                raise RuntimeError("the delay line has ended")
        return json.loads(answer)

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


def main() -> int:
    """Read requests until there are no more; what was started dies with this process."""
    shaper = Shaper()
    for line in sys.stdin:
        request = json.loads(line)
        number, what = request.pop("id"), request.pop("do")
        try:
            work = shaper.begin(what, request)
        except Exception as error:  # noqa: BLE001 - as below
            work = partial(_fail, error)
        threading.Thread(target=_answer, args=(number, work), daemon=True).start()
    return 0


def _fail(error: Exception) -> Answer:
    raise error


def _answer(number: int, work: Callable[[], Answer]) -> None:
    try:
        answer = {"id": number, "ok": True, **work()}
    except Exception as error:  # noqa: BLE001 - whoever asked decides what it means
        answer = {"id": number, "ok": False, "why": f"{error}" or type(error).__name__}
    with _SAYING:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


_SAYING = threading.Lock()

if __name__ == "__main__":
    sys.exit(main())
