"""Who makes a trial's links what the plan says? A helper per node and one for the switch, before the gate and after."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import docker
from docker.errors import DockerException

from compose.engines.base import Measured, Shaped
from compose.engines.helpers import HELPER, Helper
from compose.marks import labels
from compose.shaping import reading, switch
from compose.shaping.node import NodeLink
from compose.shaping.rungs import Rungs
from compose.shaping.state import members
from compose.supervise import TrialFailed
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

    def record_pipe(self, pipe: str, achieved_bps: float) -> None:
        """What arrived of a flood through a limit of pairs or groups, in the entry of whoever enforces it."""
        for name, shaped in self._shaped.items():
            if pipe in shaped.pipes_bps:
                self.record(name, achieved_pipes_bps=shaped.achieved_pipes_bps | {pipe: achieved_bps})
                return

    def begin_counting(self, pool: ThreadPoolExecutor) -> None:
        """Remember what was counted up to now; only what comes after belongs to the run."""
        self._counted = self._count(pool)

    def account(self, pool: ThreadPoolExecutor) -> dict[str, Shaped]:
        """What queues have counted since then, and which rates the kernel has now: somebody may have changed them."""
        self._read_again(pool)
        for name, devices in self._count(pool).items():
            before = self._counted.get(name, {})
            queues = {
                device: queue.since(before.get(device, reading.Queue())).model_dump()
                for device, queue in devices.items()
            }
            self.record(name, queues=queues)
        return dict(self._shaped)

    def _read_again(self, pool: ThreadPoolExecutor) -> None:
        """Record rates that are not those of the beginning; events change rates, so their nodes are left out."""
        changed = {name for event in self.plan.events if event.is_of_links for name in event.what.nodes}
        same = {name: link for name, link in self.links.items() if name not in changed and link.wanted()}
        asked = {name: pool.submit(self.helpers[name].do, "script", script=same[name].shown()) for name in same}
        for name, answer in asked.items():
            printed = answer.result()["said"]
            if wrong := reading.differences(same[name].wanted(), printed):
                now = self._directions(self.plan.node(name), printed)
                self.record(name, **now, details=self._shaped[name].details | {"changed_meanwhile": wrong})

    def _directions(self, node: NodePlan, printed: str) -> dict[str, float | None]:
        """What the kernel enforces of a node's own rates, virtual, as fields of the record."""
        found = reading.ceilings(printed)
        declared = {"up": node.uplink_bps, "down": node.downlink_bps}
        now = {way: found[way, "1:1"] * self.plan.dilation for way in declared if (way, "1:1") in found}
        return {f"read_back_{way}link_bps": now.get(way) if rate else None for way, rate in declared.items()}

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
        with self._lock:
            if self._closed:
                raise TrialFailed(STOPPED)
        try:
            helper = Helper(self._client, self._image, network, labels(self.plan, HELPER, f"{HELPER}-{name}"))
        except DockerException as error:
            raise TrialFailed(str(error)) from error
        with self._lock:
            self.helpers[name] = helper
            closed = self._closed
        if closed:  # while it was being started: nobody else will
            helper.close()
            raise TrialFailed(STOPPED)
        return helper

    def _node(self, helper: Helper, node: NodePlan) -> Shaped:
        link, dilation = self.links[node.name], self.plan.dilation
        if later := link.queues(link.anything):  # laws take a moment to load, which an event does not have
            helper.do("delays", delays=later)
        if queues := link.queues(link.state):
            helper.do("delays", delays=queues)
        printed = helper.do("script", script=link.setup())["said"]
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
        printed = helper.do("script", script=switch.script(self.plan))["said"]
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

    def _count(self, pool: ThreadPoolExecutor) -> dict[str, dict[str, reading.Queue]]:
        scripts = {name: link.counters() for name, link in self.links.items()}
        if switch.SWITCH in self.helpers:
            scripts[switch.SWITCH] = switch.counters(self.plan)
        asked: Mapping[str, Future[dict[str, Any]]] = {
            name: pool.submit(self.helpers[name].do, "script", script=script) for name, script in scripts.items()
        }
        return {name: reading.queues(answer.result()["said"]) for name, answer in asked.items()}
