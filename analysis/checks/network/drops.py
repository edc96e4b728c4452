"""Did queues drop packets that nobody declared lost?"""

from analysis.checks.evidence import shaped_by_kernel
from analysis.checks.verdict import Verdict, degraded, valid
from analysis.reading.plan_view import Node
from analysis.reading.run_table import TrialTable

FEWEST_PACKETS = 1000  # one drop of ten says nothing about a run


def drops(trial: TrialTable) -> Verdict:
    """Degraded when the queues of a link dropped more than the threshold's share of its packets.

    Nodes with a declared loss, a declared buffer or an event of their own link are not looked at: theirs should drop.
    Only degraded, since a port that overflows is no wrong network, but one whose buffer nobody chose.
    """
    if not shaped_by_kernel(trial):
        return valid("our own code drops nothing but what is declared lost")
    looked_at = [node.name for node in trial.plan.nodes if _shaped(node) and not _may_drop(trial, node)]
    queues = {name: (shaped or {}).get("queues") or {} for name, shaped in (trial.status.get("shaping") or {}).items()}
    if unknown := [name for name in looked_at if not queues.get(name)]:
        return degraded(f"{', '.join(unknown)}: drops of its queues were not counted")
    counted = {
        f"{name} {device}": queue["drops"] / max(queue["packets"], FEWEST_PACKETS)
        for name in looked_at
        for device, queue in queues[name].items()
    }
    if not counted:
        return valid("no queue that should drop nothing")
    worst = max(counted, key=lambda link: counted[link])
    limit = trial.plan.fidelity.drops
    found = f"the queue of {worst} dropped {counted[worst]:.2%} of its packets"
    return degraded(f"{found} (limit {limit:.2%})") if counted[worst] > limit else valid(f"{found}, no other more")


def _shaped(node: Node) -> bool:
    return bool(node.uplink_bps or node.downlink_bps)


def _may_drop(trial: TrialTable, node: Node) -> bool:
    plan = trial.plan
    lossy = any(path.losses and node.name in (path.source, path.target) for path in plan.network.paths)
    changed = any(event.is_of_links and node.name in event.what.nodes for event in plan.events)
    return lossy or changed or node.buffer_bytes is not None
