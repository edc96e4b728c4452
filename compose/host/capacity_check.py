"""Check whether this host is fast enough for a scenario.

The check also finds the dilation (slow-down of the clock) that the scenario needs. A dilation of D makes a trial D
times slower in wall-clock time and leaves its virtual time as it is. A trial fits this host under a dilation D if all
of these hold:

- every shaped rate, divided by D, is one that this host can enforce,
- the rates of all links together, divided by D, are at most what this host can move,
- the CPU time of a step is at most 40 % of the time of all cores during the step,
- the CPU time of the workers' compute is at most 40 % of the time of all cores while the declared devices compute.

Workers with `device: cuda` compute on a GPU, whose speed is not measured: their compute is not checked, and the result
says so. The compute of workers with `device: auto` is checked as if they computed on the CPU.

Within these limits, workers whose compute time is set by the scenario keep their deadlines within 2 to 3 % (16 workers
of 1 ms in steps of 20 ms on two cores); beyond, they do not.

With `dilation: auto`, the dilation is also so large that messages and updates use at most a tenth of the cores' time,
because they seldom overlap with the time of transfers: in a ring of eight at 25 Gbit/s and a dilation of 24, whose
transfers took as long as the cores, steps took 1.9 times as long. Messages of asynchronous workers arrive while other
workers compute: 1.5 % of compute phases of 20 ms (wall clock) ended late, and 0.2 to 0.7 % of those of 40 ms (eight
workers on two cores), so 40 ms is the shortest compute phase that `auto` allows.
"""

from collections.abc import Iterator, Sequence
from math import ceil, inf
from typing import NamedTuple

import numpy as np
from pydantic import Field

from compose.calibration.capacity import HostCapacity
from compose.host.compute_speed import CpuTimeFunctions
from services.cluster.events import LinkChange
from services.plan import CommandPlan, NodePlan, Plan, PostSwitchPhasePlan, TrainingPlan
from services.runtime.pacing import FORWARD_SHARE, MAX_LATE_STEP_SHARE
from services.scenario.scenario import AUTO, Scenario
from services.scenario.simulated_advice import leave_out_simulated_engine
from services.schema.component import FrozenRecord
from services.schema.errors import UserError
from services.strategies import SinglePhaseStrategy
from services.strategies.cost_model import Flow

USUAL_DILATIONS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MAX_CPU_SHARE = 0.4  # share of the cores' time that a step may use
MAX_OVERHEAD_SHARE = 0.1  # share of the cores' time for messages and updates
MIN_ASYNC_COMPUTE_S = 0.04  # wall seconds; shortest compute phase of an asynchronous worker
MAX_CORE_SHARE = 0.8  # share of one core that the compute of one worker may use
ROUNDING_TOLERANCE = 1e-9


class TrialHostDemand(FrozenRecord):
    """Needs of one trial, each with the time dilation (slow-down) that it requires.

    For each need in words, this is the smallest dilation at which the host meets the need.
    """

    trial: str
    declared: float | None  # declared dilation; None: auto
    needs: dict[str, float]  # need in words -> smallest dilation under which this host can meet it
    limits: dict[str, str] = Field(default={})  # need in words -> what a trial may use of this host, in words
    wishes: dict[str, float] = Field(default={})  # needs for precise steps, in the same form; they count for auto only
    gradient_cpu_s: float  # measured CPU seconds of one gradient, wall clock
    cpu_s: float  # CPU seconds of a step over all nodes, wall clock
    messages: int  # per step
    compute_assumption: str = ""  # on what the compute of workers was checked, in words; empty: it was not

    @property
    def dilation_by_need(self) -> dict[str, float]:
        """Smallest time dilation (slowdown of the emulation) that meets each need of the trial.

        The mapping is need in words -> smallest dilation that meets the need.
        """
        return self.needs | (self.wishes if self.declared is None else {})

    @property
    def bottleneck_text(self) -> str:
        """Need of the trial, in words, that requires the largest dilation."""
        return max(self.dilation_by_need, key=self.dilation_by_need.__getitem__, default="nothing that this host lacks")

    @property
    def min_time_dilation(self) -> float:
        """Smallest dilation from the list of usual values at which this host is fast enough.

        The dilation is the slowdown of the emulation. It is inf if no usual value suffices.
        """
        smallest = max(self.dilation_by_need.values(), default=1.0)
        return next((float(d) for d in USUAL_DILATIONS if d >= smallest - ROUNDING_TOLERANCE), inf)

    @property
    def exceeds_declared_dilation(self) -> bool:
        """Whether the declared time dilation (slowdown of the emulation) is too small for this host."""
        return self.declared is not None and self.declared < max(self.needs.values(), default=1.0) - ROUNDING_TOLERANCE


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
        return f"{workers} may use {MAX_CPU_SHARE:.0%} of the time of {_format_cores(core_count)}, and {late}"

    def _find_min_dilations_of_compute(self, core_count: int) -> tuple[float, float]:
        """Return the smallest dilation for the compute of all workers together, and for that of a single worker."""
        allowed_late_s = MAX_LATE_STEP_SHARE * self.step_s
        core_shares = [phase.cpu_s / (phase.device_s + allowed_late_s) for phase in self.compute_phases]
        return sum(core_shares) / (MAX_CPU_SHARE * core_count), max(core_shares) / MAX_CORE_SHARE


