"""Who makes a trial's links what the plan says? A helper per node and one for the switch, before the gate and after."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import docker
from docker.errors import DockerException

from compose.engines.base import Measured, Shaped
from compose.engines.containers.helper_containers import ANSWER_S, HELPER, Helper
from compose.runs.labels import labels
from compose.runs.supervisor import TrialFailed
from compose.shaping import shared_link as switch
from compose.shaping import tc_output as reading
from compose.shaping.link_state import LinkState, members
from compose.shaping.mechanisms import Rungs
from compose.shaping.node_link import NodeLink
from services.plan import NodePlan, Plan

STOPPED = "the trial is being stopped"


class Enforcement:
    """The links of one trial."""

    def __init__(
        self, plan: Plan, client: docker.DockerClient, image: str, rungs: Rungs, running: Callable[[str], str]
    ) -> None:
        """`running` waits for a node, or the switch, and gives its container's id."""
        self.plan, self.rungs = plan, rungs
        self._client, self._image, self._running = client, image, running
        address = switch.address(plan) if switch.shared(plan) else None
        self.links = {node.name: NodeLink(plan, node, rungs, address) for node in members(plan)}
        self.helpers: dict[str, Helper] = {}
        self.devices: dict[str, str] = {}  # node -> its interface on the data network
        self._shaped: dict[str, Shaped] = {}
        self._printed: dict[str, str] = {}  # what the kernel had before the run
        self._counted: dict[str, dict[str, reading.Queue]] = {}
        self._lock = threading.Lock()
        self._closed = False

    @property
    def names(self) -> tuple[str, ...]:
        """Everybody who has a helper."""
        return (*self.links, *((switch.SWITCH,) if switch.shared(self.plan) else ()))

    def shape(self, name: str) -> Shaped:
        """Shape one link as soon as its container runs, and read back what the kernel made of it.

        Raises:
            TrialFailed: it could not be done, or the kernel has something else.
        """
        helper = self._helper(name)
        shaped = self._switch(helper) if name == switch.SWITCH else self._node(helper, self.plan.node(name))
        self._shaped[name] = shaped
        return shaped

    def record(self, name: str, **found: Any) -> Shaped:
        """The entry of a link with something new in it."""
        self._shaped[name] = self._shaped[name].model_copy(update=found)
        return self._shaped[name]

    def owner(self, pipe: str) -> str | None:
        """Who enforces a limit of pairs or groups."""
        return next((name for name, shaped in self._shaped.items() if pipe in shaped.pipes_bps), None)

    def begin_counting(self) -> None:
        """Remember what was counted up to now; only what comes after belongs to the run."""
        self._counted = self._count()

    def account(self, states: Mapping[str, LinkState]) -> dict[str, Shaped]:
        """What queues have counted since then, and what the kernel has now: somebody may have changed it.

        A node may have left, and its interface with it: then nobody knows, and its entry says that.

        Args:
            states: what links should be now.
        """
        laws = {
            name: self.helpers[name].ask("laws", queues=[*self.links[name].queues(states[name])])
            for name in states
            if self.links[name].queues(states[name])
        }
        shown = self._ask({name: link.shown(self.devices[name]) for name, link in self.links.items()})
        if switch.SWITCH in self.helpers:
            shown |= self._ask({switch.SWITCH: switch.shown(self.plan)})
        for name, devices in self._count().items():
            before = self._counted.get(name, {})
            queues = {
                device: queue.since(before.get(device, reading.Queue())).model_dump()
                for device, queue in devices.items()
            }
            self.record(name, queues=queues)
        for name, answer in shown.items():
            try:
                now = answer.result(ANSWER_S)["said"]
                known = laws[name].result(ANSWER_S)["laws"] if name in laws else {}
            except (TrialFailed, TimeoutError) as error:
                self.record(name, unread=str(error) or "no answer from its helper")
            else:
                self._compare(name, now, states.get(name), known)
        return dict(self._shaped)

    def _compare(self, name: str, now: str, state: LinkState | None, laws: Mapping[str, Any]) -> None:
        """Record what somebody else has changed, and the rates that the kernel has instead."""
        before = self._printed[name]
        if state is None:
            wanted = {key: rate for key, (_, rate) in switch.wanted(self.plan).items()}
            wrong = reading.differences(wanted, now)
            if reading.structure(before) != reading.structure(now):
                wrong.append("queues or filters are not those of before the run")
            pipes = {pipe.name: key for key, (pipe, _) in switch.wanted(self.plan).items()}
        else:
            wrong = self.links[name].changed(self.devices[name], state, before, now)
            if laws != self.links[name].queues(state):
                wrong.append("the delay line follows other laws")
            pipes = {pipe: ("up", classid) for pipe, (classid, _) in self.links[name].pipes().items()}
        if not wrong:
            return
        self.record(name, changed_meanwhile=tuple(wrong), pipes_bps=self._pipes_now(name, pipes, now))
        if state is not None and state == self.links[name].state:  # events change rates, which says nothing of the rest
            self.record(name, **self._directions(self.plan.node(name), now))

    def _pipes_now(self, name: str, pipes: Mapping[str, tuple[str, str]], now: str) -> dict[str, Measured]:
        found = reading.ceilings(now)
        return {
            pipe: known.model_copy(update={"achieved": found.get(pipes[pipe], 0.0) * self.plan.dilation})
            for pipe, known in self._shaped[name].pipes_bps.items()
        }

    def _directions(self, node: NodePlan, printed: str) -> dict[str, float | None]:
        """What the kernel enforces of a node's own rates, virtual, as fields of the record."""
        found = reading.ceilings(printed)
        declared = {"up": node.uplink_bps, "down": node.downlink_bps}
        now = {way: found.get((way, "1:1"), 0.0) * self.plan.dilation for way in declared}
        return {f"read_back_{way}link_bps": now[way] if rate else None for way, rate in declared.items()}

    def check(self) -> None:
        """Raises TrialFailed when a helper has ended: nobody would delay packets, change links or count any more."""
        for name, helper in list(self.helpers.items()):
            if helper.complaint:
                raise TrialFailed(f"{name}: {helper.complaint}")

    def close(self) -> None:
        """End all helpers."""
        with self._lock:
            self._closed = True
            helpers = list(self.helpers.values())
        for helper in helpers:
            helper.close()

    def _helper(self, name: str) -> Helper:
        network = f"container:{self._running(name)}"
        if self._is_closed():
            raise TrialFailed(STOPPED)
        try:
            helper = Helper(self._client, self._image, network, labels(self.plan, HELPER, f"{HELPER}-{name}"))
        except DockerException as error:
            raise TrialFailed(str(error)) from error
        with self._lock:
            self.helpers[name] = helper
        if self._is_closed():  # while it was being started: nobody else will
            helper.close()
            raise TrialFailed(STOPPED)
        return helper

    def _is_closed(self) -> bool:
        with self._lock:
            return self._closed

    def _node(self, helper: Helper, node: NodePlan) -> Shaped:
        link, dilation = self.links[node.name], self.plan.dilation
        if later := link.queues(link.anything):  # laws take a moment to load, which an event does not have
            helper.do("delays", delays=later)
        if queues := link.queues(link.state):
            helper.do("delays", delays=queues)
        printed = helper.do("script", script=link.setup())["said"]
        self._printed[node.name] = printed
        self.devices[node.name] = reading.interface(printed)
        if wrong := [*reading.differences(link.wanted(), printed), *link.missing_routes(printed)]:
            raise TrialFailed("; ".join(wrong))
        found = reading.ceilings(printed)
        return Shaped(
            rung=self.rungs.rate if node.uplink_bps or node.downlink_bps else "none",
            rungs=self._rungs_of(node),
            uplink_bps=node.uplink_bps,
            downlink_bps=node.downlink_bps,
            **self._directions(node, printed),
            pipes_bps={
                name: Measured(declared=declared, achieved=found["up", classid] * dilation)
                for name, (classid, declared) in link.pipes().items()
            },
            details=link.chosen(),
        )

    def _rungs_of(self, node: NodePlan) -> dict[str, str]:
        """The rungs of what is declared for a node's link."""
        link = self.links[node.name]
        declared = {
            "rate": node.uplink_bps or node.downlink_bps,
            "delay": any(path.delay_s for path in link.state.paths),
            "loss": any(path.losses for path in link.state.paths),
            "pipes": link.detours or link.pipes(),
        }
        used = self.rungs.model_dump() | {"pipes": self.rungs.rate}
        if used["loss"] == "transport":
            used["loss"] = "none"  # nothing is lost on that rung
        return {what: used[what] for what, says in declared.items() if says}

    def _switch(self, helper: Helper) -> Shaped:
        wanted = switch.wanted(self.plan)
        printed = self._printed[switch.SWITCH] = helper.do("script", script=switch.script(self.plan))["said"]
        if wrong := reading.differences({key: rate for key, (_, rate) in wanted.items()}, printed):
            raise TrialFailed("; ".join(wrong))
        found = reading.ceilings(printed)
        return Shaped(
            rung=self.rungs.rate,
            rungs={"pipes": self.rungs.rate},
            pipes_bps={
                pipe.name: Measured(declared=pipe.rate_bps, achieved=found[key] * self.plan.dilation)
                for key, (pipe, _) in wanted.items()
            },
        )

    def _count(self) -> dict[str, dict[str, reading.Queue]]:
        """Node -> device -> what it has counted; whoever can't be read is absent."""
        scripts = {name: link.counters(self.devices[name]) for name, link in self.links.items()}
        if switch.SWITCH in self.helpers:
            scripts[switch.SWITCH] = switch.counters(self.plan)
        counted = {}
        for name, answer in self._ask(scripts).items():
            with suppress(TrialFailed, TimeoutError, ValueError):
                counted[name] = reading.queues(answer.result(ANSWER_S)["said"])
        return counted

    def _ask(self, scripts: Mapping[str, str]) -> dict[str, Future[dict[str, Any]]]:
        """All at once: nodes that have nothing left to do are gone soon."""
        return {name: self.helpers[name].ask("script", script=script) for name, script in scripts.items()}
