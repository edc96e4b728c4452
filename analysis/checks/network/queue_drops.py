"""Check that queues dropped no packets where no loss is declared."""

from analysis.checks.engine_kind import are_links_shaped_by_kernel
from analysis.checks.verdict import CheckVerdict, degraded_verdict, valid_verdict
from analysis.reading.plan_view import PlannedNode
from analysis.reading.run_table import TrialLogTables

MIN_PACKETS = 1000  # least divisor of a share of drops: one drop among ten packets does not describe a run


def check_queue_drops(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `degraded` if the queues of a link dropped too many of its packets.

    The share of dropped packets is compared with a limit.

    The limit is a threshold of the trial. Nodes with a declared loss, a declared buffer or an event on their link are
    not checked, because their queues may drop packets. The verdict is never invalid: the network is as declared, but it
    drops packets at a buffer whose size the user did not declare.
    """
    if not are_links_shaped_by_kernel(trial):
        return valid_verdict("Ensayo's own code shapes the links and drops only packets that are declared lost")
    checked = [node.name for node in trial.plan.nodes if _has_link_rate(node) and not _are_drops_expected(trial, node)]
    shaping = trial.status.get("shaping") or {}
    queues = {name: (link_shaping or {}).get("queues") or {} for name, link_shaping in shaping.items()}
    lost = trial.membership.lost_node_names  # their counters have ended with them
    checked = [name for name in checked if queues.get(name) or name not in lost]
    if unknown := [name for name in checked if not queues.get(name)]:
        return degraded_verdict(f"packets dropped by queues were not counted for {', '.join(unknown)}")
    shares = {
        f"{name} {device}": queue["drops"] / max(queue["packets"], MIN_PACKETS)
        for name in checked
        for device, queue in queues[name].items()
    }
    if not shares:
        return valid_verdict("every queue may drop packets, as declared")
    worst = max(shares, key=lambda queue_name: shares[queue_name])
    limit = trial.plan.fidelity.drops
    measured = f"the queue of {worst} dropped {shares[worst]:.2%} of its packets"
    if shares[worst] > limit:
        return degraded_verdict(f"{measured} (limit {limit:.2%}); declare a larger buffer")
    return valid_verdict(f"{measured}, the most of all queues")


def _has_link_rate(node: PlannedNode) -> bool:
    return bool(node.uplink_bps or node.downlink_bps)


def _are_drops_expected(trial: TrialLogTables, node: PlannedNode) -> bool:
    plan = trial.plan
    has_loss = any(path.losses and node.name in (path.source, path.target) for path in plan.network.paths)
    has_event = any(event.is_link_event and node.name in event.change.node_names for event in plan.events)
    return has_loss or has_event or node.buffer_bytes is not None
