"""Check that the kernel shaped the links as declared.

Mechanisms in Ensayo's own code can also shape links, but are less strict.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from analysis.checks.engine_kind import ran_in_containers
from analysis.checks.verdict import NOT_ENFORCED_REMEDY, CheckVerdict, degraded_verdict, invalid_verdict, valid_verdict
from analysis.reading.plan_view import PlannedNode, TrialPlan
from analysis.reading.run_table import TrialLogTables
from analysis.report.wording import shorten_list

KERNEL_MECHANISMS = ("tc-htb", "netem", "nfqueue", "iptables")  # kernel mechanisms process all packets of a node

OPTIONAL_PROPERTIES = ("buffer",)  # few results depend on whether queues overflow as declared
# Each of these enforces all properties of a link, in engines that do not use the kernel.
ALL_PROPERTY_MECHANISMS = ("fluid", "transport", "none")
MAX_NAMED_NODES = 4  # number of nodes that a reason lists by name; of more nodes it names only one


def check_shaping_enforced(trial: TrialLogTables) -> CheckVerdict:
    """Check which shaping mechanism (htb, netem, …) enforced each declared property of links.

    The verdict is invalid if no mechanism enforced a property. In containers it is degraded if the transport enforced
    one. Other engines use the transport for all properties.
    """
    shaping = trial.status.get("shaping") or {}
    declared = [(node.name, prop) for node in trial.plan.nodes for prop in declared_link_properties(trial.plan, node)]
    if not declared:
        return valid_verdict("no property of a link is declared")
    mechanisms = {(name, prop): shaping_mechanism_name(shaping.get(name) or {}, prop) for name, prop in declared}
    for name, link_shaping in shaping.items():
        mechanisms |= {(name, prop): mechanism for prop, mechanism in _yield_mechanisms(link_shaping)}
    optional = {key: mechanism for key, mechanism in mechanisms.items() if key[1] in OPTIONAL_PROPERTIES}
    required = {key: mechanism for key, mechanism in mechanisms.items() if key not in optional}
    if not_enforced := _describe_mechanisms(required, lambda mechanism: mechanism == "none"):
        return invalid_verdict(f"declared but not enforced: {not_enforced}", NOT_ENFORCED_REMEDY)
    if unknown := _describe_mechanisms(mechanisms, lambda mechanism: mechanism is None):
        return degraded_verdict(f"the mechanism that enforced it was not recorded: {unknown}")
    if not_enforced := _describe_mechanisms(optional, lambda mechanism: mechanism == "none"):
        return degraded_verdict(f"declared but not enforced: {not_enforced}")
    weaker = _describe_mechanisms(mechanisms, lambda mechanism: mechanism not in KERNEL_MECHANISMS)
    if ran_in_containers(trial) and weaker:
        return degraded_verdict(f"not enforced by the kernel: {weaker}")
    enforced = sorted({f"{prop} by {mechanism}" for (_, prop), mechanism in mechanisms.items()})
    return valid_verdict(f"enforced: {', '.join(enforced)}")


def declared_link_properties(plan: TrialPlan, node: PlannedNode) -> Iterator[str]:
    """Yield the declared properties of a node's link, such as `rate` or `delay`.

    The names of the properties are those that engines record.
    """
    if node.uplink_bps or node.downlink_bps:
        yield "rate"
    if any(node.name in (*pipe.sources, *pipe.targets) for pipe in plan.network.shared_links):
        yield "pipes"
    paths_to_node = plan.network.paths_to(node.name)
    if any(path.delay_s for path in paths_to_node):
        yield "delay"
    if any(path.losses for path in paths_to_node):
        yield "loss"


def shaping_mechanism_name(shaping_record: Mapping[str, Any], link_property: str) -> str | None:
    """Return the mechanism (htb, netem, …) that enforced a property of a node's link.

    Return None if it was not recorded.
    """
    mechanism = (shaping_record.get("rungs") or {}).get(link_property)
    for_all = shaping_record.get("rung", "none")  # other engines than `docker` record one for all
    return mechanism or (for_all if link_property == "rate" or for_all in ALL_PROPERTY_MECHANISMS else None)


def _yield_mechanisms(shaping_record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the optional properties recorded for a link, each with the mechanism that enforced it.

    An optional property is, for example, `buffer`.
    """
    recorded = (shaping_record.get("rungs") or {}).items()
    return ((link_property, mechanism) for link_property, mechanism in recorded if link_property in OPTIONAL_PROPERTIES)


def _describe_mechanisms(
    mechanism_by_property: Mapping[tuple[str, str], str | None], is_mechanism_selected: Callable[[str | None], bool]
) -> str:
    """Return text that states which mechanism enforced which link properties on which nodes.

    For example: `delay by transport (worker-0, worker-1)`.
    """
    nodes: dict[str, list[str]] = {}
    for (node_name, link_property), mechanism in mechanism_by_property.items():
        if is_mechanism_selected(mechanism):
            label = f"{link_property} by {mechanism}" if mechanism not in (None, "none") else link_property
            nodes.setdefault(label, []).append(node_name)
    return "; ".join(f"{label} ({shorten_list(names, MAX_NAMED_NODES, ', ')})" for label, names in nodes.items())
