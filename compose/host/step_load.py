"""Messages and CPU time of a training step on this host, predicted from the plan of a trial."""

from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

import numpy as np

from compose.calibration.capacity import HostCapacity
from compose.host.compute_speed import CpuTimeFunctions
from services.plan import CommandPlan, Plan, PostSwitchPhasePlan, TrainingPlan
from services.runtime.pacing import FORWARD_SHARE, MAX_LATE_STEP_SHARE
from services.strategies import SinglePhaseStrategy

MAX_CPU_SHARE = 0.4  # share of the cores' time that a step may use
MAX_CORE_SHARE = 0.8  # share of one core that the compute of one worker may use


class WorkerComputeTimes(NamedTuple):
    """Compute time of one worker in one step, on this host and on the declared device.

    On this host, the worker computes on the CPU. The scenario declares the device.
    """

    cpu_s: float  # CPU seconds on this host
    device_s: float  # virtual seconds on the declared device


class StepHostLoad(NamedTuple):
    """Messages and CPU time of one training step on this host."""

    messages: int
    compute_phases: tuple[WorkerComputeTimes, ...]  # of workers on a CPU
    overhead_cpu_s: float  # CPU seconds of messages, sums and updates over all nodes
    step_s: float  # predicted, virtual
    is_asynchronous: bool  # workers do not wait for each other

    @property
    def total_cpu_s(self) -> float:
        """CPU seconds of one training step, summed over all nodes."""
        return self.overhead_cpu_s + sum(phase.cpu_s for phase in self.compute_phases)

    @property
    def step_duration_text(self) -> str:
        """Duration of a training step as text for error messages, such as `a step of 20 ms`."""
        return f"a step of {1e3 * self.step_s:.3g} ms"

    @property
    def worst_slowdown_text(self) -> str:
        """Text on the worker that this host slows down most, such as `3 ms of compute in 1 ms`.

        The first number is CPU time on this host, the second is the compute time on the declared device.
        """
        cpu_s, device_s = max(self.compute_phases, key=lambda phase: phase.cpu_s / phase.device_s)
        others = f" on one of {len(self.compute_phases)} workers" if len(self.compute_phases) > 1 else ""
        return f"{1e3 * cpu_s:.3g} ms of compute in {1e3 * device_s:.3g} ms{others}"

    def find_min_compute_dilation(self, core_count: int) -> float:
        """Return the smallest time dilation at which this host computes fast enough for all workers.

        Fast enough means within the durations of the declared devices, plus the lateness that a step allows. One worker
        computes on one core.
        """
        return max(self._find_min_dilations_of_compute(core_count))

    def describe_compute_limit(self, core_count: int) -> str:
        """Return in words what determines the smallest dilation at which this host computes fast enough."""
        together, alone = self._find_min_dilations_of_compute(core_count)
        late = f"compute may end late by {MAX_LATE_STEP_SHARE:.0%} of {self.step_duration_text}"
        if alone > together:
            return f"a worker may use {MAX_CORE_SHARE:.0%} of the time of a core, and {late}"
        workers = f"the {len(self.compute_phases)} workers together" if len(self.compute_phases) > 1 else "a worker"
        return f"{workers} may use {MAX_CPU_SHARE:.0%} of the time of {format_cores(core_count)}, and {late}"

    def _find_min_dilations_of_compute(self, core_count: int) -> tuple[float, float]:
        """Return the smallest dilation for the compute of all workers together, and for that of a single worker."""
        allowed_late_s = MAX_LATE_STEP_SHARE * self.step_s
        core_shares = [phase.cpu_s / (phase.device_s + allowed_late_s) for phase in self.compute_phases]
        return sum(core_shares) / (MAX_CPU_SHARE * core_count), max(core_shares) / MAX_CORE_SHARE


def format_cores(count: int) -> str:
    """Return a number of cores as text: "1 core", "2 cores"."""
    return f"{count} core{'s' * (count != 1)}"


def training_phases(plan: Plan) -> tuple[Plan | PostSwitchPhasePlan, ...]:
    """Return the training phases of a trial.

    There are two phases if the trial changes its strategy, else one.
    """
    return (plan, plan.second_phase) if plan.second_phase else (plan,)


def predict_step_load(
    plan: Plan,
    training_phase: Plan | PostSwitchPhasePlan,
    host_capacity: HostCapacity,
    step_cpu_times: CpuTimeFunctions,
) -> StepHostLoad:
    """Return the number of messages and the CPU time of one step in a training phase."""
    compute_phases = tuple(_worker_compute_times(plan, training_phase, step_cpu_times))
    size_bytes = sum(training_phase.bytes_per_step.values())
    messages = _messages_per_step(plan, training_phase, size_bytes)
    payload_bytes = size_bytes / plan.payload_scale  # padding is not summed
    moved_bytes = size_bytes if plan.sends_padding else payload_bytes
    summed_bytes = _summed_bytes_per_step(plan, training_phase, payload_bytes)
    messages_s = (
        messages * host_capacity.message_cpu_s
        + moved_bytes * host_capacity.byte_cpu_s
        + summed_bytes * host_capacity.sum_s
    )
    updates_s = _parameter_updates_s(plan, training_phase, len(compute_phases), step_cpu_times)
    return StepHostLoad(
        messages=messages,
        compute_phases=compute_phases,
        overhead_cpu_s=messages_s + updates_s,
        step_s=training_phase.predicted.step_s,
        is_asynchronous=bool(training_phase.predicted.steps_s),
    )


