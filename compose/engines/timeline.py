"""When do links change, and who changes them? Helpers do, at a moment that they are told ahead of it."""

import heapq
import json
import threading
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from compose.engines.enforcement import Enforcement
from compose.shaping.state import LinkState, members, state_of
from services.plan import Plan
from services.timeline import AnyHappening, Event

AHEAD_S = 0.3  # wall seconds between telling helpers and the moment
APPLIED_S = 10.0  # wall seconds after which a change that nobody confirms has failed
BEGIN, END = "begin", "end"


class Asked(Protocol):
    """A request to a helper, under way."""

    def result(self, timeout: float) -> dict[str, Any]:
        """Its answer."""


class Timeline:
    """The events of links of one trial, from the coordinator's first step to the end of the run."""

    def __init__(self, plan: Plan, links: Enforcement, record: Path) -> None:
        """`record` gets a line per change, of JSON; it is not written when there are none."""
        self._plan, self._links, self._record = plan, links, record
        self._events = {event.number: event for event in plan.events if event.is_of_links}
        self._active: dict[int, AnyHappening] = {}
        self._states = {node.name: state_of(plan, node) for node in members(plan)}
        self._due: list[tuple[float, int, Event, str]] = []
        self._order = count()
        self._epoch_s = time.time() - time.monotonic()  # what a node's clock adds to a log line
        self._start: float | None = None  # moment of the monotonic clock at which training began
        self._changed = threading.Condition()
        self._closed = False
        self._writing = threading.Lock()

    def heed(self, event: Mapping[str, Any]) -> None:
        """The coordinator has logged something: the beginning of training, or the step of an event."""
        if not self._events:
            return
        moment = (event["time_ms"] / 1e3 - self._epoch_s) * self._plan.dilation
        if event["key"] == "run_start" and self._start is None:
            self._start = moment
            for known in self._events.values():
                if known.time_s is not None:
                    self._at(moment + known.time_s * self._plan.dilation, known, BEGIN)
            threading.Thread(target=self._lead, daemon=True).start()
        elif event["key"] == "event_due" and event["value"]["number"] in self._events:
            self._at(moment, self._events[event["value"]["number"]], BEGIN)

    def close(self) -> None:
        """No more changes."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _at(self, moment: float, event: Event, phase: str) -> None:
        with self._changed:
            heapq.heappush(self._due, (moment, next(self._order), event, phase))
            self._changed.notify()

    def _lead(self) -> None:
        """Take what is due next, a little ahead of it, until the run is over."""
        while True:
            with self._changed:
                while not self._closed and (not self._due or self._due[0][0] - AHEAD_S > time.monotonic()):
                    wait_s = self._due[0][0] - AHEAD_S - time.monotonic() if self._due else None
                    self._changed.wait(wait_s)
                if self._closed:
                    return
                moment, _, event, phase = heapq.heappop(self._due)
            self._change(moment, event, phase)

    def _change(self, moment: float, event: Event, phase: str) -> None:
        """Tell every node that an event changes; whoever is told too late does it at once."""
        if phase == BEGIN:
            self._active[event.number] = event.what
            if event.what.lasts is not None:
                self._at(moment + event.what.lasts * self._plan.dilation, event, END)
        else:
            del self._active[event.number]
        active = [self._active[number] for number in self._active]
        asked: dict[str, Asked] = {}
        for node in members(self._plan):
            before, after = self._states[node.name], state_of(self._plan, node, active)
            if before != after:
                asked[node.name] = self._tell(moment, node.name, before, after)
                self._states[node.name] = after
        threading.Thread(target=self._confirm, args=(moment, event, phase, asked), daemon=True).start()

    def _tell(self, moment: float, name: str, before: LinkState, after: LinkState) -> Asked:
        link = self._links.links[name]
        known = link.queues(before)
        delays = {queue: spec for queue, spec in link.queues(after).items() if known.get(queue) != spec}
        programs = link.change(self._links.devices[name], before, after)
        return self._links.helpers[name].ask("at", moment=moment, programs=programs, delays=delays)

    def _confirm(self, moment: float, event: Event, phase: str, asked: Mapping[str, Asked]) -> None:
        """Wait for all nodes, then write when the last one had changed; a failure is a line, too."""
        applied, failed = moment, ""
        for name, answer in asked.items():
            try:
                applied = max(applied, answer.result(max(0.0, moment - time.monotonic()) + APPLIED_S)["applied"])
            except Exception as error:  # noqa: BLE001 - whatever happened, the record has to say that it did
                failed = f"{name}: {error or type(error).__name__}"
        line = {
            "number": event.number,
            "kind": event.what.kind,
            "planned_s": self._virtual(moment),
            "applied_s": None if failed else self._virtual(applied),
            "lateness_s": None if failed else round((applied - moment) / self._plan.dilation, 6),
            "phase": phase,
            "by": self._by(event),
            "nodes": sorted(asked),
        }
        with self._writing, self._record.open("a") as file:
            file.write(json.dumps(line | ({"failed": failed} if failed else {})) + "\n")

    def _by(self, event: Event) -> str:
        """The rungs that apply an event."""
        rungs, what = self._links.rungs, event.what
        used = {
            "rate": any(getattr(what, key, None) for key in ("uplink", "downlink")),
            "delay": getattr(what, "delay", None),
            "loss": getattr(what, "loss", None),
            "partition": hasattr(what, "apart"),
        }
        return ", ".join(dict.fromkeys(getattr(rungs, key) for key, applies in used.items() if applies))

    def _virtual(self, moment: float) -> float:
        """Virtual seconds since training began."""
        return round((moment - (self._start or moment)) / self._plan.dilation, 6)
