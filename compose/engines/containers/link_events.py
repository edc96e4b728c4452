"""Events that change links during a trial.

Helper containers receive every change shortly before it is due. An event begins at a virtual time or when training
begins a step, and may end after a while. Both are *changes*. When a change comes before changes that helpers already
know, they receive these later changes again, since the later changes now start from another state of the link.
"""

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

from compose.engines.containers.link_enforcement import LinkShaper
from compose.runs.trials.log_moments import LogMoments
from compose.shaping.link_state import LinkState, data_network_nodes, link_state_of
from services.cluster.events import AnyDeclaredEvent, PlannedEvent
from services.plan import Plan

SCHEDULE_AHEAD_S = 0.3  # wall seconds by which helpers receive a change before it is due
CONFIRM_TIMEOUT_S = 10.0  # wall seconds after which a change without a helper's confirmation counts as failed
BEGIN, END = "begin", "end"


class HelperReply(Protocol):
    """Future of a helper container's reply to a request."""

    def result(self, timeout: float) -> dict[str, Any]:
        """Wait at most `timeout` seconds and return the reply."""


@dataclass
class _LinkEventBoundary:
    """Beginning or end of a link event, as sent to helper containers, with its times on the monotonic clock."""

    number: int
    planned_at_s: float  # according to the plan
    due_at_s: float  # the planned moment, or the moment of scheduling where that is later
    event: PlannedEvent
    boundary: str  # BEGIN or END
    transitions: dict[str, tuple[LinkState, LinkState]] = field(default_factory=dict)  # node -> state before and after
    replies: dict[str, HelperReply] = field(default_factory=dict)  # node -> reply to the newest request

    @property
    def due_time_and_change_number(self) -> tuple[float, int]:
        """Sort key of a link change: the time at which the change is due, then its number."""
        return self.due_at_s, self.number


