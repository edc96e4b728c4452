"""Engine `simulated`: all nodes of a trial run in one process, in virtual time.

The nodes communicate over an in-process transport.
"""

import select
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from compose.engines.base import EnginePreparationObserver, TrialEngine, TrialEventObserver
from compose.engines.local import NODE_COMMAND, node_process_environment
from compose.engines.transport_shaping import make_shaping_records, unemulated_links_error
from compose.runs.trials.log_tail import LogTail
from services.cluster.addresses import AddressAllocator, DummyAddresses
from services.plan import COORDINATOR, Plan
from services.plan.trial_outcome import TrialOutcome
from services.scenario.run_settings import EngineName

REPLY_POLL_S = 0.02
MECHANISM = "fluid"
SUCCESS_REPLY = "done"  # the simulator's reply after a successful trial; any other reply is an error message


class SimulatedEngine(TrialEngine):
    """Engine that simulates trials in one process, one after the other.

    The process has one BLAS thread, like every node of the other engines, so that sums have the same bits.
    """

    name: ClassVar[EngineName] = "simulated"

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def missing_software(self) -> str | None:
        """Return None, since the simulator needs nothing beyond Python."""
        return None

    def prepare(self, preparation_observer: EnginePreparationObserver) -> None:  # noqa: ARG002 - too short to be reported
        """Start the simulator's process before the first trial.

        Its imports take longer than a short trial.
        """
        self._process = _start_simulator()

    def choose_addresses(self, run_name: str, node_count: int) -> AddressAllocator:  # noqa: ARG002 - no node opens a socket
        """Return placeholder addresses, since all nodes share one process."""
        return DummyAddresses()

    def run_trial(self, plan: Plan, trial_folder: Path, observer: TrialEventObserver) -> TrialOutcome:
        """Simulate one trial; see `TrialEngine.run_trial`."""
        started = time.monotonic()
        if reason := unemulated_links_error(plan, make_shaping_records(plan, MECHANISM)):
            return _trial_status(plan, reason, 0.0)
        tail = LogTail(trial_folder / "logs" / f"{COORDINATOR}.log")
        poll_reply = self._submit_trial(trial_folder)
        while not (reply := poll_reply()):
            self._forward_new_log_events(plan, tail, observer)
        self._forward_new_log_events(plan, tail, observer)
        return _trial_status(plan, reply.strip(), time.monotonic() - started)

    def close(self) -> None:
        """Kill the simulator's process."""
        if self._process is not None:
            self._process.kill()
            with suppress(BrokenPipeError):  # the simulator may have died before it read its input
                self._process.communicate()

    def _submit_trial(self, trial_folder: Path) -> Callable[[], str]:
        """Send a trial's folder to the simulator and return a function that polls for the reply.

        Each call of the function waits up to `REPLY_POLL_S` and returns an empty string until there is a reply.
        """
        process = self._process
        if process is None or process.poll() is not None:  # the simulator died in the previous trial
            self.close()
            self._process = process = _start_simulator()
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the simulator was started without pipes for its standard input and output")
        stdout = process.stdout
        process.stdin.write(f"{trial_folder}\n")
        process.stdin.flush()

        def poll_simulator_reply() -> str:
            ready, _, _ = select.select([stdout], [], [], REPLY_POLL_S)
            if not ready:
                return ""
            return stdout.readline() or f"the simulator ended with exit code {process.wait()}"

        return poll_simulator_reply

    def _forward_new_log_events(
        self, plan: Plan, coordinator_log_tail: LogTail, trial_event_observer: TrialEventObserver
    ) -> None:
        """Pass new events of the coordinator's log to the observer.

        New events are those logged since the previous call of this method.
        """
        for event in coordinator_log_tail.read_new_events():
            trial_event_observer.coordinator_event_logged(plan, event)


def _start_simulator() -> "subprocess.Popen[str]":
    return subprocess.Popen(  # noqa: S603 - our own module
        [*NODE_COMMAND, "simulate"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=node_process_environment("simulated"),
        start_new_session=True,
    )


def _trial_status(plan: Plan, simulator_reply: str, wall_s: float) -> TrialOutcome:
    failed = simulator_reply != SUCCESS_REPLY
    return TrialOutcome(
        trial=plan.trial,
        engine=plan.engine,
        status="failed" if failed else "success",
        reason=simulator_reply if failed else "",
        timings_s={"run": round(wall_s, 3)},
        exit_codes=dict.fromkeys((node.name for node in plan.nodes), int(failed)),
        shaping=make_shaping_records(plan, MECHANISM),
    )
