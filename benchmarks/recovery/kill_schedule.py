"""Seeded schedule of kills: workers that fail independently of each other, with exponential gaps."""

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from random import Random
from typing import Any, NamedTuple


class ScheduledKill(NamedTuple):
    """Moment, in virtual seconds since the start of training, at which a worker is killed."""

    time_s: float
    node_name: str


def draw_kills(
    node_names: Sequence[str], kills: int, mean_gap_s: float, absence_s: float, seed: int
) -> list[ScheduledKill]:
    """Return the first kills of all nodes, in the order of time.

    Args:
        node_names: nodes that are killed.
        kills: number of kills of all nodes together.
        mean_gap_s: mean of the exponential gaps of one node, from the end of its absence to its next kill.
        absence_s: after a kill, the node is not killed again for this time, so that every kill ends a process.
        seed: of the gaps. Each node has gaps of its own.
    """
    series = [_iter_kills_of_node(name, mean_gap_s, absence_s, Random(f"{seed} {name}")) for name in node_names]
    return list(islice(merge(*series), kills))


def _iter_kills_of_node(node_name: str, mean_gap_s: float, absence_s: float, rng: Random) -> Iterator[ScheduledKill]:
    time_s = 0.0
    while True:
        time_s += rng.expovariate(1 / mean_gap_s)
        yield ScheduledKill(time_s, node_name)
        time_s += absence_s


def kill_events(kills: Sequence[ScheduledKill]) -> list[dict[str, Any]]:
    """Return kills as events of a scenario; their times are rounded to milliseconds."""
    return [{"kind": "kill", "of": [kill.node_name], "at": {"time": f"{1e3 * kill.time_s:.0f}ms"}} for kill in kills]
