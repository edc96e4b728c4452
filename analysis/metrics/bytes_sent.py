"""How many bytes did each node send, and how many should it have sent?"""

from math import ceil

from analysis.table import TrialTable


def bytes_sent(trial: TrialTable) -> dict[str, int]:
    """Payload bytes by node: what `node_stop` counted, else the sum over its steps."""
    by_steps = trial.steps.groupby("node")["bytes_sent"].sum()
    by_stop = trial.nodes.set_index("node")["payload_bytes_sent"].dropna()
    return {str(node): int(count) for node, count in {**by_steps.to_dict(), **by_stop.to_dict()}.items()}


def expected_bytes_sent(trial: TrialTable) -> dict[str, int]:
    """Payload bytes by node as counted from the schedule: bytes per step x steps that the node did.

    Who serves answers the steps of others: the mean of theirs counts, of all workers' for a node that only serves.
    """
    plan = trial.plan
    steps = {
        str(node): ceil(count / plan.exchanges_every) * plan.exchanges_every
        for node, count in trial.steps.groupby("node").size().items()
    }
    return {
        node: round(_sent(count, plan.answered_per_step.get(node, 0.0 if node in steps else count), node, steps))
        for node, count in plan.bytes_per_step.items()
    }


def _sent(per_step: float, answered: float, node: str, steps: dict[str, int]) -> float:
    """Bytes of a node of which `answered` per step of the others are answers."""
    others = [count for name, count in steps.items() if name != node]
    return (per_step - answered) * steps.get(node, 0) + answered * (sum(others) / len(others) if others else 0)