class LinkEventScheduler:
    """Applies the link events of a trial at their planned times.

    It is active from the start of training to the end of the run.
    """

    def __init__(self, plan: Plan, links: LinkShaper, record_path: Path) -> None:
        """Create the scheduler of link events.

        It applies no event before the coordinator logs the event `run_start`.

        Args:
            plan: of the trial.
            links: with a running helper for every node.
            record_path: receives one line of JSON per change; not created when there is no change.
        """
        self._plan, self._links, self._record_path = plan, links, record_path
        self._events = {event.number: event for event in plan.events if event.is_link_event}
        self._initial_states = {node.name: link_state_of(plan, node) for node in data_network_nodes(plan)}
        # Active events and link states before the changes in `_scheduled`.
        self._active_events: dict[
            int, tuple[float, AnyDeclaredEvent]
        ] = {}  # event -> moment of its begin, and its changes
        self._current_states = {node.name: link_state_of(plan, node) for node in data_network_nodes(plan)}
        self._scheduled: list[_LinkEventBoundary] = []  # sent to helpers and not yet due, in the order of their moments
        self._states_after: dict[str, dict[int, LinkState]] = {}  # node -> change -> state of the link after the change
        self._due: list[tuple[float, int, PlannedEvent, str]] = []  # heap of changes that are not yet sent to helpers
        self._change_numbers = count()
        self._log_moments = LogMoments(plan.dilation)
        self._training_start_s: float | None = None  # moment of the monotonic clock at which training began
        self._changed = threading.Condition()
        self._is_closed = False
        self._end_s: float | None = None  # moment of the monotonic clock after which no change is needed
        self._write_lock = threading.Lock()

    def handle_log_event(self, log_event: Mapping[str, Any]) -> None:
        """Handle an event of the coordinator's log.

        The event is the start of training, or the step at which a link event begins.
        """
        if not self._events:
            return
        logged_at_s = self._log_moments.to_monotonic_s(log_event)
        if log_event["key"] == "run_start" and self._training_start_s is None:
            self._training_start_s = logged_at_s
            for link_event in self._events.values():
                if link_event.time_s is not None:
                    self._schedule_link_change(logged_at_s + link_event.time_s * self._plan.dilation, link_event, BEGIN)
            threading.Thread(target=self._send_scheduled_changes, daemon=True).start()
        elif log_event["key"] == "event_due" and log_event["value"]["number"] in self._events:
            self._schedule_link_change(logged_at_s, self._events[log_event["value"]["number"]], BEGIN)

    def close(self) -> None:
        """Stop scheduling link changes.

        Helper containers may still apply changes that they have received.
        """
        with self._changed:
            self._is_closed = True
            self._end_s = self._end_s or time.monotonic()
            self._changed.notify()

    def restore_link(self, node_name: str) -> None:
        """Bring the link of a node, which was shaped as at the start of the trial, to its present state.

        The node has a new helper, which also receives the later changes that the old one knew.
        """
        with self._changed:
            self._drop_past_changes()
            initial, present = self._initial_states[node_name], self._current_states[node_name]
            if present != initial:
                self._submit_change(node_name, next(self._change_numbers), time.monotonic(), (initial,), present)
            for scheduled in self._scheduled:
                if node_name in scheduled.transitions:
                    before, after = scheduled.transitions[node_name]
                    scheduled.replies[node_name] = self._submit_change(
                        node_name, scheduled.number, scheduled.due_at_s, (before,), after
                    )

    def stop_and_return_link_states(self) -> dict[str, LinkState]:
        """Cancel all link changes that are not applied yet, and return the state of each link.

        The state is the one that each node's link must now have.

        Raises:
            TrialFailed: a helper failed to report the last change that it applied.
        """
        self.close()
        with self._changed:
            replies = {name: self._links.helpers[name].submit("forget") for name in self._states_after}
        last_changes = {name: reply.result(CONFIRM_TIMEOUT_S)["last"] for name, reply in replies.items()}
        return {
            name: self._states_after.get(name, {}).get(last_changes.get(name, -1), initial_state)
            for name, initial_state in self._initial_states.items()
        }

    def _schedule_link_change(self, planned_at_s: float, link_event: PlannedEvent, begin_or_end: str) -> None:
        with self._changed:
            heapq.heappush(self._due, (planned_at_s, next(self._change_numbers), link_event, begin_or_end))
            self._changed.notify()

    def _send_scheduled_changes(self) -> None:
        """Send each link change to the helper containers, until the scheduler is closed.

        A change is sent `SCHEDULE_AHEAD_S` seconds before it is due.
        """
        while True:
            with self._changed:
                while not self._is_closed and (not self._due or self._due[0][0] - SCHEDULE_AHEAD_S > time.monotonic()):
                    wait_s = self._due[0][0] - SCHEDULE_AHEAD_S - time.monotonic() if self._due else None
                    self._changed.wait(wait_s)
                if self._is_closed:
                    return
                planned_at_s, number, event, boundary = heapq.heappop(self._due)
                if boundary == BEGIN and event.change.lasts is not None:
                    self._schedule_link_change(planned_at_s + event.change.lasts * self._plan.dilation, event, END)
                due_at_s = max(planned_at_s, time.monotonic())
                change = _LinkEventBoundary(number, planned_at_s, due_at_s, event, boundary)
                self._insert_into_schedule(change)
            threading.Thread(target=self._log_link_change_time, args=(change,), daemon=True).start()

    def _insert_into_schedule(self, event_boundary: _LinkEventBoundary) -> None:
        """Send a link change to the helper containers of the nodes that it affects.

        Send later changes again with link states that include this one.
        """
        self._drop_past_changes()
        bisect.insort(self._scheduled, event_boundary, key=lambda scheduled: scheduled.due_time_and_change_number)
        active_events, states_before = self._active_events, self._current_states
        for scheduled in self._scheduled:
            active_events = _find_active_link_events(active_events, scheduled)
            in_order_of_begin = sorted(active_events.values(), key=lambda active: active[0])
            link_changes = [link_change for _, link_change in in_order_of_begin]
            states = {
                node.name: link_state_of(self._plan, node, link_changes) for node in data_network_nodes(self._plan)
            }
            if scheduled.due_time_and_change_number >= event_boundary.due_time_and_change_number:
                for name, state in states.items():
                    self._send_change_to_helper(scheduled, name, states_before[name], state)
            states_before = states

    def _drop_past_changes(self) -> None:
        """Make the changes whose moment has passed part of the present state of links."""
        now = time.monotonic()
        while self._scheduled and self._scheduled[0].due_at_s <= now:
            self._active_events = _find_active_link_events(self._active_events, past := self._scheduled.pop(0))
            self._current_states |= {name: after for name, (_, after) in past.transitions.items()}

    def _send_change_to_helper(
        self, event_boundary: _LinkEventBoundary, node_name: str, state_before: LinkState, state_after: LinkState
    ) -> None:
        """Send a transition between two states of a node's link to the node's helper container.

        Nothing is sent if the transition was sent before. A helper that receives a transition after its moment applies
        it at once. An earlier version of the transition may have been applied by then, so the programs must lead to the
        new state from every possible state.
        """
        sent = event_boundary.transitions.get(node_name, (state_before, state_before))
        if sent == (state_before, state_after) or (
            node_name not in event_boundary.transitions and state_before == state_after
        ):
            return
        event_boundary.transitions[node_name] = (state_before, state_after)
        possible_states = tuple({id(state): state for state in (state_before, *sent)}.values())
        event_boundary.replies[node_name] = self._submit_change(
            node_name, event_boundary.number, event_boundary.due_at_s, possible_states, state_after
        )

    def _submit_change(
        self,
        node_name: str,
        number: int,
        due_at_s: float,
        possible_states: tuple[LinkState, ...],
        state_after: LinkState,
    ) -> HelperReply:
        """Send a change of a node's link to the node's helper, which applies it at a moment of the monotonic clock."""
        self._states_after.setdefault(node_name, {})[number] = state_after
        link = self._links.node_links[node_name]
        programs = link.make_link_change_commands(self._links.interfaces[node_name], possible_states, state_after)
        return self._links.helpers[node_name].submit(
            "at",
            number=number,
            moment=due_at_s,
            programs=programs,
            delays={
                queue: spec
                for queue, spec in link.make_nfqueue_delays(state_after).items()
                if any(link.make_nfqueue_delays(state).get(queue) != spec for state in possible_states)
            },
        )

    def _log_link_change_time(self, event_boundary: _LinkEventBoundary) -> None:
        """Wait until all helper containers have applied a link change, then log the time.

        The time is that of the last helper container. If a helper reports an error, the error is logged.
        """
        event, planned_at_s = event_boundary.event, event_boundary.planned_at_s
        time.sleep(max(0.0, event_boundary.due_at_s - time.monotonic()))  # until then, the change may be sent again
        with self._changed:
            replies = dict(event_boundary.replies)
        last_applied_s, failure = planned_at_s, ""
        for name, reply in replies.items():
            try:
                applied_s = reply.result(CONFIRM_TIMEOUT_S)["applied"]
            except Exception as error:  # noqa: BLE001 - every failure must be recorded, whatever its cause
                failure = f"{name}: {error or type(error).__name__}"
            else:
                if applied_s is None:  # the run ended before the change was due
                    return
                last_applied_s = max(last_applied_s, applied_s)
        if self._end_s is not None and event_boundary.due_at_s >= self._end_s:
            return
        record = {
            "number": event.number,
            "kind": event.change.kind,
            "planned_s": self._to_virtual_training_s(planned_at_s),
            "applied_s": None if failure else self._to_virtual_training_s(last_applied_s),
            "lateness_s": None if failure else round((last_applied_s - planned_at_s) / self._plan.dilation, 6),
            "phase": event_boundary.boundary,
            "by": self._format_event_mechanisms(event),
            "nodes": sorted(replies),
        }
        with self._write_lock, self._record_path.open("a") as file:
            file.write(json.dumps(record | ({"failed": failure} if failure else {})) + "\n")

    def _format_event_mechanisms(self, link_event: PlannedEvent) -> str:
        """Return the names of the shaping mechanisms that apply a link event.

        Names, such as tc-htb, are separated by commas.
        """
        mechanisms, link_change = self._links.mechanisms, link_event.change
        is_changed = {
            "rate": any(getattr(link_change, key, None) for key in ("uplink", "downlink")),
            "delay": getattr(link_change, "delay", None),
            "loss": getattr(link_change, "loss", None),
            "partition": hasattr(link_change, "apart"),
        }
        return ", ".join(dict.fromkeys(getattr(mechanisms, key) for key, changed in is_changed.items() if changed))

    def _to_virtual_training_s(self, monotonic_s: float) -> float:
        """Convert a reading of the monotonic clock to virtual seconds since the start of training."""
        return round((monotonic_s - (self._training_start_s or monotonic_s)) / self._plan.dilation, 6)


def _find_active_link_events(
    active_events: Mapping[int, tuple[float, AnyDeclaredEvent]], event_boundary: _LinkEventBoundary
) -> dict[int, tuple[float, AnyDeclaredEvent]]:
    """Return the link events that are active after a given link event begins or ends.

    The result maps event number -> (begin time, changes).
    """
    number, link_change = event_boundary.event.number, event_boundary.event.change
    other_events = {other: active for other, active in active_events.items() if other != number}
    return (
        other_events | {number: (event_boundary.planned_at_s, link_change)}
        if event_boundary.boundary == BEGIN
        else other_events
    )
