"""When do links change, and who changes them? Helpers do, at a moment that they are told ahead of it."""

import bisect
import heapq
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from compose.engines.containers.link_enforcement import Enforcement
from compose.shaping.link_state import LinkState, members, state_of
from services.cluster.events import AnyHappening, Event
from services.plan import Plan

AHEAD_S = 0.3  # wall seconds between telling helpers and the moment
APPLIED_S = 10.0  # wall seconds after which a change that nobody confirms has failed
BEGIN, END = "begin", "end"


class Asked(Protocol):
    """A request to a helper, under way."""

    def result(self, timeout: float) -> dict[str, Any]:
        """Its answer."""


@dataclass
class _Change:
    """The beginning or the end of an event, as helpers were told of it."""

    number: int
    moment: float  # as planned
    at: float  # the same, or now where that was over already
    event: Event
    phase: str
    told: dict[str, tuple[LinkState, LinkState]] = field(default_factory=dict)  # node -> before and after
    asked: dict[str, Asked] = field(default_factory=dict)  # node -> the newest request

    @property
    def place(self) -> tuple[float, int]:
        """Among all changes."""
        return self.at, self.number


class Timeline:
    """The events of links of one trial, from the coordinator's first step to the end of the run."""

    def __init__(self, plan: Plan, links: Enforcement, record: Path) -> None:
        """`record` gets a line per change, of JSON; it is not written when there are none."""
        self._plan, self._links, self._record = plan, links, record
        self._events = {event.number: event for event in plan.events if event.is_of_links}
        self._active: dict[int, tuple[float, AnyHappening]] = {}  # event -> since when, and what
        self._told: list[_Change] = []  # to helpers, and still to come; both of the above are without them
        self._after: dict[str, dict[int, LinkState]] = {}  # node -> change -> its link after it
        self._initial = {node.name: state_of(plan, node) for node in members(plan)}
        self._states = {node.name: state_of(plan, node) for node in members(plan)}
        self._due: list[tuple[float, int, Event, str]] = []
        self._order = count()
        self._epoch_s = time.time() - time.monotonic()  # what a node's clock adds to a log line
        self._start: float | None = None  # moment of the monotonic clock at which training began
        self._changed = threading.Condition()
        self._closed = False
        self._end: float | None = None  # moment after which nothing has to change
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
            self._end = self._end or time.monotonic()
            self._changed.notify()

    def settle(self) -> dict[str, LinkState]:
        """No more changes, of which helpers may know some already; what links must be now.

        Raises:
            TrialFailed: a helper does not say which change was its last.
        """
        self.close()
        with self._changed:
            asked = {name: self._links.helpers[name].ask("forget") for name in self._after}
        last = {name: answer.result(APPLIED_S)["last"] for name, answer in asked.items()}
        return {name: self._after.get(name, {}).get(last.get(name, -1), known) for name, known in self._initial.items()}

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
                moment, number, event, phase = heapq.heappop(self._due)
                if phase == BEGIN and event.what.lasts is not None:
                    self._at(moment + event.what.lasts * self._plan.dilation, event, END)
                change = _Change(number, moment, max(moment, time.monotonic()), event, phase)
                self._insert(change)
            threading.Thread(target=self._confirm, args=(change,), daemon=True).start()

    def _insert(self, change: _Change) -> None:
        """Tell every node of a change, and of those after it once more: they change something else now."""
        now = time.monotonic()
        while self._told and self._told[0].at <= now:
            self._active = _with(self._active, past := self._told.pop(0))
            self._states |= {name: after for name, (_, after) in past.told.items()}
        bisect.insort(self._told, change, key=lambda each: each.place)
        active, before = self._active, self._states
        for each in self._told:
            active = _with(active, each)
            whats = [what for _, what in sorted(active.values(), key=lambda begun: begun[0])]
            after = {node.name: state_of(self._plan, node, whats) for node in members(self._plan)}
            if each.place >= change.place:
                for name, state in after.items():
                    self._tell(each, name, before[name], state)
            before = after

    def _tell(self, change: _Change, name: str, before: LinkState, after: LinkState) -> None:
        """Whoever is told too late does it at once; what it was told first may have been done by then."""
        known = change.told.get(name, (before, before))
        if (known == (before, after)) or (name not in change.told and before == after):
            return
        change.told[name] = (before, after)
        self._after.setdefault(name, {})[change.number] = after
        link, possible = self._links.links[name], {id(state): state for state in (before, *known)}.values()
        programs = link.change(self._links.devices[name], tuple(possible), after)
        change.asked[name] = self._links.helpers[name].ask(
            "at",
            number=change.number,
            moment=change.at,
            programs=programs,
            delays={
                queue: spec
                for queue, spec in link.queues(after).items()
                if any(link.queues(state).get(queue) != spec for state in possible)
            },
        )

    def _confirm(self, change: _Change) -> None:
        """Wait for all nodes, then write when the last one had changed; a failure is a line, too."""
        event, moment = change.event, change.moment
        time.sleep(max(0.0, change.at - time.monotonic()))  # until then, others may be told, or told anew
        with self._changed:
            asked = dict(change.asked)
        applied, failed = moment, ""
        for name, answer in asked.items():
            try:
                found = answer.result(APPLIED_S)["applied"]
            except Exception as error:  # noqa: BLE001 - whatever happened, the record has to say that it did
                failed = f"{name}: {error or type(error).__name__}"
            else:
                if found is None:  # the run was over first
                    return
                applied = max(applied, found)
        if self._end is not None and change.at >= self._end:
            return
        line = {
            "number": event.number,
            "kind": event.what.kind,
            "planned_s": self._virtual(moment),
            "applied_s": None if failed else self._virtual(applied),
            "lateness_s": None if failed else round((applied - moment) / self._plan.dilation, 6),
            "phase": change.phase,
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


def _with(active: Mapping[int, tuple[float, AnyHappening]], change: _Change) -> dict[int, tuple[float, AnyHappening]]:
    """What is in force after a change."""
    number, what = change.event.number, change.event.what
    others = {other: begun for other, begun in active.items() if other != number}
    return others | {number: (change.moment, what)} if change.phase == BEGIN else others
