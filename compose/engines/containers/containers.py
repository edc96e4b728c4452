"""Node containers of one trial, started and removed by Docker Compose.

They are observed through Docker's event stream.
"""

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

from compose.engines.containers.compose_file import DockerHostProperties, compose_project_name, render_compose_document
from compose.engines.containers.helper_containers import HELPER_ROLE
from compose.engines.containers.link_enforcement import LinkShaper
from compose.engines.containers.link_events import LinkEventScheduler
from compose.engines.containers.link_probes import probe_links
from compose.engines.containers.process_control import ContainerProcessControl
from compose.engines.containers.throttling import read_cpu_throttling
from compose.runs.host_program import run_host_program
from compose.runs.labels import NODE_LABEL, ROLE_LABEL, RUN_LABEL, TRIAL_LABEL
from compose.runs.trials.node_runner import NodeProcessControl, TrialFailed, TrialNodeRunner, select_last_line
from compose.shaping.mechanisms import ChosenMechanisms
from compose.shaping.shared_link import NETWORK_SWITCH
from services.plan import COORDINATOR, Plan
from services.plan.trial_outcome import CpuThrottleCounts, LinkShapingRecord
from services.runtime.control import OPEN_START_GATE_SIGNAL
from services.runtime.run_log import LOG_LINE_PREFIX
from services.schema.errors import os_error_cause

MAX_PARALLEL_REQUESTS = 8  # to the Docker daemon
# Docker 20.10 miscounts endpoints when many containers leave a network at the same moment, and then keeps the network
# until the daemon is restarted: in 3 of about 200 trials with eight removals at once.
MAX_PARALLEL_REMOVALS = 2
COMPOSE_TIMEOUT_S = 180.0  # after that, the Docker daemon counts as hanging
DOWN_TRIES, DOWN_RETRY_DELAY_S = 6, 0.5
STDERR_TAIL_LINES = 20


class DockerDaemonTimeout(TrialFailed):
    """Error raised when the Docker daemon does not answer within `COMPOSE_TIMEOUT_S` seconds.

    The request must not be repeated.
    """


