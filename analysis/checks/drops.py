"""Did queues drop packets that nobody declared lost?"""

from collections.abc import Iterator

from analysis.checks.verdict import Verdict, degraded, valid
from analysis.plan import Node
from analysis.table import TrialTable

QUEUES = {"uplink": "up", "downlink": "down"}  # a direction of a link -> the queue that an engine counts


def drops(trial: TrialTable) -> Verdict:
    """Degraded when the queues of a link dropped more than the threshold's share of its packets.

    Nodes with a declared loss, a declared buffer or an event of their link are not looked at: theirs should drop. Only
    degraded, since a port that overflows is no wrong network, but one whose buffer nobody chose.
    """
    if trial.status.get("engine") != "docker":
        return valid("our own code drops nothing but what is declared lost")
    looked_at = [(node.name, way) for node in trial.plan.nodes if not _may_drop(trial, node) for way in _shaped(node)]
    queues = {name: shaped.get("queues") or {} for name, shaped in (trial.status.get("shaping") or {}).items()}
    counted = {
        f"{name} {way}": queue["drops"] / max(queue["packets"], 1)
        for name, way in looked_at
        if (queue := queues.get(name, {}).get(QUEUES[way])) is not None
    }
    if len(counted) < len(looked_at):
        return degraded(f"drops were counted at {len(counted)} of {len(looked_at)} queues")
    if not counted:
        return valid("no queue that should drop nothing")
    worst = max(counted, key=lambda link: counted[link])
    limit = trial.plan.fidelity.drops
    found = f"the queue of {worst} dropped {counted[worst]:.2%} of its packets"
    return degraded(f"{found} (limit {limit:.2%})") if counted[worst] > limit else valid(f"{found}, others less")


def _shaped(node: Node) -> Iterator[str]:
    return (way for way in QUEUES if getattr(node, f"{way}_bps"))


def _may_drop(trial: TrialTable, node: Node) -> bool:
    plan = trial.plan
    lossy = any(path.losses and node.name in (path.source, path.target) for path in plan.network.paths)
    changed = any(event.is_of_links for event in plan.events)
    return lossy or changed or node.buffer_bytes is not None