class CapacityCheck(FrozenRecord):
    """Result of the check whether this host is fast enough for a run.

    Contains the dilation, and what each trial needs of the host.
    """

    capacity: HostCapacity | None  # None: virtual time needs none
    dilation: float  # of trials with dilation: auto
    demands: tuple[TrialHostDemand, ...]

    @property
    def calibrated_alpha_s(self) -> float:
        """Latency α of a message for predictions, in wall seconds.

        It is 0 if this host is not calibrated.
        """
        return self.capacity.alpha_s if self.capacity and self.capacity.calibrated else 0.0

    @property
    def most_demanding_trial(self) -> TrialHostDemand | None:
        """Needs of the trial that requires the largest time dilation (slow-down).

        The value is None if the run has no trials.
        """
        return max(self.demands, key=lambda demand: max(demand.dilation_by_need.values(), default=0.0), default=None)


def check_host_can_run(
    scenario: Scenario, trial_plans: Sequence[Plan], host_capacity: HostCapacity, step_cpu_times: CpuTimeFunctions
) -> CapacityCheck:
    """Check whether this host is fast enough for all trials of a scenario.

    The result also states at which dilation (slow-down of the emulation) it is fast enough.

    Args:
        scenario: scenario to check.
        trial_plans: one plan per trial that is run, made with a dilation of 1 where the scenario has `dilation: auto`.
        host_capacity: messages and rates that this host can carry.
        step_cpu_times: CPU seconds of gradients and updates on this host.

    Raises:
        UserError: a trial does not fit; the message names the largest need and the dilation that would be enough.
    """
    auto_trials = {trial.id for trial in scenario.trials() if trial.scenario.dilation == AUTO}
    demands = tuple(
        compute_host_demand(
            plan, host_capacity, step_cpu_times, time_dilation=None if plan.trial in auto_trials else plan.dilation
        )
        for plan in trial_plans
    )
    if impossible := [demand for demand in demands if demand.min_time_dilation == inf]:
        raise UserError(_advise_for_workload(_format_slow_host_error(impossible[0], host_capacity), scenario))
    if too_low := [demand for demand in demands if demand.exceeds_declared_dilation]:
        largest = max(too_low, key=lambda demand: demand.min_time_dilation)
        raise UserError(_advise_for_workload(_format_dilation_error(largest, host_capacity), scenario))
    auto_dilations = [demand.min_time_dilation for demand in demands if demand.declared is None]
    return CapacityCheck(capacity=host_capacity, dilation=max(auto_dilations, default=1.0), demands=demands)


