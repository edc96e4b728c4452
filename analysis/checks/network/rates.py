"""Are the links as fast as declared?"""

from collections.abc import Iterator, Mapping
from typing import Any

from analysis.checks.verdict import ENFORCER, LINKS, Verdict, degraded, invalid, valid
from analysis.reading.run_table import TrialTable

Shaped = Mapping[str, Any]  # a node's entry under `shaping` in status.json

DIRECTIONS = ("uplink_bps", "downlink_bps")
SHAPED_IN_CODE = ("fluid", "transport")  # rungs that the kernel knows nothing of: nothing to read back


def rates(trial: TrialTable) -> Verdict:
    """Compares what each node's shaping reads back with what the plan declares.

    Invalid when a rate differs by more than the threshold or nothing was applied; degraded when nothing was read back.
    """
    links = list(_declared(trial))
    if not links:
        return valid("no link rate is declared")
    shaping = trial.status.get("shaping") or {}
    limit = trial.plan.fidelity.rate_error
    unshaped = [node for node, _, _ in links if (shaping.get(node) or {}).get("rung", "none") == "none"]
    if unshaped:
        return invalid(f"{_names(unshaped)}: a rate is declared but none was applied", ENFORCER)
    if all(shaping[node]["rung"] in SHAPED_IN_CODE for node, _, _ in links):
        return valid(f"{len(links)} link rates hold by construction: our own code shapes them, nothing was measured")
    unread = [node for node, direction, _ in links if not _is_known(shaping[node], direction)]
    errors = {
        f"{node} {direction.removesuffix('_bps')}": _in_force(shaping[node], direction, declared) / declared - 1
        for node, direction, declared in links
        if node not in unread
    }
    worst = max(errors, key=lambda link: abs(errors[link]), default=None)
    if worst and abs(errors[worst]) > limit:
        return invalid(f"{worst} is {errors[worst]:+.1%} off its declared rate (limit {limit:.0%})", LINKS)
    if unread:
        return degraded(f"{_names(unread)}: the applied rate was not read back")
    return valid(f"{len(links)} link rates read back within {max(map(abs, errors.values())):.1%}")


def _declared(trial: TrialTable) -> Iterator[tuple[str, str, float]]:
    for node in trial.plan.nodes:
        for direction in DIRECTIONS:
            declared = getattr(node, direction)
            if declared is not None:
                yield node.name, direction, declared


def _is_known(shaped: Shaped, direction: str) -> bool:
    return shaped["rung"] in SHAPED_IN_CODE or shaped.get(f"read_back_{direction}") is not None


def _in_force(shaped: Shaped, direction: str, declared: float) -> float:
    """The rate read back; a rung in our own code has the declared one by construction."""
    read_back = shaped.get(f"read_back_{direction}")
    return declared if read_back is None else float(read_back)


def _names(nodes: list[str]) -> str:
    return ", ".join(sorted(set(nodes)))
