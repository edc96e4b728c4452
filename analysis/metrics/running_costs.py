"""Accelerator-hours, energy and cost of a trial, from its duration and the declared power draws and prices.

Energy is a model, not a measurement: a node draws its declared idle power, and the difference to its busy power for the
share of the training in which it computes. Workers compute in forward and backward passes, servers in updates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.reading.plan_view import PlannedNode
from analysis.reading.run_table import TrialLogTables

SECONDS_PER_HOUR = 3600
JOULES_PER_WH = 3600
NOT_DECLARED = "not declared"
NOT_ENDED = "training did not end"


@dataclass(frozen=True)
class RunningCosts:
    """Accelerator-hours, energy and cost of a trial, over its whole training, evaluations included.

    A value that is not known is None, with the reason.
    """

    accelerator_hours: float | None  # workers times hours; servers have no accelerators
    energy_joules: float | None  # modelled, of all workers and servers
    energy_reason: str  # why the energy is not known; empty if it is
    cost: float | None  # of all workers and servers, in `currency`
    currency: str | None
    cost_reason: str  # why the cost is not known; empty if it is


def measure_running_costs(trial: TrialLogTables) -> RunningCosts:
    """Return accelerator-hours, energy and cost of a trial."""
    nodes = [node for node in trial.plan.nodes if node.role != "coordinator"]
    energy_reason = _explain_unknown(trial, nodes, "watts", lambda node: node.watts is not None)
    cost_reason = _explain_unknown(trial, nodes, "price", lambda node: node.price is not None)
    hours = None if trial.seconds is None else trial.seconds / SECONDS_PER_HOUR
    prices = [node.price for node in nodes if node.price]
    return RunningCosts(
        accelerator_hours=None if hours is None else trial.plan.workers * hours,
        energy_joules=None if energy_reason else _energy_joules(trial, nodes),
        energy_reason=energy_reason,
        cost=None if cost_reason or hours is None else hours * sum(price.amount for price in prices),
        currency=prices[0].currency if prices and not cost_reason else None,
        cost_reason=cost_reason,
    )


def _explain_unknown(
    trial: TrialLogTables, nodes: Sequence[PlannedNode], key: str, is_declared: Callable[[PlannedNode], bool]
) -> str:
    """Return why energy or cost is not known: the key is not declared for all nodes, or training did not end."""
    undeclared = [node.name for node in nodes if not is_declared(node)]
    if len(undeclared) == len(nodes):
        return NOT_DECLARED
    if undeclared:
        return f"{undeclared[0]} declares no {key}"
    return NOT_ENDED if trial.seconds is None else ""


def _energy_joules(trial: TrialLogTables, nodes: Sequence[PlannedNode]) -> float:
    """Return the modelled energy of nodes in joules; all of them declare their power draw."""
    seconds = trial.seconds or 0.0
    busy_s = _busy_seconds_by_node(trial)
    shares = {node.name: min(1.0, busy_s.get(node.name, 0.0) / seconds) if seconds else 0.0 for node in nodes}
    return seconds * sum(node.watts.mean_watts(shares[node.name]) for node in nodes if node.watts)


def _busy_seconds_by_node(trial: TrialLogTables) -> dict[str, float]:
    """Return the seconds for which each node computed: passes of workers, and updates of servers with own nodes."""
    by_worker = trial.steps.groupby("node", observed=True)["compute_s"].sum()
    busy_s = {str(node): float(seconds) for node, seconds in by_worker.items()}
    if "update_seconds" in trial.nodes:
        by_server = trial.nodes.dropna(subset=["update_seconds"]).set_index("node")["update_seconds"]
        busy_s |= {str(node): float(seconds) for node, seconds in by_server.items()}
    return busy_s