def compute_host_demand(
    plan: Plan, host_capacity: HostCapacity, step_cpu_times: CpuTimeFunctions, time_dilation: float | None
) -> TrialHostDemand:
    """Return the least time dilation (slowdown of the emulation) for each need of a trial.

    An example of a need is a link rate. The plan's dilation is ignored.
    """
    has_paced_workers = any(node.throughput for node in plan.node_plans_of_role("worker"))
    loads = [_predict_step_load(plan, phase, host_capacity, step_cpu_times) for phase in _training_phases(plan)]
    needs = {link: rate_bps / host_capacity.shaped_bps for link, rate_bps in _max_traffic_bps_by_link(plan)}
    limits = dict.fromkeys(needs, f"a link may have up to {_format_rate_gbit(host_capacity.shaped_bps)}")
    if total_bps := _total_payload_bps(plan):
        all_links_need = f"all links together, {_format_rate_gbit(total_bps)}"
        needs[all_links_need] = total_bps / host_capacity.total_bps
        limits[all_links_need] = f"all links together may have up to {_format_rate_gbit(host_capacity.total_bps)}"
    wishes: dict[str, float] = {}
    cores = host_capacity.fingerprint.cores
    for load in loads if has_paced_workers else ():
        overhead_s, overhead_limit_s = load.overhead_cpu_s / cores, MAX_OVERHEAD_SHARE * load.step_s
        _raise_min_dilation(
            wishes, f"{load.messages} messages in {load.step_duration_text}", overhead_s / overhead_limit_s
        )
        cpu_limit_s = MAX_CPU_SHARE * cores * load.step_s
        cpu_need = f"{1e3 * load.total_cpu_s:.3g} ms of CPU time in {load.step_duration_text} on {cores} cores"
        _raise_min_dilation(needs, cpu_need, load.total_cpu_s / cpu_limit_s)
        limits[cpu_need] = f"a step may use {MAX_CPU_SHARE:.0%} of the time of {_format_cores(cores)}"
        if load.compute_phases:
            compute_dilation, compute_need = load.find_min_compute_dilation(cores), load.worst_slowdown_text
            if compute_dilation >= needs.get(compute_need, 0.0):
                limits[compute_need] = load.describe_compute_limit(cores)
            _raise_min_dilation(needs, compute_need, compute_dilation)
        if load.compute_phases and load.is_asynchronous:
            shortest_s = min(phase.device_s for phase in load.compute_phases)
            asynchronous_need = f"asynchronous workers with {1e3 * shortest_s:.3g} ms of compute per step"
            _raise_min_dilation(wishes, asynchronous_need, MIN_ASYNC_COMPUTE_S / shortest_s)
    largest_load = max(loads, key=lambda load: load.total_cpu_s)
    return TrialHostDemand(
        trial=plan.trial,
        declared=time_dilation,
        needs=needs,
        limits=limits,
        wishes=wishes,
        gradient_cpu_s=max((phase.cpu_s for load in loads for phase in load.compute_phases), default=0.0),
        cpu_s=largest_load.total_cpu_s,
        messages=largest_load.messages,
        compute_assumption=_describe_compute_assumption(plan),
    )


def _describe_compute_assumption(plan: Plan) -> str:
    """Return in words by which device the compute of workers with a declared speed was checked."""
    devices = [node.device for node in plan.node_plans_of_role("worker") if node.throughput]
    parts = []
    if gpu_workers := devices.count("cuda"):
        count = f"{gpu_workers} worker{'s' if gpu_workers > 1 else ''}"
        parts.append(f"a GPU is assumed to be fast enough for {count} with device: cuda")
    if gpu_workers < len(devices):
        parts.append("gradients are timed on this CPU" + (", also for device: auto" if "auto" in devices else ""))
    return "; ".join(parts)


def _raise_min_dilation(dilation_by_demand: dict[str, float], demand_text: str, min_time_dilation: float) -> None:
    """Record a need of a trial, and the least time dilation that meets the need.

    If the need is recorded already, keep the larger one.
    """
    dilation_by_demand[demand_text] = max(min_time_dilation, dilation_by_demand.get(demand_text, 0.0))


def _max_traffic_bps_by_link(plan: Plan) -> Iterator[tuple[str, float]]:
    """Yield each rate-limited link and the most traffic that its nodes can cause.

    The link is described in words. The traffic is in bits per virtual second.
    """
    uplinks, downlinks = (
        {node.name: _max_link_rate_bps(plan, node, direction) for node in plan.nodes}
        for direction in ("uplink", "downlink")
    )
    flows = [flow for flow_set in _flows_of_each_exchange(plan) for flow in flow_set]
    for name in uplinks:
        senders = {source for source, target in flows if target == name}
        receivers = {target for source, target in flows if source == name}
        for direction, rate_bps, peers_bps in (
            ("uplink", uplinks[name], sum(downlinks[receiver] for receiver in receivers)),
            ("downlink", downlinks[name], sum(uplinks[sender] for sender in senders)),
        ):
            if rate_bps < inf and peers_bps:
                yield f"{name}'s {direction} of {_format_rate_gbit(rate_bps)}", min(rate_bps, peers_bps)
    for link in plan.network.shared_links:
        senders = {source for source, target in flows if link.carries_flow(source, target)}
        if senders:
            senders_bps = sum(uplinks[sender] for sender in senders)
            yield f"{link.name} of {_format_rate_gbit(link.rate_bps)}", min(link.rate_bps, senders_bps)


