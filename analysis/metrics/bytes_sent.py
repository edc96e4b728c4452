"""How many bytes did each node send, and how many should it have sent?"""

from analysis.phases import phases
from analysis.table import TrialTable


def bytes_sent(trial: TrialTable) -> dict[str, int]:
    """Payload bytes by node: what `node_stop` counted, else the sum over its steps."""
    by_steps = trial.steps.groupby("node")["bytes_sent"].sum()
    by_stop = trial.nodes.set_index("node")["payload_bytes_sent"].dropna()
    return {str(node): int(count) for node, count in {**by_steps.to_dict(), **by_stop.to_dict()}.items()}


def expected_bytes_sent(trial: TrialTable) -> dict[str, int]:
    """Payload bytes by node as counted from the routes: bytes per step x steps that the node did, and of a hand-over.

    A server does not step; it answers its workers, so it is given the mean of their steps.
    """
    expected = dict.fromkeys(trial.plan.bytes_per_step, 0.0)
    for phase in phases(trial):
        steps = phase.steps.groupby("node").size()
        rounds = float(steps.sum()) / max(1, trial.plan.workers)
        for node, count in phase.bytes_per_step.items():
            own = steps.get(node, 0) if node.startswith("worker") else rounds
            expected[node] += count * float(own)
    if trial.plan.after and trial.switch and trial.switch.committed and trial.switch.committed["loaded"]:
        for node, count in trial.plan.after.hand_over_bytes.items():
            expected[node] += count
    return {node: round(count) for node, count in expected.items()}
