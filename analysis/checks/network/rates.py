"""Check that the link rates that the kernel applies are the declared rates."""

from collections.abc import Iterator, Mapping
from typing import Any

from analysis.checks.verdict import (
    NOT_ENFORCED_REMEDY,
    WRONG_LINKS_REMEDY,
    CheckVerdict,
    degraded_verdict,
    invalid_verdict,
    valid_verdict,
)
from analysis.reading.run_table import TrialLogTables

LinkShaping = Mapping[str, Any]  # entry of a node under `shaping` in status.json

RATE_KEYS = ("uplink_bps", "downlink_bps")
IN_CODE_MECHANISMS = ("fluid", "transport")  # Ensayo's own code shapes the link: no kernel setting to read back


def check_configured_link_rates(trial: TrialLogTables) -> CheckVerdict:
    """Compare the link rates read back from the kernel with the declared rates.

    Invalid if a rate differs by more than the threshold or none was applied; degraded if a rate was not read back.
    """
    links = list(_declared_link_rates(trial))
    if not links:
        return valid_verdict("no link rate is declared")
    shaping = trial.status.get("shaping") or {}
    limit = trial.plan.fidelity.rate_error
    unshaped = [node_name for node_name, _, _ in links if (shaping.get(node_name) or {}).get("rung", "none") == "none"]
    if unshaped:
        reason = f"a link rate is declared but none was applied: {_join_node_names(unshaped)}"
        return invalid_verdict(reason, NOT_ENFORCED_REMEDY)
    if all(shaping[node_name]["rung"] in IN_CODE_MECHANISMS for node_name, _, _ in links):
        return valid_verdict(f"Ensayo's own code enforces {len(links)} link rates; nothing was measured")
    unread = [node_name for node_name, rate_key, _ in links if not _is_link_rate_known(shaping[node_name], rate_key)]
    errors = {
        f"{node_name} {rate_key.removesuffix('_bps')}": (
            _read_back_or_declared_bps(shaping[node_name], rate_key, declared_bps) / declared_bps - 1
        )
        for node_name, rate_key, declared_bps in links
        if node_name not in unread
    }
    worst = max(errors, key=lambda link: abs(errors[link]), default=None)
    if worst and abs(errors[worst]) > limit:
        reason = f"{worst} is {errors[worst]:+.1%} off its declared rate (limit {limit:.0%})"
        return invalid_verdict(reason, WRONG_LINKS_REMEDY)
    if unread:
        return degraded_verdict(f"the applied link rate was not read back: {_join_node_names(unread)}")
    largest = max(map(abs, errors.values()))
    return valid_verdict(f"{len(links)} link rates read back within {largest:.1%} of their declared rates")


def _declared_link_rates(trial: TrialLogTables) -> Iterator[tuple[str, str, float]]:
    """Yield the node, the direction and the declared rate (bit/s) of each link.

    The direction is `uplink_bps` or `downlink_bps`.
    """
    for node in trial.plan.nodes:
        for rate_key in RATE_KEYS:
            declared_bps = getattr(node, rate_key)
            if declared_bps is not None:
                yield node.name, rate_key, declared_bps


def _is_link_rate_known(shaping_record: LinkShaping, rate_key: str) -> bool:
    return shaping_record["rung"] in IN_CODE_MECHANISMS or shaping_record.get(f"read_back_{rate_key}") is not None


def _read_back_or_declared_bps(shaping_record: LinkShaping, rate_key: str, declared_bps: float) -> float:
    """Return the rate of a link as read back from the kernel, in bit/s.

    If Ensayo's own code shapes the link, return the declared rate.
    """
    read_back_bps = shaping_record.get(f"read_back_{rate_key}")
    return declared_bps if read_back_bps is None else float(read_back_bps)


def _join_node_names(node_names: list[str]) -> str:
    return ", ".join(sorted(set(node_names)))
