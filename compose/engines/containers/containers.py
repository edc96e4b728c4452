"""The containers of one trial: Compose starts and removes them, helpers shape their links, events tell who ends."""

import json
import subprocess
import threading
import time
from concurrent.futures import CancelledError, Future, InvalidStateError, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import docker
import yaml
from docker.errors import DockerException, NotFound
from docker.models.containers import Container

from compose.engines.base import Shaped, Throttling
from compose.engines.containers.compose_file import Host, project, render
from compose.engines.containers.helper_containers import HELPER
from compose.engines.containers.link_enforcement import Enforcement
from compose.engines.containers.link_events import Timeline
from compose.engines.containers.link_probes import prove
from compose.engines.containers.throttling import throttling
from compose.runs.labels import NODE_LABEL, ROLE_LABEL, RUN_LABEL, TRIAL_LABEL
from compose.runs.supervisor import Nodes, TrialFailed
from compose.shaping.mechanisms import Rungs
from compose.shaping.shared_link import SWITCH
from services.plan import COORDINATOR, Plan
from services.runtime.control import OPEN_GATE
from services.runtime.run_log import TOKEN

AT_ONCE = 8  # requests to the engine
# Docker 20.10 counts wrong when many containers leave a network at the same moment, and then keeps the network until it
# is restarted: 3 of some 200 trials with eight removals at once.
REMOVALS_AT_ONCE = 2
COMPOSE_S = 180.0  # after that, the engine has stopped answering
DOWN_TRIES, DOWN_AGAIN_S = 6, 0.5
LAST_LINES = 20


class EngineHangs(TrialFailed):
    """The engine has stopped answering: to ask it again would only take as long again."""


