"""Did a long flow get through each link as fast as declared?"""

from collections.abc import Iterator
from math import inf

from analysis.checks.verdict import Verdict, degraded, invalid, valid
from analysis.plan import Node, PlanView
from analysis.table import TrialTable

DIRECTIONS = ("uplink", "downlink")


def achieved_rates(trial: TrialTable) -> Verdict:
    """Compares the probe's flows with the plan: invalid beyond the threshold, degraded where nothing was probed.

    A flow between two nodes is no faster than the narrowest of their links and of the pipes between them, so it may
    meet either the link's own rate or the best that one peer allows.
    """
    links = [(node, way) for node in trial.plan.nodes for way in DIRECTIONS if getattr(node, f"{way}_bps")]
    members = [node for node in trial.plan.nodes if node.role not in ("coordinator", "")]
    if not links or len(members) == 1:
        return valid("no link rate is declared that anybody would use")
    if trial.status.get("engine") != "docker":
        return valid("our own code shapes the links: nothing to probe")
    found = {f"{node.name} {way}": error(trial, node, way) for node, way in links}
    errors = {link: value for link, value in found.items() if value is not None}
    limit = trial.plan.fidelity.rate_error
    worst = max(errors, key=lambda link: abs(errors[link]), default=None)
    if worst and abs(errors[worst]) > limit:
        return invalid(f"a flow over {worst} was {errors[worst]:+.1%} off what is declared (limit {limit:.0%})")
    if unknown := [link for link in found if link not in errors]:
        return degraded(f"{len(unknown)} of {len(found)} links were not probed with a flow, such as {unknown[0]}")
    return valid(f"flows over {len(found)} links within {max(map(abs, errors.values())):.1%} of what is declared")


def error(trial: TrialTable, node: Node, way: str) -> float | None:
    """Relative error of the flow that was sent over a link; None when there was none."""
    shaped = (trial.status.get("shaping") or {}).get(node.name) or {}
    achieved = shaped.get(f"achieved_{way}_bps")
    if achieved is None:
        return None
    own = float(getattr(node, f"{way}_bps"))
    return min((float(achieved) / wanted - 1 for wanted in (own, *_alone(trial.plan, node, way, own))), key=abs)


def _alone(plan: PlanView, node: Node, way: str, own: float) -> Iterator[float]:
    """The best that a flow with one peer can do."""
    rates = [
        min(own, *(pipe.rate_bps for pipe in plan.network.through(a.name, b.name)), _end(a, b, way))
        for peer in plan.nodes
        if peer.role not in ("coordinator", "") and peer.name != node.name
        for a, b in [(node, peer) if way == "uplink" else (peer, node)]
    ]
    if rates:
        yield max(rates)


def _end(source: Node, target: Node, way: str) -> float:
    """The link at the other end."""
    return (target.downlink_bps if way == "uplink" else source.uplink_bps) or inf
