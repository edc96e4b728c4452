"""Check that a long data flow over each link reached the declared rate of the link."""

from collections.abc import Mapping
from itertools import product
from typing import Any

from analysis.checks.engine_kind import are_links_shaped_by_kernel
from analysis.checks.verdict import (
    WRONG_LINKS_REMEDY,
    CheckVerdict,
    VerdictLevel,
    degraded_verdict,
    disturbed_verdict,
    valid_verdict,
)
from analysis.reading.plan_view import PlannedNode
from analysis.reading.run_table import TrialLogTables
from analysis.report.wording import shorten_list

LINK_DIRECTIONS = ("uplink", "downlink")
MAX_NAMED_LINKS = 2  # number of links that a reason lists by name; of more links it names only one


def check_measured_link_rates(trial: TrialLogTables) -> CheckVerdict:
    """Compare the measured rate of a probe flow over each link with the declared rate of the link.

    Invalid if a rate is off by more than the threshold, degraded if a link was not probed. If all other
    nodes together cannot fill a link, the flow is compared with the rate at which they can send.
    """
    links = [link for link in product(trial.plan.nodes, LINK_DIRECTIONS) if _declared_rate_bps(*link)]
    members = [node for node in trial.plan.nodes if node.role not in ("coordinator", "")]
    if not links or len(members) == 1:
        return valid_verdict("no declared link rate is used")
    if not are_links_shaped_by_kernel(trial):
        return valid_verdict("Ensayo's own code shapes the links, so they were not probed")
    link_errors = {_link_name(node, direction): probed_rate_error(trial, node, direction) for node, direction in links}
    errors = {link: error for link, error in link_errors.items() if error is not None}
    limit = trial.plan.fidelity.rate_error
    worst = max(errors, key=lambda link: abs(errors[link]), default=None)
    if worst and abs(errors[worst]) > limit:
        reason = f"a flow over {worst} was {errors[worst]:+.1%} off its expected rate (limit {limit:.0%})"
        return disturbed_verdict(VerdictLevel.INVALID, reason, remedy=WRONG_LINKS_REMEDY)
    if unprobed := [link for link in links if _link_name(*link) not in errors]:
        example = _describe_unprobed_link(trial, unprobed)
        return degraded_verdict(f"{len(unprobed)} of {len(links)} links were not probed with a flow, {example}")
    measured = f"flows over {len(links)} links were within {max(map(abs, errors.values())):.1%} of their expected rates"
    unfilled = [_link_name(*link) for link in links if not can_peers_fill_link(trial, *link)]
    if unfilled:
        return valid_verdict(f"{measured}; their peers cannot fill {shorten_list(unfilled, MAX_NAMED_LINKS, ' and ')}")
    return valid_verdict(measured)


def probed_rate_error(trial: TrialLogTables, node: PlannedNode, link_direction: str) -> float | None:
    """Return the relative error of the rate of a probe flow over a link.

    Return None if no probe flow was sent.
    """
    achieved = _read_link_shaping(trial, node).get(f"achieved_{link_direction}_bps")
    return None if achieved is None else float(achieved) / _expected_flow_rate_bps(trial, node, link_direction) - 1


def can_peers_fill_link(trial: TrialLogTables, node: PlannedNode, link_direction: str) -> bool:
    """Return whether all other nodes together can send as fast as the link's declared rate."""
    return _expected_flow_rate_bps(trial, node, link_direction) >= _declared_rate_bps(node, link_direction)


def _declared_rate_bps(node: PlannedNode, link_direction: str) -> float:
    """Return the declared rate of a link in bit/s.

    Return 0 if no rate is declared.
    """
    return float(getattr(node, f"{link_direction}_bps") or 0.0)


def _link_name(node: PlannedNode, link_direction: str) -> str:
    return f"{node.name} {link_direction}"


def _expected_flow_rate_bps(trial: TrialLogTables, node: PlannedNode, link_direction: str) -> float:
    """Return the rate that a probe flow over a link is expected to reach, in bit/s.

    This is the rate of the link, or the rate of all sending nodes together if that is lower.
    """
    declared_bps = _declared_rate_bps(node, link_direction)
    flooded = (_read_link_shaping(trial, node).get("flooded") or {}).get(link_direction) or {}
    return min(declared_bps, float(flooded.get("declared", declared_bps)))


def _describe_unprobed_link(trial: TrialLogTables, unprobed_links: list[tuple[PlannedNode, str]]) -> str:
    """Return the name of one link that was not probed.

    If a reason is recorded, the name is followed by the reason.
    """
    reasons = [
        (node, direction, (_read_link_shaping(trial, node).get("unproven") or {}).get(direction))
        for node, direction in unprobed_links
    ]
    node, direction, reason = next((each for each in reasons if each[2]), reasons[0])
    return f"such as {_link_name(node, direction)}" + (f": {reason}" if reason else "")


def _read_link_shaping(trial: TrialLogTables, node: PlannedNode) -> Mapping[str, Any]:
    """Return the link shaping of a node as recorded in status.json.

    The result is empty if no link shaping is recorded.
    """
    return (trial.status.get("shaping") or {}).get(node.name) or {}
