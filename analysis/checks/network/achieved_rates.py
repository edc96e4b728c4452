"""Did a long flow get through each link as fast as declared?"""

from collections.abc import Mapping
from typing import Any

from analysis.checks.evidence import shaped_by_kernel
from analysis.checks.verdict import LINKS, Verdict, degraded, invalid, valid
from analysis.reading.plan_view import Node
from analysis.reading.run_table import TrialTable

DIRECTIONS = ("uplink", "downlink")
NAMED = 2  # links in a reason; of more, one and how many others


def achieved_rates(trial: TrialTable) -> Verdict:
    """Compares the probe's flows with the plan: invalid beyond the threshold, degraded where nothing was probed.

    A link that all others together can't fill is compared with what they can bring: nothing here is faster.
    """
    links = [(node, way) for node in trial.plan.nodes for way in DIRECTIONS if getattr(node, f"{way}_bps")]
    members = [node for node in trial.plan.nodes if node.role not in ("coordinator", "")]
    if not links or len(members) == 1:
        return valid("no link rate is declared that anybody would use")
    if not shaped_by_kernel(trial):
        return valid("our own code shapes the links: nothing to probe")
    found = {f"{node.name} {way}": error(trial, node, way) for node, way in links}
    errors = {link: value for link, value in found.items() if value is not None}
    limit = trial.plan.fidelity.rate_error
    worst = max(errors, key=lambda link: abs(errors[link]), default=None)
    if worst and abs(errors[worst]) > limit:
        return invalid(f"a flow over {worst} was {errors[worst]:+.1%} off what is declared (limit {limit:.0%})", LINKS)
    if unknown := [(node, way) for node, way in links if f"{node.name} {way}" not in errors]:
        return degraded(f"{len(unknown)} of {len(found)} links were not probed with a flow, {_why(trial, unknown)}")
    told = f"flows over {len(found)} links within {max(map(abs, errors.values())):.1%} of what is declared"
    unfilled = [f"{node.name} {way}" for node, way in links if not is_filled(trial, node, way)]
    return valid(f"{told}; nobody here can fill {_few(unfilled)}" if unfilled else told)


def error(trial: TrialTable, node: Node, way: str) -> float | None:
    """Relative error of the flow that was sent over a link; None when there was none."""
    achieved = _shaped(trial, node).get(f"achieved_{way}_bps")
    return None if achieved is None else float(achieved) / _brought(trial, node, way) - 1


def is_filled(trial: TrialTable, node: Node, way: str) -> bool:
    """Whether a flow over a link was meant to be as fast as the link, not as fast as all its peers together."""
    return _brought(trial, node, way) >= float(getattr(node, f"{way}_bps"))


def _brought(trial: TrialTable, node: Node, way: str) -> float:
    """What should have arrived."""
    own = float(getattr(node, f"{way}_bps"))
    flooded = (_shaped(trial, node).get("flooded") or {}).get(way) or {}
    return min(own, float(flooded.get("declared", own)))


def _why(trial: TrialTable, unknown: list[tuple[Node, str]]) -> str:
    """An example, with its reason where the record has one."""
    known = [(node, way, (_shaped(trial, node).get("unproven") or {}).get(way)) for node, way in unknown]
    node, way, why = next((each for each in known if each[2]), known[0])
    return f"such as {node.name} {way}" + (f": {why}" if why else "")


def _few(links: list[str]) -> str:
    return " and ".join(links) if len(links) <= NAMED else f"{links[0]} and {len(links) - 1} others"


def _shaped(trial: TrialTable, node: Node) -> Mapping[str, Any]:
    return (trial.status.get("shaping") or {}).get(node.name) or {}