def _summed_bytes_per_step(
    plan: Plan, training_phase: Plan | PostSwitchPhasePlan, payload_bytes_per_step: float
) -> float:
    """Return the bytes of the vectors that all nodes add in a step.

    They are the sent bytes, unless every worker gets the compressed vectors of all workers: it then adds whole vectors.
    """
    exchange = _strategy_of_phase(plan, training_phase).describe_worker_exchange()
    if exchange.compressor.aggregation != "all_gather" or not training_phase.schedule.rounds:
        return payload_bytes_per_step
    return plan.workers**2 * plan.parameters * np.dtype(plan.dtype).itemsize / exchange.exchange_period


def _strategy_of_phase(plan: Plan, training_phase: Plan | PostSwitchPhasePlan) -> SinglePhaseStrategy:
    first, *second = plan.strategy.training_phases()
    return second[0] if isinstance(training_phase, PostSwitchPhasePlan) else first


def _parameter_updates_s(
    plan: Plan, training_phase: Plan | PostSwitchPhasePlan, replica_count: int, step_cpu_times: CpuTimeFunctions
) -> float:
    """Return the CPU seconds of all parameter updates of a step; those of a command are part of its compute."""
    if not isinstance(plan, TrainingPlan) or not isinstance(training_phase, TrainingPlan | PostSwitchPhasePlan):
        return 0.0
    updates = _parameter_updates_per_step(plan, training_phase, replica_count)
    if not updates:
        return 0.0
    updater = plan.make_parameter_updater(training_phase.optimiser)
    return updates * step_cpu_times.update_s(plan.dataset, plan.model, plan.dtype, updater)


def _parameter_updates_per_step(plan: Plan, training_phase: Plan | PostSwitchPhasePlan, replica_count: int) -> float:
    """Return the number of parameter updates that CPUs compute per step.

    If workers update parameters, the updates of all replicas count, else those of all servers.
    """
    strategy = _strategy_of_phase(plan, training_phase)
    algorithm = strategy.server_algorithm()
    if algorithm is None or strategy.describe_worker_exchange().workers_run_optimiser:
        return replica_count
    if algorithm.synchroniser.describe_worker_sync().runs_in_rounds:
        return 1
    return algorithm.count_gradient_workers(plan.workers) / algorithm.gradients_per_update(plan.workers)


def _worker_compute_times(
    plan: Plan, training_phase: Plan | PostSwitchPhasePlan, step_cpu_times: CpuTimeFunctions
) -> Iterator[WorkerComputeTimes]:
    """Yield the compute time per step of each CPU worker with a declared speed.

    Workers without a share of the batch are left out.
    """
    if isinstance(plan, CommandPlan):
        yield from _command_compute_times(plan)
        return
    if not isinstance(plan, TrainingPlan):
        return
    shares = training_phase.worker_weights if isinstance(training_phase, PostSwitchPhasePlan) else plan.initial_shares
    sizes = plan.data_order.share_sizes(0, shares)
    compute_share = _real_compute_share(plan, training_phase)
    for node, samples in zip(plan.node_plans_of_role("worker"), sizes, strict=True):
        if node.throughput and samples and node.device != "cuda":
            cpu_s = step_cpu_times.gradient_s(plan.dataset, plan.model, plan.dtype, samples)
            yield WorkerComputeTimes(cpu_s, compute_share * samples / node.throughput)


def _real_compute_share(plan: TrainingPlan, training_phase: Plan | PostSwitchPhasePlan) -> float:
    """Return the share of a step's declared compute time in which a worker does the real compute of the step.

    The real compute is complete before the first bucket of the gradient is due.
    """
    if isinstance(training_phase, PostSwitchPhasePlan) or not plan.gradient_buckets:
        return 1.0
    return FORWARD_SHARE + (1 - FORWARD_SHARE) * plan.gradient_buckets[0].backward_share


def _command_compute_times(plan: CommandPlan) -> Iterator[WorkerComputeTimes]:
    """Yield the compute time per step of each worker that runs a command, as measured in the dry run."""
    for node in plan.node_plans_of_role("worker"):
        compute_s = plan.step_compute_s(node)
        if compute_s and plan.step_profile:
            yield WorkerComputeTimes(plan.step_profile.cpu_s, compute_s)


def _messages_per_step(plan: Plan, training_phase: Plan | PostSwitchPhasePlan, bytes_per_step: float) -> int:
    """Return the number of messages in one step.

    A message that is sent in pieces counts once per piece. Where the transport shapes links, its pieces are smaller.
    Messages of an exchange are spread over the steps up to the next exchange.
    """
    collective, period = training_phase.schedule, training_phase.exchange_period / training_phase.exchanges_per_period
    longest_bytes = collective.max_message_bytes(plan.vector_bytes, *plan.message_size_limits)
    piece_bytes = plan.step_cost_model.round_to_whole_entries(longest_bytes)
    buckets = len(plan.gradient_buckets) if isinstance(plan, TrainingPlan) else 0
    collectives = buckets or training_phase.sums_per_exchange
    transfers = sum(collective.count_transfers_from(rank) for rank in range(plan.workers)) * collectives
    messages = transfers or 2 * len(plan.worker_server_push_pairs)
    pieces = ceil(bytes_per_step * period / messages / piece_bytes) if messages else 0
    return ceil(messages * pieces / period)
