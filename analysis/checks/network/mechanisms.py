"""Did the kernel enforce the network, or something less strict?"""

from collections.abc import Iterator, Mapping
from typing import Any

from analysis.checks.evidence import in_containers
from analysis.checks.verdict import ENFORCER, Verdict, degraded, invalid, valid
from analysis.reading.plan_view import Node, PlanView
from analysis.reading.run_table import TrialTable

KERNEL = ("tc-htb", "netem", "nfqueue", "iptables")  # all packets of a node pass these, whatever sends them

BESIDE = ("buffer",)  # recorded where declared; without it no queue overflows, which few results feel
EVERYTHING = ("fluid", "transport", "none")  # rungs that an engine without a kernel has for all properties
NAMED = 4  # nodes in a reason; of more, one and how many others


def rungs(trial: TrialTable) -> Verdict:
    """On containers: invalid when nothing enforced a declared property, degraded when the transport did.

    Engines without a kernel of their own have the transport for everything: invalid only when it did nothing.
    """
    shaping = trial.status.get("shaping") or {}
    asked = [(node.name, what) for node in trial.plan.nodes for what in declared(trial.plan, node)]
    if not asked:
        return valid("no property of a link is declared")
    found = {(name, what): rung_of(shaping.get(name) or {}, what) for name, what in asked}
    found |= {(name, what): rung for name, shaped in shaping.items() for what, rung in _beside(shaped)}
    harmless = {key: rung for key, rung in found.items() if key[1] in BESIDE}
    if nobody := _told({key: rung for key, rung in found.items() if key not in harmless}, lambda rung: rung == "none"):
        return invalid(f"declared, and nothing enforced it: {nobody}", ENFORCER)
    if unknown := _told(found, lambda rung: rung is None):
        return degraded(f"what enforced it was not recorded: {unknown}")
    if nobody := _told(harmless, lambda rung: rung == "none"):
        return degraded(f"declared, and nothing enforced it: {nobody}")
    lower = _told(found, lambda rung: rung not in KERNEL)
    if in_containers(trial) and lower:
        return degraded(f"enforced below the kernel: {lower}")
    return valid(", ".join(sorted({f"{what} by {rung}" for (_, what), rung in found.items()})))


def declared(plan: PlanView, node: Node) -> Iterator[str]:
    """The properties that a plan declares of a node's link, by the names that engines record."""
    if node.uplink_bps or node.downlink_bps:
        yield "rate"
    if any(node.name in (*pipe.sources, *pipe.targets) for pipe in plan.network.pipes):
        yield "pipes"
    into = plan.network.into(node.name)
    if any(path.delay_s for path in into):
        yield "delay"
    if any(path.losses for path in into):
        yield "loss"


def rung_of(shaped: Mapping[str, Any], what: str) -> str | None:
    """What enforced a property of a node; None where the record does not say."""
    rung = (shaped.get("rungs") or {}).get(what)
    everything = shaped.get("rung", "none")  # engines without a kernel record one rung for all properties
    return rung or (everything if what == "rate" or everything in EVERYTHING else None)


def _beside(shaped: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    return ((what, rung) for what, rung in (shaped.get("rungs") or {}).items() if what in BESIDE)


def _told(found: Mapping[tuple[str, str], str | None], concerns: Any) -> str:
    """`delay by transport (worker-0, worker-1)` for what concerns, by property."""
    nodes: dict[str, list[str]] = {}
    for (name, what), rung in found.items():
        if concerns(rung):
            nodes.setdefault(f"{what} by {rung}" if rung not in (None, "none") else what, []).append(name)
    return "; ".join(f"{what} ({_few(names)})" for what, names in nodes.items())


def _few(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= NAMED else f"{names[0]} and {len(names) - 1} others"
