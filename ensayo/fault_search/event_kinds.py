"""Kinds of events that a fault schedule draws, one entry of the table for each kind."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, TypeAlias

EventDocument: TypeAlias = dict[str, Any]  # an event as a scenario declares it


@dataclass(frozen=True)
class EventContext:
    """Cluster and duration of the trial for which events are drawn."""

    worker_names: tuple[str, ...]
    server_names: tuple[str, ...]
    steps: int
    duration_s: float  # virtual seconds of the trial without faults

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of all nodes on the data network."""
        return (*self.worker_names, *self.server_names)


LONGEST_LASTS = "10min"  # longer than the step timeout of the trials
LONGEST_SHARE = 0.05  # share of partitions and pauses that last so long
STEP_TRIGGER_SHARE = 0.3  # share of events that begin with a step; others begin at a time
ENDLESS_SHARE = 0.3  # share of changes and slowdowns that last until the end of the trial

EventDraw: TypeAlias = Callable[[Random, EventContext], EventDocument]


def _draw_trigger(rng: Random, context: EventContext) -> dict[str, Any]:
    if rng.random() < STEP_TRIGGER_SHARE:
        return {"step": rng.randrange(context.steps)}
    return {"time": _milliseconds(rng.uniform(0, context.duration_s))}


def _milliseconds(seconds: float) -> str:
    return f"{max(0.01, 1e3 * seconds):.2f}ms"


def _draw_nodes(rng: Random, names: tuple[str, ...], most: int) -> list[str]:
    return sorted(rng.sample(names, rng.randint(1, most)))


def _draw_lasts(rng: Random, context: EventContext) -> str:
    return _milliseconds(rng.uniform(0.05, 1.0) * context.duration_s)


def _draw_link_change(rng: Random, context: EventContext) -> EventDocument:
    change = rng.choice(
        [
            {"uplink": rng.choice(["100kbit", "1mbit", "10mbit"])},
            {"downlink": rng.choice(["100kbit", "1mbit", "10mbit"])},
            {"delay": _milliseconds(rng.uniform(0.0005, 0.05))},
        ]
    )
    nodes = _draw_nodes(rng, context.node_names, len(context.node_names))
    event = {"kind": "link", "of": nodes, "at": _draw_trigger(rng, context), **change}
    return event if rng.random() < ENDLESS_SHARE else {**event, "lasts": _draw_lasts(rng, context)}


def _draw_partition(rng: Random, context: EventContext) -> EventDocument:
    nodes = _draw_nodes(rng, context.node_names, max(1, len(context.node_names) - 1))
    lasts = LONGEST_LASTS if rng.random() < LONGEST_SHARE else _draw_lasts(rng, context)
    return {"kind": "partition", "apart": nodes, "at": _draw_trigger(rng, context), "lasts": lasts}


def _draw_slowdown(rng: Random, context: EventContext) -> EventDocument:
    nodes = _draw_nodes(rng, context.worker_names, len(context.worker_names))
    event = {
        "kind": "slowdown",
        "of": nodes,
        "at": _draw_trigger(rng, context),
        "factor": round(rng.uniform(0.2, 10), 2),
    }
    return event if rng.random() < ENDLESS_SHARE else {**event, "lasts": _draw_lasts(rng, context)}


def _draw_pause(rng: Random, context: EventContext) -> EventDocument:
    nodes = _draw_nodes(rng, context.worker_names, len(context.worker_names))
    lasts = LONGEST_LASTS if rng.random() < LONGEST_SHARE else _draw_lasts(rng, context)
    return {"kind": "pause", "of": nodes, "at": _draw_trigger(rng, context), "lasts": lasts}


def _draw_kill(rng: Random, context: EventContext) -> EventDocument:
    return {"kind": "kill", "of": [rng.choice(context.node_names)], "at": _draw_trigger(rng, context)}


def _draw_restart(rng: Random, context: EventContext) -> EventDocument:
    after = _milliseconds(rng.uniform(0.01, 0.5))
    return {
        "kind": "restart",
        "of": [rng.choice(context.node_names)],
        "at": _draw_trigger(rng, context),
        "after": after,
    }


def _draw_stop(rng: Random, context: EventContext) -> EventDocument:
    lasts = _milliseconds(rng.uniform(0.01, 0.5))
    return {"kind": "stop", "of": [rng.choice(context.node_names)], "at": _draw_trigger(rng, context), "lasts": lasts}


def _draw_connection_drop(rng: Random, context: EventContext) -> EventDocument:
    nodes = sorted(rng.sample(context.node_names, rng.randint(2, len(context.node_names))))
    return {"kind": "drop_connection", "of": nodes, "at": _draw_trigger(rng, context)}


def _draw_full_disk(rng: Random, context: EventContext) -> EventDocument:
    nodes = _draw_nodes(rng, context.node_names, len(context.node_names))
    event = {"kind": "disk_full", "of": nodes, "at": _draw_trigger(rng, context)}
    return event if rng.random() < ENDLESS_SHARE else {**event, "lasts": _draw_lasts(rng, context)}


class EventKind(NamedTuple):
    """How events of one kind are drawn, and whether they may end a trial."""

    draw: EventDraw
    # Whether nodes may be lost: such events are drawn only for trials with a policy for lost nodes.
    may_lose_nodes: bool = False
    # Whether nodes wait for each other during the event: one that lasts for the step timeout may end the trial.
    blocks_messages: bool = False
    # Whether the trial must write checkpoints.
    needs_checkpoints: bool = False

    @property
    def needs_recovery(self) -> bool:
        """Whether the trial must have a policy for lost nodes."""
        return self.may_lose_nodes or self.needs_checkpoints


EVENT_KINDS = {
    "link": EventKind(_draw_link_change),
    "partition": EventKind(_draw_partition, blocks_messages=True),
    "slowdown": EventKind(_draw_slowdown),
    "pause": EventKind(_draw_pause, blocks_messages=True),
    "drop_connection": EventKind(_draw_connection_drop),
    "kill": EventKind(_draw_kill, may_lose_nodes=True),
    "restart": EventKind(_draw_restart, may_lose_nodes=True),
    "stop": EventKind(_draw_stop, may_lose_nodes=True),
    "disk_full": EventKind(_draw_full_disk, needs_checkpoints=True),
}


def draw_event(
    rng: Random, context: EventContext, *, may_lose_nodes: bool = False, writes_checkpoints: bool = False
) -> EventDocument:
    """Return a random event of any kind that fits the cluster.

    `may_lose_nodes` allows kinds that lose nodes, and `writes_checkpoints` those that disturb checkpoints.
    """
    kinds = [
        name
        for name, kind in EVENT_KINDS.items()
        if (name not in ("partition", "drop_connection") or len(context.node_names) > 1)
        and (may_lose_nodes or not kind.may_lose_nodes)
        and (writes_checkpoints or not kind.needs_checkpoints)
    ]
    return EVENT_KINDS[rng.choice(kinds)].draw(rng, context)