class NodeContainers(TrialNodeRunner):
    """Nodes of one trial, each in a container, with helper containers that shape their links."""

    def __init__(
        self, plan: Plan, trial_folder: Path, host: DockerHostProperties, mechanisms: ChosenMechanisms
    ) -> None:
        """Connect to the Docker daemon; no container is started yet.

        Args:
            plan: of the trial.
            trial_folder: receives the compose document, logs and records.
            host: properties of this host that the compose document depends on.
            mechanisms: shaping mechanism of each link property of the plan on this kernel.
        """
        self._plan = plan
        self._trial_folder = trial_folder
        self._host = host
        self._client = docker.from_env(max_pool_size=len(plan.nodes) + MAX_PARALLEL_REQUESTS)
        self._compose_path = trial_folder / "compose.yaml"
        self._executor = ThreadPoolExecutor(MAX_PARALLEL_REQUESTS)
        self.links = LinkShaper(plan, self._client, host.images["cpu"], mechanisms, self._wait_for_container_id)
        self.link_events = LinkEventScheduler(plan, self.links, trial_folder / "events.jsonl")
        self._node_names = {node.name for node in plan.nodes}
        names = self._node_names | set(self.links.link_names)
        self._container_ids: dict[str, Future[str]] = {name: Future() for name in names}  # known once they run
        self._exit_codes: dict[str, int] = {}
        self._shaping_futures: dict[str, Future[LinkShapingRecord]] = {}
        self._process_control = ContainerProcessControl(
            plan, self._running_container, self._exit_codes, self._shape_link_again
        )
        self._engine_events: Any = None
        self._log_write_error = ""  # why the coordinator's log can't be written
        self._has_lost_events = False  # whether Docker's event stream ended before the trial
        self._is_stopping = False

    def start(self) -> None:
        """Start all containers with Compose.

        A helper shapes a node's link as soon as the node's container runs.
        """
        self._compose_path.write_text(yaml.safe_dump(render_compose_document(self._plan, self._host), sort_keys=False))
        filters = {"label": self._trial_label_filters, "event": ["start", "die"]}
        self._engine_events = self._client.events(decode=True, filters=filters, since=int(time.time()))
        threading.Thread(target=self._follow_docker_events, daemon=True).start()
        self._shaping_futures = {name: self._executor.submit(self._shape_link, name) for name in self.links.link_names}
        self._call_docker_compose("up", "--detach", "--no-build", "--pull", "never", "--quiet-pull")
        threading.Thread(target=self._copy_log, args=(COORDINATOR,), daemon=True).start()

    def shape_links(self) -> dict[str, LinkShapingRecord]:
        """Wait until all links are shaped as the trial plan declares, and return the link records.

        There is one record per link.
        """
        return {name: shaping.result(COMPOSE_TIMEOUT_S) for name, shaping in self._shaping_futures.items()}

    def probe_links(self) -> dict[str, LinkShapingRecord]:
        """Measure all links with test packets before training, and return the link records with the results."""
        records = probe_links(self.links, self._executor)
        self.links.store_initial_queue_counters()
        return records

    def read_link_counters(self) -> dict[str, LinkShapingRecord]:
        """Compare the kernel's link settings with the trial plan, and return a record per link.

        Link changes are stopped before the comparison.
        """
        return self.links.check_links_after_run(self.link_events.stop_and_return_link_states())

    def start_training(self) -> None:
        """Signal the coordinator's container to start training; until then, all nodes wait."""
        self._fetch_container(COORDINATOR).kill(signal=OPEN_START_GATE_SIGNAL.name)

    def exit_codes(self) -> dict[str, int]:
        """Return the exit codes of the nodes that have ended.

        Raises:
            TrialFailed: a helper has ended although all nodes run, or the coordinator's log can't be written.
        """
        if self._log_write_error:
            raise TrialFailed(self._log_write_error)
        if self._has_lost_events:
            self._read_container_states()
        if not self._exit_codes:  # the helper of an ended node ends, too; the node's exit code is the better reason
            self.links.check_helper_containers_run()
        return dict(self._exit_codes)

    def last_stderr_line(self, node_name: str) -> str:
        stderr: bytes = self._fetch_container(node_name).logs(stdout=False, stderr=True, tail=STDERR_TAIL_LINES)
        return select_last_line(stderr.decode(errors="replace"))

    def read_cpu_throttling(self) -> dict[str, CpuThrottleCounts]:
        """Return the CPU throttling of the running nodes since their start.

        Nodes without counters are left out.
        """
        running_nodes = [node.name for node in self._plan.nodes if node.name not in self._exit_codes]
        throttling = {
            node_name: read_cpu_throttling(self._running_container(node_name))
            for node_name in running_nodes
            if self._container_ids[node_name].done()
        }
        return {node_name: counters for node_name, counters in throttling.items() if counters is not None}

    def process_control(self) -> NodeProcessControl:
        """Return the interface by which declared faults are applied to the containers."""
        return self._process_control

    def stop(self) -> tuple[str, ...]:
        """Remove all containers and networks of the trial, and save the nodes' logs.

        Link events and helper containers are stopped, too.

        Returns:
            Networks that Docker keeps although they are empty.
        """
        self._is_stopping = True
        kept_networks: list[str] = []
        with ExitStack() as callbacks:  # run in reverse order; when one fails, the others still run
            callbacks.callback(self._client.close)
            if self._engine_events is not None:
                callbacks.callback(self._engine_events.close)
            callbacks.callback(lambda: kept_networks.extend(self._remove_networks()))
            callbacks.callback(self._remove_containers)
            callbacks.callback(lambda: self._executor.shutdown(cancel_futures=True))
            callbacks.callback(self._cancel_id_lookups)
            callbacks.callback(self.links.close)
            callbacks.callback(self.link_events.close)
        return tuple(kept_networks)

    @property
    def _trial_label_filters(self) -> list[str]:
        """Docker label filters that select the containers and networks of this trial only."""
        return [f"{RUN_LABEL}={self._plan.run}", f"{TRIAL_LABEL}={self._plan.trial}"]

    def _wait_for_container_id(self, service_name: str) -> str:
        return self._container_ids[service_name].result(COMPOSE_TIMEOUT_S)

    def _fetch_container(self, service_name: str) -> Container:
        return self._client.containers.get(self._wait_for_container_id(service_name))

    def _running_container(self, service_name: str) -> Container:
        """Return a Docker SDK object for a running container whose id is known.

        The Docker daemon receives no request for this.
        """
        return Container({"Id": self._container_ids[service_name].result()}, self._client, self._client.containers)

    def _follow_docker_events(self) -> None:
        """Record container ids and exit codes from Docker's event stream, until the stream is closed."""
        with suppress(Exception):  # `stop` closes the stream while it is read, which raises errors of many types
            for event in self._engine_events:
                attributes = event["Actor"]["Attributes"]
                node = attributes[NODE_LABEL]
                if node in self._container_ids and event["Action"] == "start":
                    self._record_container_id(node, event["Actor"]["ID"])
                elif node in self._node_names:
                    self._exit_codes[node] = int(attributes["exitCode"])
        self._has_lost_events = not self._is_stopping

    def _read_container_states(self) -> None:
        """Record container ids and exit codes from Docker's list of containers.

        This replaces the event stream after the event stream was lost.
        """
        filters = {"label": self._trial_label_filters}
        for container in self._client.containers.list(all=True, filters=filters, ignore_removed=True):
            node, state = container.labels[NODE_LABEL], container.attrs["State"]
            if node in self._container_ids and state["Status"] in ("running", "exited", "dead"):
                self._record_container_id(node, str(container.id))
                if state["Status"] != "running" and node in self._node_names:
                    self._exit_codes[node] = int(state["ExitCode"])

    def _record_container_id(self, service_name: str, container_id: str) -> None:
        with suppress(InvalidStateError):  # the id is known already, or its future is cancelled
            self._container_ids[service_name].set_result(container_id)

    def _copy_log(self, node_name: str) -> None:
        """Copy a container's standard output to the node's log file.

        The coordinator's events in the output are also forwarded.
        """
        with (
            suppress(DockerException, CancelledError, TimeoutError),
            self._log_path(node_name).open("wb", buffering=0) as log,
        ):
            unfinished_line = b""
            for chunk in self._fetch_container(node_name).logs(stream=True, follow=True, stdout=True, stderr=False):
                try:
                    log.write(chunk)
                except OSError as error:  # reading raises errors of this type, too, when the trial ends
                    self._log_write_error = f"{log.name}: the log can't be written: {os_error_cause(error)}"
                    return
                *lines, unfinished_line = (unfinished_line + chunk).split(b"\n")
                self._pass_events_to_scheduler(lines)

    def _pass_events_to_scheduler(self, coordinator_log_lines: list[bytes]) -> None:
        """Pass the coordinator's events to the scheduler of link events.

        This avoids the delay of reading the log file.
        """
        for line in coordinator_log_lines:
            _, token, event = line.decode(errors="replace").partition(LOG_LINE_PREFIX)
            if token:
                self.link_events.handle_log_event(json.loads(event))

    def _shape_link(self, link_name: str) -> LinkShapingRecord:
        """Shape the link of one node or of the network switch, and return the record of the link.

        Raises:
            TrialFailed: the link could not be shaped, or its node has ended, so that there is no network namespace.
        """
        try:
            return self.links.shape_link(link_name)
        except TrialFailed as error:
            self._read_container_states()
            if link_name in self._exit_codes:
                exit_code, stderr_line = self._exit_codes[link_name], self.last_stderr_line(link_name) or "no message"
                raise TrialFailed(f"{link_name} ended with exit code {exit_code}: {stderr_line}") from error
            raise TrialFailed(f"{link_name}: the link could not be shaped: {error}") from error

    def _shape_link_again(self, node_name: str) -> None:
        """Shape the link of a node whose container was started again, as it must be now."""
        if node_name in self.links.node_links:  # the coordinator has no link on the data network
            self.links.shape_link_again(node_name)
            self.link_events.restore_link(node_name)

    def _cancel_id_lookups(self) -> None:
        for container_id in self._container_ids.values():
            container_id.cancel()

    def _remove_containers(self) -> None:
        """Remove every container of this trial.

        A failed removal does not prevent the removal of other containers.
        """
        filters = {"label": self._trial_label_filters}
        containers = self._client.containers.list(all=True, filters=filters, ignore_removed=True)
        with ThreadPoolExecutor(MAX_PARALLEL_REMOVALS) as executor:
            removals = [executor.submit(self._remove_container, container) for container in containers]
        for removal in removals:
            removal.result()

    def _remove_container(self, container: Container) -> None:
        """Kill a node's container, save its output in the log folder, and remove the container.

        The output consists of standard output and standard error. The container is removed even when its output can't
        be saved.
        """
        with suppress(DockerException):
            container.kill()
        try:
            if container.labels[ROLE_LABEL] not in (HELPER_ROLE, NETWORK_SWITCH):
                log_path = self._log_path(container.labels[NODE_LABEL])
                log_path.write_bytes(container.logs(stdout=True, stderr=False))
                if stderr := container.logs(stdout=False, stderr=True):
                    log_path.with_suffix(".err").write_bytes(stderr)
        finally:
            with suppress(NotFound):
                container.remove(force=True)

    def _remove_networks(self) -> tuple[str, ...]:
        """Remove the trial's networks with `docker compose down`.

        Return the networks that Docker keeps. A busy Docker daemon frees a network's endpoints only some time after
        their containers are gone, or never, so the command is tried several times.

        Raises:
            DockerDaemonTimeout: the Docker daemon did not answer.
            TrialFailed: containers are left.
        """
        for _ in range(DOWN_TRIES):
            try:
                self._call_docker_compose("down", "--volumes", "--remove-orphans", "--timeout", "0")
            except DockerDaemonTimeout:
                raise
            except TrialFailed:
                time.sleep(DOWN_RETRY_DELAY_S)
            else:
                return ()
        filters = {"label": self._trial_label_filters}
        if containers := self._client.containers.list(all=True, filters=filters, ignore_removed=True):
            container_names = ", ".join(str(container.name) for container in containers)
            raise TrialFailed(f"Docker did not remove containers {container_names}; run `ensayo clean`")
        return tuple(f"network {network.name}" for network in self._client.networks.list(filters=filters))

    def _call_docker_compose(self, *subcommand_and_options: str) -> None:
        project, path = compose_project_name(self._plan), str(self._compose_path)
        command = ["docker", "compose", "--project-name", project, "--file", path, *subcommand_and_options]
        try:  # Ctrl-C does not reach the program, which it would interrupt between two containers
            process = run_host_program(command, COMPOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired as late:
            raise DockerDaemonTimeout(
                f"`docker compose {subcommand_and_options[0]}` did not finish within {COMPOSE_TIMEOUT_S:g} s; "
                "check that the Docker daemon answers (`docker info`)"
            ) from late
        if process.returncode:
            raise TrialFailed(f"`docker compose {subcommand_and_options[0]}` failed: {_last_line(process.stderr)}")

    def _log_path(self, node_name: str) -> Path:
        return self._trial_folder / "logs" / f"{node_name}.log"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]