class Containers(Nodes):
    """The nodes of one trial, a container each."""

    def __init__(self, plan: Plan, folder: Path, host: Host, rungs: Rungs) -> None:
        self._plan = plan
        self._folder = folder
        self._host = host
        self._client = docker.from_env(max_pool_size=len(plan.nodes) + AT_ONCE)
        self._file = folder / "compose.yaml"
        self._helpers = ThreadPoolExecutor(AT_ONCE)
        self.links = Enforcement(plan, self._client, host.images["cpu"], rungs, self._identifier)
        self.timeline = Timeline(plan, self.links, folder / "events.jsonl")
        self._nodes = {node.name for node in plan.nodes}
        names = self._nodes | set(self.links.names)
        self._ids: dict[str, Future[str]] = {name: Future() for name in names}  # once they run
        self._exits: dict[str, int] = {}
        self._shapings: dict[str, Future[Shaped]] = {}
        self._events: Any = None
        self._deaf = False  # whether the stream of events has ended before its time
        self._stopping = False

    def start(self) -> None:
        """Compose starts everything; a helper shapes a node's link as soon as that node runs."""
        self._file.write_text(yaml.safe_dump(render(self._plan, self._host), sort_keys=False))
        wanted = {"label": self._labels, "event": ["start", "die"]}
        self._events = self._client.events(decode=True, filters=wanted, since=int(time.time()))
        threading.Thread(target=self._heed, daemon=True).start()
        self._shapings = {name: self._helpers.submit(self._shape, name) for name in self.links.names}
        self._compose("up", "--detach", "--no-build", "--pull", "never", "--quiet-pull")
        threading.Thread(target=self._follow, args=(COORDINATOR,), daemon=True).start()

    def shape(self) -> dict[str, Shaped]:
        return {name: shaping.result(COMPOSE_S) for name, shaping in self._shapings.items()}

    def prove(self) -> dict[str, Shaped]:
        found = prove(self.links, self._helpers)
        self.links.begin_counting()
        return found

    def account(self) -> dict[str, Shaped]:
        return self.links.account(self.timeline.settle())

    def open_gate(self) -> None:
        self._container(COORDINATOR).kill(signal=OPEN_GATE.name)

    def exit_codes(self) -> dict[str, int]:
        if self._deaf:
            self._look()
        if not self._exits:  # a node that has died takes its helper's work with it, and is the better reason
            self.links.check()
        return dict(self._exits)

    def complaint(self, node: str) -> str:
        said: bytes = self._container(node).logs(stdout=False, stderr=True, tail=LAST_LINES)
        return (said.decode(errors="replace").strip().splitlines() or [""])[-1]

    def throttling(self) -> dict[str, Throttling]:
        running = [node.name for node in self._plan.nodes if node.name not in self._exits]
        counted = {node: throttling(self._known(node)) for node in running if self._ids[node].done()}
        return {node: counters for node, counters in counted.items() if counters is not None}

    def stop(self) -> tuple[str, ...]:
        self._stopping = True
        kept: list[str] = []
        with ExitStack() as last:  # from below: whatever fails, the rest is done
            last.callback(self._client.close)
            if self._events is not None:
                last.callback(self._events.close)
            last.callback(lambda: kept.extend(self._down()))
            last.callback(self._remove_all)
            last.callback(lambda: self._helpers.shutdown(cancel_futures=True))
            last.callback(self._stop_waiting)
            last.callback(self.links.close)
            last.callback(self.timeline.close)
        return tuple(kept)

    @property
    def _labels(self) -> list[str]:
        """What containers of this trial carry, and no others."""
        return [f"{RUN_LABEL}={self._plan.run}", f"{TRIAL_LABEL}={self._plan.trial}"]

    def _identifier(self, node: str) -> str:
        return self._ids[node].result(COMPOSE_S)

    def _container(self, node: str) -> Container:
        return self._client.containers.get(self._identifier(node))

    def _known(self, node: str) -> Container:
        """A container that was started, without asking the engine what it is like now."""
        return Container({"Id": self._ids[node].result()}, self._client, self._client.containers)

    def _heed(self) -> None:
        """Remember who runs and how they end, until the stream of events is closed."""
        with suppress(Exception):  # closing the stream under its reader raises whatever the socket felt like
            for event in self._events:
                attributes = event["Actor"]["Attributes"]
                node = attributes[NODE_LABEL]
                if node in self._ids and event["Action"] == "start":
                    self._runs(node, event["Actor"]["ID"])
                elif node in self._nodes:
                    self._exits[node] = int(attributes["exitCode"])
        self._deaf = not self._stopping

    def _look(self) -> None:
        """Ask the engine for what the stream of events no longer tells."""
        for container in self._client.containers.list(all=True, filters={"label": self._labels}, ignore_removed=True):
            node, state = container.labels[NODE_LABEL], container.attrs["State"]
            if node in self._ids and state["Status"] in ("running", "exited", "dead"):
                self._runs(node, str(container.id))
                if state["Status"] != "running" and node in self._nodes:
                    self._exits[node] = int(state["ExitCode"])

    def _runs(self, node: str, identifier: str) -> None:
        with suppress(InvalidStateError):  # known already, or nobody waits any more
            self._ids[node].set_result(identifier)

    def _follow(self, node: str) -> None:
        """Write a node's log as it comes."""
        with suppress(DockerException, CancelledError, TimeoutError), self._log(node).open("wb") as log:
            line = b""
            for chunk in self._container(node).logs(stream=True, follow=True, stdout=True, stderr=False):
                log.write(chunk)
                log.flush()
                *lines, line = (line + chunk).split(b"\n")
                self._tell(lines)

    def _tell(self, lines: list[bytes]) -> None:
        """Events of links hang on what the coordinator says, at once and not when somebody reads the file."""
        for line in lines:
            _, token, event = line.decode(errors="replace").partition(TOKEN)
            if token:
                self.timeline.heed(json.loads(event))

    def _shape(self, name: str) -> Shaped:
        """Shape one link; a node that has died has no network namespace to be shaped."""
        try:
            return self.links.shape(name)
        except TrialFailed as error:
            self._look()
            if name in self._exits:
                complaint = self.complaint(name) or "no message"
                raise TrialFailed(f"{name} ended with exit code {self._exits[name]}: {complaint}") from error
            raise TrialFailed(f"{name}: its link could not be shaped: {error}") from error

    def _stop_waiting(self) -> None:
        for awaited in self._ids.values():
            awaited.cancel()

    def _remove_all(self) -> None:
        """Remove every container of this trial, also when some refuse."""
        found = self._client.containers.list(all=True, filters={"label": self._labels}, ignore_removed=True)
        with ThreadPoolExecutor(REMOVALS_AT_ONCE) as pool:
            removals = [pool.submit(self._remove, container) for container in found]
        for removal in removals:
            removal.result()

    def _remove(self, container: Container) -> None:
        """Kill a container and keep what a node has printed; what can't be kept must not keep the container."""
        with suppress(DockerException):
            container.kill()
        try:
            if container.labels[ROLE_LABEL] not in (HELPER, SWITCH):
                log = self._log(container.labels[NODE_LABEL])
                log.write_bytes(container.logs(stdout=True, stderr=False))
                if complaints := container.logs(stdout=False, stderr=True):
                    log.with_suffix(".err").write_bytes(complaints)
        finally:
            with suppress(NotFound):
                container.remove(force=True)

    def _down(self) -> tuple[str, ...]:
        """A busy engine lets go of a network's endpoints some time after their containers are gone, or never."""
        for _ in range(DOWN_TRIES):
            try:
                self._compose("down", "--volumes", "--remove-orphans", "--timeout", "0")
            except EngineHangs:
                raise
            except TrialFailed:
                time.sleep(DOWN_AGAIN_S)
            else:
                return ()
        filters = {"label": self._labels}
        if standing := self._client.containers.list(all=True, filters=filters, ignore_removed=True):
            raise TrialFailed(f"the engine does not remove {', '.join(str(each.name) for each in standing)}")
        return tuple(f"network {network.name}" for network in self._client.networks.list(filters=filters))

    def _compose(self, *arguments: str) -> None:
        command = ["docker", "compose", "--project-name", project(self._plan), "--file", str(self._file)]
        # A session of its own: Ctrl-C must not reach Compose between two containers.
        try:
            done = subprocess.run(  # noqa: S603 - our own arguments
                [*command, *arguments],
                capture_output=True,
                text=True,
                check=False,
                timeout=COMPOSE_S,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired as late:
            raise EngineHangs(f"docker compose {arguments[0]} took more than {COMPOSE_S:g} s") from late
        if done.returncode:
            raise TrialFailed(f"docker compose {arguments[0]}: {_last_line(done.stderr)}")

    def _log(self, node: str) -> Path:
        return self._folder / "logs" / f"{node}.log"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]
