"""Shaping and checking of a trial's links by helper containers.

There is one helper container per node, and one for the network switch. Links are shaped and read back from the kernel
before training starts (all nodes wait until then), and read again after the run.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import docker
from docker.errors import DockerException

from compose.engines.containers.helper_containers import HELPER_ROLE, REPLY_TIMEOUT_S, LinkHelperContainer
from compose.runs.labels import container_labels
from compose.runs.trials.node_runner import TrialFailed
from compose.shaping import shared_link
from compose.shaping import tc_output as reading
from compose.shaping.link_state import LinkState, data_network_nodes
from compose.shaping.mechanisms import ChosenMechanisms
from compose.shaping.node_link import NodeLinkScripts
from services.plan import NodePlan, Plan
from services.plan.trial_outcome import LinkShapingRecord, MeasuredLinkValue

STOPPED_MESSAGE = "the trial is being stopped"


class LinkShaper:
    """Shapes all links of a trial as declared, and checks the links after the run.

    It keeps a record per link. A link is identified by the name of its node, or of the network switch.
    """

    def __init__(
        self,
        plan: Plan,
        client: docker.DockerClient,
        image: str,
        mechanisms: ChosenMechanisms,
        wait_for_container_id: Callable[[str], str],
    ) -> None:
        """Store the trial plan and its shaping mechanisms.

        `shape_link` starts the helper containers.

        Args:
            plan: plan of the trial.
            client: connected to the Docker daemon.
            image: tag of the nodes' image, which helpers use, too.
            mechanisms: shaping mechanism of each link property of the plan on this kernel.
            wait_for_container_id: waits until the container of a node or of the network switch runs; returns its id.
        """
        self.plan, self.mechanisms = plan, mechanisms
        self._client, self._image, self._wait_for_container_id = client, image, wait_for_container_id
        switch_address = shared_link.network_switch_address(plan) if shared_link.shared_links(plan) else None
        nodes = data_network_nodes(plan)
        self.node_links = {node.name: NodeLinkScripts(plan, node, mechanisms, switch_address) for node in nodes}
        self.helpers: dict[str, LinkHelperContainer] = {}  # node, or network switch -> its helper
        self.interfaces: dict[str, str] = {}  # node -> name of its interface on the data network
        self.records: dict[str, LinkShapingRecord] = {}
        self._setup_outputs: dict[str, str] = {}  # state of the kernel before the run, as tc printed it
        # Node -> device -> counters before the run.
        self._initial_counters: dict[str, dict[str, reading.QueueCounters]] = {}
        self._lock = threading.Lock()
        self._closed = False

    @property
    def link_names(self) -> tuple[str, ...]:
        """Names of all nodes whose links are shaped, and of the network switch if nodes share links."""
        return (*self.node_links, *((shared_link.NETWORK_SWITCH,) if shared_link.shared_links(self.plan) else ()))

    def shape_link(self, link_name: str) -> LinkShapingRecord:
        """Shape the link of a node or of the network switch, and return the link's record.

        The record contains the rates that `tc` has read back.

        Raises:
            TrialFailed: the link could not be shaped, or the kernel enforces different values.
        """
        helper = self._start_helper_container(link_name)
        if link_name == shared_link.NETWORK_SWITCH:
            record = self._shape_network_switch(helper)
        else:
            record = self._shape_node_link(helper, self.plan.node_plan(link_name))
        self.records[link_name] = record
        return record

    def shape_link_again(self, node_name: str) -> None:
        """Shape the link of a node whose container was started again, and has a new network namespace.

        Until the new helper has started, requests to the node's helper fail.

        Raises:
            TrialFailed: the link could not be shaped.
        """
        self.helpers[node_name].remove()  # stays in the table: another thread may send a link change meanwhile
        measured = self.records[node_name]
        shaped = self.shape_link(node_name)
        self._initial_counters.pop(node_name, None)
        self.records[node_name] = measured.model_copy(
            update={key: getattr(shaped, key) for key in ("read_back_uplink_bps", "read_back_downlink_bps")}
        )

    def update_link_record(self, link_name: str, **changed_fields: Any) -> LinkShapingRecord:
        """Change fields in the record of a link and return the new record."""
        self.records[link_name] = self.records[link_name].model_copy(update=changed_fields)
        return self.records[link_name]

    def link_enforcing_rate_limit(self, rate_limit_name: str) -> str | None:
        """Return the name of the link on which a rate limit between nodes is enforced.

        Return None if no link enforces it.
        """
        return next((name for name, record in self.records.items() if rate_limit_name in record.pipes_bps), None)

    def store_initial_queue_counters(self) -> None:
        """Store the counters of all queues before training.

        With these values, packets of probes are not reported.
        """
        self._initial_counters = self._read_queue_counters()

    def check_links_after_run(self, expected_link_states: Mapping[str, LinkState]) -> dict[str, LinkShapingRecord]:
        """Record the packet counts of each link and the deviations of the kernel from the trial plan.

        The counts are those of each link queue in the run. Deviations are kernel settings that differ from the plan.
        The interface of a node that has left is gone and can't be read. The record of the node's link then states that.

        Args:
            expected_link_states: node -> state in which its link should be after the events of the run.

        Returns:
            The records of all links, by node or network switch.
        """
        delay_replies = {
            name: self.helpers[name].submit("laws", queues=[*queues])
            for name, state in expected_link_states.items()
            if (queues := self.node_links[name].make_nfqueue_delays(state))
        }
        shown_scripts = {name: link.state_dump_script(self.interfaces[name]) for name, link in self.node_links.items()}
        state_replies = self._submit_scripts(shown_scripts)
        if shared_link.NETWORK_SWITCH in self.helpers:
            script = shared_link.make_tc_dump_script(self.plan)
            state_replies |= self._submit_scripts({shared_link.NETWORK_SWITCH: script})
        for name, devices in self._read_queue_counters().items():
            initial = self._initial_counters.get(name, {})
            queues = {
                device: queue.growth_since(initial.get(device, reading.QueueCounters())).model_dump()
                for device, queue in devices.items()
            }
            self.update_link_record(name, queues=queues)
        for name, reply in state_replies.items():
            try:
                current_output = reply.result(REPLY_TIMEOUT_S)["output"]
                delay_queues = delay_replies[name].result(REPLY_TIMEOUT_S)["laws"] if name in delay_replies else {}
            except (TrialFailed, TimeoutError) as error:
                no_reply = f"the helper container did not reply within {REPLY_TIMEOUT_S:g} s"
                self.update_link_record(name, unread=str(error) or no_reply)
            else:
                self._record_tc_deviations(name, current_output, expected_link_states.get(name), delay_queues)
        return dict(self.records)

    def _record_tc_deviations(
        self, link_name: str, tc_output: str, expected_state: LinkState | None, delay_queues: Mapping[str, Any]
    ) -> None:
        """Record how the kernel's state of a link differs from the expected state.

        The rates that the kernel has are recorded, too.

        Args:
            link_name: a node, or the network switch.
            tc_output: the kernel's state as `tc` printed it after the run.
            expected_state: of a node's link; None for the network switch, which no event changes.
            delay_queues: queues of the node's delay line, as the delay line reported them.
        """
        setup_output = self._setup_outputs[link_name]
        if expected_state is None:
            expected_rates = {key: rate for key, (_, rate) in shared_link.expected_htb_classes(self.plan).items()}
            differences = reading.htb_rate_differences(expected_rates, tc_output)
            if reading.parse_qdiscs_and_filters(setup_output) != reading.parse_qdiscs_and_filters(tc_output):
                differences.append("queues or filters changed during the run")
            limit_classes = {pipe.name: key for key, (pipe, _) in shared_link.expected_htb_classes(self.plan).items()}
        else:
            link, interface = self.node_links[link_name], self.interfaces[link_name]
            differences = link.find_external_link_changes(interface, expected_state, setup_output, tc_output)
            if delay_queues != link.make_nfqueue_delays(expected_state):
                differences.append("the delay line has other delays or losses than the plan")
            limit_classes = {name: ("up", class_id) for name, (class_id, _) in link.find_peer_htb_limits().items()}
        if not differences:
            return
        limit_rates = self._enforced_rate_limits(link_name, limit_classes, tc_output)
        self.update_link_record(link_name, changed_meanwhile=tuple(differences), pipes_bps=limit_rates)
        # After an event that changed the node's rates, they can't be compared with the declared ones.
        if expected_state is not None and expected_state == self.node_links[link_name].initial_state:
            self.update_link_record(link_name, **self._parse_link_rates(self.plan.node_plan(link_name), tc_output))

    def _enforced_rate_limits(
        self, link_name: str, tc_classes: Mapping[str, tuple[str, str]], tc_output: str
    ) -> dict[str, MeasuredLinkValue]:
        """Return the rate limits that a link enforces, with the rates that the kernel now has.

        Rates are in bit/s of virtual time.
        """
        ceilings = reading.parse_htb_rates_bps(tc_output)
        return {
            limit: recorded.model_copy(update={"achieved": ceilings.get(tc_classes[limit], 0.0) * self.plan.dilation})
            for limit, recorded in self.records[link_name].pipes_bps.items()
        }

    def _parse_link_rates(self, node: NodePlan, tc_output: str) -> dict[str, float | None]:
        """Return a node's uplink and downlink rate, parsed from the output of `tc`.

        The rates are fields of the link record, in bit/s of virtual time.
        """
        ceilings = reading.parse_htb_rates_bps(tc_output)
        declared = {"up": node.uplink_bps, "down": node.downlink_bps}
        enforced = {direction: ceilings.get((direction, "1:1"), 0.0) * self.plan.dilation for direction in declared}
        return {
            f"read_back_{direction}link_bps": enforced[direction] if rate else None
            for direction, rate in declared.items()
        }

    def check_helper_containers_run(self) -> None:
        """Check that all helper containers run.

        Helper containers delay packets, change links and read counters.

        Raises:
            TrialFailed: a helper has ended.
        """
        for name, helper in list(self.helpers.items()):
            if helper.failure_reason:
                raise TrialFailed(f"{name}: {helper.failure_reason}")

    def close(self) -> None:
        """End all helper containers."""
        with self._lock:
            self._closed = True
            helpers = list(self.helpers.values())
        for helper in helpers:
            helper.close()

    def _start_helper_container(self, link_name: str) -> LinkHelperContainer:
        """Start the helper container of a node or of the network switch.

        It starts beside the container of the node or switch, once that container runs.

        Raises:
            TrialFailed: Docker can't start the helper, or the trial is being stopped.
        """
        network_mode = f"container:{self._wait_for_container_id(link_name)}"
        if self._is_closed():
            raise TrialFailed(STOPPED_MESSAGE)
        helper_labels = container_labels(self.plan, HELPER_ROLE, f"{HELPER_ROLE}-{link_name}")
        try:
            helper = LinkHelperContainer(self._client, self._image, network_mode, helper_labels)
        except DockerException as error:
            raise TrialFailed(f"Docker could not start the helper container: {error}") from error
        with self._lock:
            self.helpers[link_name] = helper
        if self._is_closed():  # `close` ran while the helper was being started and did not know it
            helper.close()
            raise TrialFailed(STOPPED_MESSAGE)
        return helper

    def _is_closed(self) -> bool:
        with self._lock:
            return self._closed

    def _shape_node_link(self, helper_container: LinkHelperContainer, node: NodePlan) -> LinkShapingRecord:
        """Shape the link of a node and return its record.

        Raises:
            TrialFailed: the script failed, or the kernel has other rates or routes than those it was given.
        """
        link, dilation = self.node_links[node.name], self.plan.dilation
        # Loading distributions of delays takes too long to be done when an event is due.
        if queues_of_events := link.make_nfqueue_delays(link.state_with_all_changes):
            helper_container.request("delays", delays=queues_of_events)
        if initial_queues := link.make_nfqueue_delays(link.initial_state):
            helper_container.request("delays", delays=initial_queues)
        output = helper_container.request("script", script=link.make_link_setup_script())["output"]
        self._setup_outputs[node.name] = output
        self.interfaces[node.name] = reading.parse_interface_name(output)
        if differences := [
            *reading.htb_rate_differences(link.expected_rates_bps(), output),
            *link.missing_routes(output),
        ]:
            raise TrialFailed(f"the kernel's settings differ from the requested ones: {'; '.join(differences)}")
        ceilings = reading.parse_htb_rates_bps(output)
        return LinkShapingRecord(
            rung=self.mechanisms.rate if node.uplink_bps or node.downlink_bps else "none",
            rungs=self._find_shaping_mechanisms(node),
            uplink_bps=node.uplink_bps,
            downlink_bps=node.downlink_bps,
            **self._parse_link_rates(node, output),
            pipes_bps={
                name: MeasuredLinkValue(declared=declared_bps, achieved=ceilings["up", class_id] * dilation)
                for name, (class_id, declared_bps) in link.find_peer_htb_limits().items()
            },
            details=link.list_burst_and_segment_sizes(),
        )

    def _find_shaping_mechanisms(self, node_plan: NodePlan) -> dict[str, str]:
        """Return the shaping mechanism of each property that is declared for a node's link.

        Examples of properties are rate and delay.
        """
        link = self.node_links[node_plan.name]
        declared = {
            "rate": node_plan.uplink_bps or node_plan.downlink_bps,
            "delay": any(path.delay_s for path in link.initial_state.paths),
            "loss": any(path.losses for path in link.initial_state.paths),
            "pipes": link.routed_peer_addresses or link.find_peer_htb_limits(),
        }
        mechanisms = self.mechanisms.model_dump() | {"pipes": self.mechanisms.rate}
        if mechanisms["loss"] == "transport":
            mechanisms["loss"] = "none"  # the transport loses no packets
        return {property_name: mechanisms[property_name] for property_name, value in declared.items() if value}

    def _shape_network_switch(self, helper_container: LinkHelperContainer) -> LinkShapingRecord:
        """Shape all links that nodes share, and return the record of the network switch.

        The links are shaped in the network switch's container.

        Raises:
            TrialFailed: the script failed, or the kernel has other rates than those it was given.
        """
        limits = shared_link.expected_htb_classes(self.plan)
        setup_script = shared_link.shared_links_setup_script(self.plan)
        setup_output = helper_container.request("script", script=setup_script)["output"]
        self._setup_outputs[shared_link.NETWORK_SWITCH] = setup_output
        if differences := reading.htb_rate_differences({key: rate for key, (_, rate) in limits.items()}, setup_output):
            raise TrialFailed(f"the kernel's link settings differ from those requested: {'; '.join(differences)}")
        ceilings = reading.parse_htb_rates_bps(setup_output)
        return LinkShapingRecord(
            rung=self.mechanisms.rate,
            rungs={"pipes": self.mechanisms.rate},
            pipes_bps={
                pipe.name: MeasuredLinkValue(declared=pipe.rate_bps, achieved=ceilings[key] * self.plan.dilation)
                for key, (pipe, _) in limits.items()
            },
        )

    def _read_queue_counters(self) -> dict[str, dict[str, reading.QueueCounters]]:
        """Return the packet counters of all queues that can be read.

        Counters are grouped by node or network switch, and by network device.
        """
        scripts = {name: link.queue_counters_script(self.interfaces[name]) for name, link in self.node_links.items()}
        if shared_link.NETWORK_SWITCH in self.helpers:
            scripts[shared_link.NETWORK_SWITCH] = shared_link.make_htb_counter_script(self.plan)
        counters = {}
        for name, reply in self._submit_scripts(scripts).items():
            with suppress(TrialFailed, TimeoutError, ValueError):
                counters[name] = reading.parse_queue_counters(reply.result(REPLY_TIMEOUT_S)["output"])
        return counters

    def _submit_scripts(self, script_by_link: Mapping[str, str]) -> dict[str, Future[dict[str, Any]]]:
        """Send a script to each helper container, and return a future of each reply.

        All scripts are sent before waiting for a reply, as nodes may exit during the wait.
        """
        return {name: self.helpers[name].submit("script", script=script) for name, script in script_by_link.items()}
