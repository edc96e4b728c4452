"""Payload bytes that each node sent in a trial, counted and expected.

The nodes count the bytes, and the trial plan gives the expected bytes.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import pandas as pd
from pydantic import TypeAdapter

from analysis.metrics.collectives import FIRST_STEADY_STEP
from analysis.reading.plan_view import PlannedFormatStage
from analysis.reading.run_table import TrialLogTables
from analysis.reading.training_phases import TrainingPhase, training_phases
from services.strategies import AnyStrategy, Strategy
from services.strategies.base.partner_byte_bounds import ByteRange
from services.strategies.cost_model.exchange_schedule import ExchangeSchedule


def bytes_sent(trial: TrialLogTables) -> dict[str, int]:
    """Return the payload bytes that each node sent, summed over all processes of the node.

    Of a process, this is its logged total or, if it logged none, the sum over its finished steps. The latter is less
    than the process sent: see `nodes_with_uncounted_bytes`.
    """
    counts: dict[str, int] = {}
    for process in trial.process_bytes:
        if process.at_least is not None:
            counts[process.node] = counts.get(process.node, 0) + process.at_least
    return counts


def nodes_with_uncounted_bytes(trial: TrialLogTables) -> list[str]:
    """Return the nodes that sent more bytes than were counted, or may have done so.

    One of their processes logged no total, for example because it was killed. Not counted are the bytes of the step
    that was broken off, of a shard owner's replies, of exchanges before evaluations, and of a strategy switch.
    """
    return list(dict.fromkeys(process.node for process in trial.process_bytes if process.total is None))


def sent_and_expected_bytes(trial: TrialLogTables) -> tuple[dict[str, int], dict[str, int]]:
    """Return the payload bytes that each node sent and should have sent, as far as the plan predicts them.

    Of a user's command, these are the collectives of the dry run, in steps in steady state. The start of a script, its
    evaluations, and the first steps of DistributedDataParallel have others.
    """
    if trial.plan.workload_kind != "command" or "scheduled_bytes_sent" not in trial.nodes:
        return bytes_sent(trial), expected_bytes_sent(trial)
    counts = pd.to_numeric(trial.nodes.set_index("node")["scheduled_bytes_sent"], errors="coerce").dropna()
    steps = trial.steps[trial.steps["step"] >= FIRST_STEADY_STEP].groupby("node").size()
    expected = {node: round(size * int(steps.get(node, 0))) for node, size in trial.plan.bytes_per_step.items()}
    return {str(node): int(count) for node, count in counts.items()}, expected


def expected_bytes_sent(trial: TrialLogTables) -> dict[str, int]:
    """Return the payload bytes that each node should send by the trial plan.

    Bytes of steps, of exchanges before evaluations, and of a strategy switch are counted.

    A strategy switch transfers training state between nodes. A shard owner sends replies to other workers, so the bytes
    of its replies are multiplied by the mean number of steps of these workers. For an aborted state transfer, the bytes
    sent until then are expected, but no more than planned.
    """
    plan, workers = trial.plan, [str(node) for node in trial.steps["node"].unique()]
    expected = dict.fromkeys(plan.bytes_per_step, 0.0)
    for phase in training_phases(trial):
        computing = [name for name in workers if name not in phase.new_server_names]
        steps = dict.fromkeys(computing, 0.0) | _count_steps_of_exchanges(phase, plan.steps)
        for node, count in phase.bytes_per_step.items():
            reply_bytes = phase.reply_bytes_per_step.get(node, 0.0 if node in steps else count)
            expected[node] += _sum_bytes_sent_in_phase(count, reply_bytes, node, steps)
            if phase.name != "after":
                expected[node] += _sum_extra_bytes_of_stages(plan.format_stages, node, count, round(steps.get(node, 0)))
    for node, count in plan.evaluation_bytes.items():
        expected[node] += count * trial.evals["step"].nunique()
    transfer_bytes = _count_strategy_switch_bytes(trial, expected)
    return {node: round(count + transfer_bytes.get(node, 0)) for node, count in expected.items()}


def _sum_extra_bytes_of_stages(
    format_stages: Sequence[PlannedFormatStage], node_name: str, later_bytes_per_step: float, step_count: int
) -> float:
    """Return the bytes that a node sends in its first steps beyond those of as many later steps."""
    ends = [0, *(min(stage.end_step, step_count) for stage in format_stages)]
    return sum(
        (end - start) * (stage.bytes_per_step[node_name] - later_bytes_per_step)
        for stage, (start, end) in zip(format_stages, pairwise(ends), strict=True)
    )


def bound_bytes_sent(trial: TrialLogTables, expected: Mapping[str, int]) -> dict[str, ByteRange]:
    """Return the bounds of the payload bytes that each node should send by the trial plan.

    Both bounds are the `expected` bytes, unless workers have chosen their partners during the run.
    """
    plan = trial.plan
    if not plan.chooses_partners:
        return {node: ByteRange(count, count) for node, count in expected.items()}
    phase = TypeAdapter[Strategy](AnyStrategy).validate_python(plan.strategy).training_phases().first
    byte_bounds = phase.describe_worker_exchange().partner_byte_bounds
    counts = trial.steps.groupby("node", observed=True).size()
    names = [node.name for node in plan.nodes if node.role == "worker"]
    if byte_bounds is None:
        raise ValueError(f"strategy {plan.strategy['kind']} chooses no partners, but the plan says so")
    steps, entry_bytes = [int(counts.get(name, 0)) for name in names], plan.vector_bytes / plan.parameters
    ranges = byte_bounds.bound_sent_bytes(steps, plan.seed, plan.parameters, entry_bytes)
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


def _count_steps_of_exchanges(training_phase: TrainingPhase, budget_steps: int) -> dict[str, float]:
    """Return the number of steps whose bytes each worker sends in a training phase.

    The result is a multiple of the mean steps per exchange. At the end of its budget, a worker exchanges once more for
    the steps since its last exchange, and sends as many bytes as in any exchange. Synchronous workers that stop before
    the end of their budget of `budget_steps` steps do not.
    """
    steps = training_phase.steps
    schedule = ExchangeSchedule(training_phase.exchange_period, training_phase.exchanges_per_period)
    stops_early = training_phase.sync_or_async == "synchronous" and steps["step"].max() + 1 < budget_steps
    return {
        str(node): schedule.count_exchanges(int(count), ends_with_exchange=not stops_early)
        * schedule.mean_steps_per_exchange
        for node, count in steps.groupby("node").size().items()
    }


def _sum_bytes_sent_in_phase(
    bytes_per_step: float, reply_bytes_per_step: float, node_name: str, step_count_by_worker: dict[str, float]
) -> float:
    """Return the bytes that a node sends in all steps of one training phase.

    A training phase is the part of a training before or after a strategy switch.

    Of its `bytes_per_step`, `reply_bytes_per_step` are replies, which it sends once per step of the other workers.
    """
    others = [count for name, count in step_count_by_worker.items() if name != node_name]
    mean_steps_of_others = sum(others) / len(others) if others else 0
    own_bytes = (bytes_per_step - reply_bytes_per_step) * step_count_by_worker.get(node_name, 0)
    return own_bytes + reply_bytes_per_step * mean_steps_of_others
