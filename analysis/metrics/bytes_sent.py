"""Payload bytes that each node sent in a trial, counted and expected.

The nodes count the bytes, and the trial plan gives the expected bytes.
"""

from math import ceil, floor

from pydantic import TypeAdapter

from analysis.reading.run_table import TrialLogTables
from analysis.reading.training_phases import TrainingPhase, training_phases
from services.strategies import AnyStrategy, Strategy
from services.strategies.partner_choice import ByteRange


def bytes_sent(trial: TrialLogTables) -> dict[str, int]:
    """Return the payload bytes that each node sent.

    This is the node's logged total or, if no total is logged, the sum over its steps.
    """
    by_steps = trial.steps.groupby("node")["bytes_sent"].sum()
    by_stop = trial.nodes.set_index("node")["payload_bytes_sent"].dropna()
    return {str(node): int(count) for node, count in {**by_steps.to_dict(), **by_stop.to_dict()}.items()}


def expected_bytes_sent(trial: TrialLogTables) -> dict[str, int]:
    """Return the payload bytes that each node should send by the trial plan.

    Bytes of steps and of a strategy switch are counted.

    A strategy switch transfers training state between nodes. A shard owner sends replies to other workers, so the bytes
    of its replies are multiplied by the mean number of steps of these workers. For an aborted state transfer, the bytes
    sent until then are expected, but no more than planned.
    """
    plan, workers = trial.plan, [str(node) for node in trial.steps["node"].unique()]
    expected = dict.fromkeys(plan.bytes_per_step, 0.0)
    for phase in training_phases(trial):
        computing = [name for name in workers if name not in phase.new_server_names]
        steps = dict.fromkeys(computing, 0) | _count_steps_of_exchanges(phase, plan.steps)
        for node, count in phase.bytes_per_step.items():
            reply_bytes = phase.reply_bytes_per_step.get(node, 0.0 if node in steps else count)
            expected[node] += _sum_bytes_sent_in_phase(count, reply_bytes, node, steps)
    transfer_bytes = _count_strategy_switch_bytes(trial, expected)
    return {node: round(count + transfer_bytes.get(node, 0)) for node, count in expected.items()}


def bound_bytes_sent(trial: TrialLogTables) -> dict[str, ByteRange]:
    """Return the bounds of the payload bytes that each node should send by the trial plan.

    Both bounds are the expected bytes, unless workers have chosen their partners during the run.
    """
    plan, expected = trial.plan, expected_bytes_sent(trial)
    if not plan.chooses_partners:
        return {node: ByteRange(count, count) for node, count in expected.items()}
    phase = TypeAdapter[Strategy](AnyStrategy).validate_python(plan.strategy).training_phases().first
    choice, counts = phase.describe_worker_exchange().partner_choice, trial.steps.groupby("node", observed=True).size()
    names = [node.name for node in plan.nodes if node.role == "worker"]
    if choice is None:
        raise ValueError(f"strategy {plan.strategy['kind']} chooses no partners, but the plan says so")
    steps, entry_bytes = [int(counts.get(name, 0)) for name in names], plan.vector_bytes / plan.parameters
    ranges = choice.bound_sent_bytes(steps, plan.seed, plan.parameters, entry_bytes)
    return dict(zip(names, ranges, strict=True))


def _count_strategy_switch_bytes(trial: TrialLogTables, step_bytes: dict[str, float]) -> dict[str, float]:
    """Return the bytes of training state that each node sent for a strategy switch.

    The result is empty without a switch. Workers record the bytes that they sent in an aborted transfer. Servers do
    not: their bytes are those that they sent beyond `step_bytes` (the expected bytes of all steps, by node), but no
    more than planned.
    """
    after, switch = trial.plan.second_phase, trial.switch_record
    if after is None or switch is None:
        return {}
    if switch.committed:
        return dict(after.model_transfer_bytes) if switch.committed["loaded"] else {}
    if not switch.abort_reason:
        return {}
    sent = bytes_sent(trial)
    by_servers = {node: sent.get(node, 0) - step_bytes[node] for node in trial.plan.shard_owners if node in step_bytes}
    partial_bytes = {**switch.transfer_bytes_sent, **by_servers}
    return {
        node: min(max(0, partial_bytes.get(node, 0)), planned) for node, planned in after.model_transfer_bytes.items()
    }


def _count_steps_of_exchanges(training_phase: TrainingPhase, budget_steps: int) -> dict[str, int]:
    """Return the number of steps whose bytes each worker sends in a training phase.

    The result is a multiple of the steps per exchange. At the end of its budget, a worker exchanges once more for the
    steps since its last exchange, and sends as many bytes as in any exchange. Synchronous workers that stop before the
    end of their budget of `budget_steps` steps do not.
    """
    steps, period = training_phase.steps, training_phase.exchange_period
    stops_early = training_phase.sync_or_async == "synchronous" and steps["step"].max() + 1 < budget_steps
    round_to_exchanges = floor if stops_early else ceil
    counts = steps.groupby("node").size().items()
    return {str(node): round_to_exchanges(count / period) * period for node, count in counts}


def _sum_bytes_sent_in_phase(
    bytes_per_step: float, reply_bytes_per_step: float, node_name: str, step_count_by_worker: dict[str, int]
) -> float:
    """Return the bytes that a node sends in all steps of one training phase.

    A training phase is the part of a training before or after a strategy switch.

    Of its `bytes_per_step`, `reply_bytes_per_step` are replies, which it sends once per step of the other workers.
    """
    others = [count for name, count in step_count_by_worker.items() if name != node_name]
    mean_steps_of_others = sum(others) / len(others) if others else 0
    own_bytes = (bytes_per_step - reply_bytes_per_step) * step_count_by_worker.get(node_name, 0)
    return own_bytes + reply_bytes_per_step * mean_steps_of_others
