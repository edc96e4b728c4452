"""How many bytes did each node send, and how many should it have sent?"""

from math import ceil

from analysis.reading.run_table import TrialTable
from analysis.reading.training_phases import TrainingPhase, training_phases


def bytes_sent(trial: TrialTable) -> dict[str, int]:
    """Payload bytes by node: what `node_stop` counted, else the sum over its steps."""
    by_steps = trial.steps.groupby("node")["bytes_sent"].sum()
    by_stop = trial.nodes.set_index("node")["payload_bytes_sent"].dropna()
    return {str(node): int(count) for node, count in {**by_steps.to_dict(), **by_stop.to_dict()}.items()}


def expected_bytes_sent(trial: TrialTable) -> dict[str, int]:
    """Payload bytes by node as counted from the schedule: bytes per step x steps that the node did, and of a hand-over.

    Who serves answers the steps of others: the mean of theirs counts, of all workers' for a node that only serves. Of
    a hand-over that was aborted there is what had been sent until then, never more than was planned.
    """
    plan, workers = trial.plan, [str(node) for node in trial.steps["node"].unique()]
    expected = dict.fromkeys(plan.bytes_per_step, 0.0)
    for phase in training_phases(trial):
        computing = [name for name in workers if name not in phase.promoted_workers]
        steps = dict.fromkeys(computing, 0) | _steps(phase, plan.exchange_period)
        for node, count in phase.bytes_per_step.items():
            answered = phase.reply_bytes_per_step.get(node, 0.0 if node in steps else count)
            expected[node] += _sent(count, answered, node, steps)
    handed = _handed_over(trial, expected)
    return {node: round(count + handed.get(node, 0)) for node, count in expected.items()}


def _handed_over(trial: TrialTable, besides: dict[str, float]) -> dict[str, float]:
    """Payload bytes by node of a hand-over; `besides`: what each was to send for steps.

    Of one that was aborted workers tell how far they came. Nobody counts what servers give apart from what they answer,
    so of theirs there is what they sent beyond that, up to all that was planned.
    """
    after, switch = trial.plan.second_phase, trial.switch_record
    if after is None or switch is None:
        return {}
    if switch.committed:
        return dict(after.hand_over_bytes) if switch.committed["loaded"] else {}
    if not switch.abort_reason:
        return {}
    sent = bytes_sent(trial)
    serving = {node: sent.get(node, 0) - besides[node] for node in trial.plan.shard_owners if node in besides}
    came_to = {**switch.hand_over_bytes_sent, **serving}
    return {node: min(max(0, came_to.get(node, 0)), most) for node, most in after.hand_over_bytes.items()}


def _steps(phase: TrainingPhase, exchanges_every: int) -> dict[str, int]:
    """Of every worker that did any, as if the last exchange had come after a whole round."""
    done = phase.steps.groupby("node").size().items()
    return {str(node): ceil(count / exchanges_every) * exchanges_every for node, count in done}


def _sent(per_step: float, answered: float, node: str, steps: dict[str, int]) -> float:
    """Bytes of a node of which `answered` per step of the others are answers."""
    others = [count for name, count in steps.items() if name != node]
    return (per_step - answered) * steps.get(node, 0) + answered * (sum(others) / len(others) if others else 0)
