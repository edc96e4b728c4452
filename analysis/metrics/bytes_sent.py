"""Payload bytes that each node sent in a trial, counted by the nodes and computed from the schedule."""

from math import ceil

from analysis.reading.run_table import TrialTable
from analysis.reading.training_phases import TrainingPhase, training_phases


def bytes_sent(trial: TrialTable) -> dict[str, int]:
    """Return the payload bytes that each node sent: its counter at `node_stop`, else the sum over its steps."""
    by_steps = trial.steps.groupby("node")["bytes_sent"].sum()
    by_stop = trial.nodes.set_index("node")["payload_bytes_sent"].dropna()
    return {str(node): int(count) for node, count in {**by_steps.to_dict(), **by_stop.to_dict()}.items()}


def expected_bytes_sent(trial: TrialTable) -> dict[str, int]:
    """Return the payload bytes that each node should have sent: bytes per step x steps, and the bytes of a hand-over.

    A hand-over is the transfer of training state at a switch between strategies. A shard owner sends replies to other
    workers, so the bytes of its replies are multiplied by the mean number of steps of these workers. For an aborted
    hand-over, the bytes sent until then are expected, but no more than planned.
    """
    plan, workers = trial.plan, [str(node) for node in trial.steps["node"].unique()]
    expected = dict.fromkeys(plan.bytes_per_step, 0.0)
    for phase in training_phases(trial):
        computing = [name for name in workers if name not in phase.promoted_workers]
        steps = dict.fromkeys(computing, 0) | _step_counts_in_whole_rounds(phase, plan.exchange_period)
        for node, count in phase.bytes_per_step.items():
            reply_bytes = phase.reply_bytes_per_step.get(node, 0.0 if node in steps else count)
            expected[node] += _node_bytes(count, reply_bytes, node, steps)
    hand_over = _hand_over_bytes(trial, expected)
    return {node: round(count + hand_over.get(node, 0)) for node, count in expected.items()}


def _hand_over_bytes(trial: TrialTable, step_bytes: dict[str, float]) -> dict[str, float]:
    """Return the payload bytes by node of the hand-over between two strategies; empty without a hand-over.

    Workers record the bytes that they sent in an aborted hand-over. Servers do not: their hand-over bytes are the bytes
    that they sent beyond `step_bytes` (the expected bytes of all steps, by node), but no more than planned.
    """
    after, switch = trial.plan.second_phase, trial.switch_record
    if after is None or switch is None:
        return {}
    if switch.committed:
        return dict(after.hand_over_bytes) if switch.committed["loaded"] else {}
    if not switch.abort_reason:
        return {}
    sent = bytes_sent(trial)
    by_servers = {node: sent.get(node, 0) - step_bytes[node] for node in trial.plan.shard_owners if node in step_bytes}
    partial_bytes = {**switch.hand_over_bytes_sent, **by_servers}
    return {node: min(max(0, partial_bytes.get(node, 0)), planned) for node, planned in after.hand_over_bytes.items()}


def _step_counts_in_whole_rounds(phase: TrainingPhase, steps_per_round: int) -> dict[str, int]:
    """Return the steps of each worker, rounded up to whole rounds of `steps_per_round` steps.

    A worker that stops within a round exchanges once more, and sends as many bytes as at the end of a round.
    """
    counts = phase.steps.groupby("node").size().items()
    return {str(node): ceil(count / steps_per_round) * steps_per_round for node, count in counts}


def _node_bytes(bytes_per_step: float, reply_bytes: float, node_name: str, steps_by_worker: dict[str, int]) -> float:
    """Return the bytes that a node sends in all steps of a training phase.

    Of its `bytes_per_step`, `reply_bytes` are replies, which it sends once per step of the other workers.
    """
    others = [count for name, count in steps_by_worker.items() if name != node_name]
    mean_steps_of_others = sum(others) / len(others) if others else 0
    own_bytes = (bytes_per_step - reply_bytes) * steps_by_worker.get(node_name, 0)
    return own_bytes + reply_bytes * mean_steps_of_others