def _max_link_rate_bps(plan: Plan, node: NodePlan, direction: str) -> float:
    """Return the highest rate of a node's link in a trial.

    Rates during link events count, too. The rate is infinite for a link without shaping.
    """
    declared_bps = node.uplink_bps if direction == "uplink" else node.downlink_bps
    changes = (event.change for event in plan.events if isinstance(event.change, LinkChange))
    changed_bps = (getattr(change, direction) or 0.0 for change in changes if node.name in change.of)
    return inf if declared_bps is None else max((declared_bps, *changed_bps))


def _flows_of_each_exchange(plan: Plan) -> tuple[list[Flow], ...]:
    """Return sets of flows (sender, receiver) that send at the same time.

    There is one set per collective, one set of pushes and one set of replies.
    """
    workers = plan.step_cost_model.workers
    pushes = list(plan.worker_server_push_pairs)
    replies = [(server, worker) for worker, server in pushes]
    collectives = [
        [(workers[source], workers[target]) for source, target in sorted(schedule.sending_rank_pairs)]
        for schedule in dict.fromkeys(phase.schedule for phase in _training_phases(plan))
    ]
    return tuple(flow_set for flow_set in (*collectives, pushes, replies) if flow_set)


def _training_phases(plan: Plan) -> tuple[Plan | PostSwitchPhasePlan, ...]:
    """Return the training phases of a trial.

    There are two phases if the trial changes its strategy, else one.
    """
    return (plan, plan.second_phase) if plan.second_phase else (plan,)


def _total_payload_bps(plan: Plan) -> float:
    """Return the total rate of the bytes that nodes send over all links while only the network limits it.

    The rate is in bit/s of the emulated time. It is 0 when nothing is shaped.
    """
    bits_per_byte_on_wire = 8 if plan.sends_padding else 8 / plan.payload_scale
    transfers = (
        (flows, plan.step_cost_model.concurrent_transfer_s(flows, 1.0)) for flows in _flows_of_each_exchange(plan)
    )
    rates = (bits_per_byte_on_wire * len(flows) / transfer_s for flows, transfer_s in transfers if transfer_s)
    return max(rates, default=0.0)


def _predict_step_load(
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


def _advise_for_workload(message: str, scenario: Scenario) -> str:
    """Return an error message; for a command, without the advice to use an engine that can't run it."""
    return leave_out_simulated_engine(message) if scenario.workload.kind == "command" else message


def _format_dilation_error(demand: TrialHostDemand, host_capacity: HostCapacity) -> str:
    need, enough = demand.bottleneck_text, f"{demand.min_time_dilation:g}"
    return (
        f"dilation: {demand.declared:g} is too small for this host. Trial {demand.trial} needs {need}; on this host, "
        f"{demand.limits[need]}, which is enough from dilation {_format_rounded_up(demand.needs[need])} on "
        f"({_format_assumptions(demand, host_capacity)}). Write dilation: {enough} at the top level of the scenario "
        f"(the next usual value; the run takes {enough} times as long as the emulated training, and the report does "
        "not change) or dilation: auto, or use --engine simulated"
    )


def _format_rounded_up(dilation: float) -> str:
    """Return a dilation that suffices, with one decimal."""
    return f"{ceil(10 * dilation) / 10:g}"


def _format_slow_host_error(trial_host_demand: TrialHostDemand, host_capacity: HostCapacity) -> str:
    return (
        f"dilation: no dilation up to {USUAL_DILATIONS[-1]} is enough for this host. Trial "
        f"{trial_host_demand.trial} needs {trial_host_demand.bottleneck_text} "
        f"({_format_assumptions(trial_host_demand, host_capacity)}). Declare slower links or workers, or use --engine "
        "simulated"
    )


def _format_assumptions(trial_host_demand: TrialHostDemand, host_capacity: HostCapacity) -> str:
    return "; ".join(filter(None, (host_capacity.calibration_status_text, trial_host_demand.compute_assumption)))


def _format_cores(count: int) -> str:
    return f"{count} core{'s' * (count != 1)}"


def _format_rate_gbit(rate_bps: float) -> str:
    return f"{rate_bps / 1e9:.3g} Gbit/s"


def make_virtual_time_check() -> CapacityCheck:
    """Return the capacity check of a run in virtual (computed) time.

    Every host is fast enough for such a run.
    """
    return CapacityCheck(capacity=None, dilation=1.0, demands=())
