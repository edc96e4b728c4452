"""How many bytes did each node send, and how many should it have sent?"""

from analysis.table import TrialTable


def bytes_sent(trial: TrialTable) -> dict[str, int]:
    """Payload bytes by node: what `node_stop` counted, else the sum over its steps."""
    by_steps = trial.steps.groupby("node")["bytes_sent"].sum()
    by_stop = trial.nodes.set_index("node")["payload_bytes_sent"].dropna()
    return {str(node): int(count) for node, count in {**by_steps.to_dict(), **by_stop.to_dict()}.items()}


def expected_bytes_sent(trial: TrialTable) -> dict[str, int]:
    """Payload bytes by node as counted from the schedule: bytes per step x steps that the node did.

    A server does not step; it answers its workers, so it is given the mean of their steps.
    """
    steps = trial.steps.groupby("node").size()
    rounds = float(steps.mean()) if len(steps) else 0.0
    return {node: round(count * float(steps.get(node, rounds))) for node, count in trial.plan.bytes_per_step.items()}
