"""Construction of a coordinator, worker or server of a trial.

A node is built from the trial plan and from the services that the engine provides.
"""

import asyncio
import platform
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from services.cluster.events import WorkerPause
from services.cluster.links.link_conditions import ActiveLinkEvents
from services.collectives.execution.executor import GroupMember
from services.compressors import CompressorSeed, fit_to_range
from services.coordinator.machine import RunStateMachine
from services.coordinator.runtime import CoordinatorRuntime
from services.coordinator.switch_machine import StrategySwitchStateMachine
from services.learning.partitions.assignment import assign_training_samples
from services.parameter_server.update_rules import UpdateRule
from services.plan import COORDINATOR, NodePlan, TrainingPlan
from services.ps_shard.machine import ShardStateMachine
from services.ps_shard.runtime import BusyTime, ServerRuntime
from services.ps_shard.strategy_switch import StrategySwitchingServer
from services.runtime.clock import Clock
from services.runtime.control import CoordinatorClient, FinalNodeReport
from services.runtime.core_share import CpuCoreShare
from services.runtime.device import ComputeDevice, select_compute_device
from services.runtime.host_facts import describe_memory_allocator
from services.runtime.pacing import ComputeSpeedPacer, DeclaredSpeedPacer, HostSpeedPacer, unit_duration_factor
from services.runtime.run_log import UPDATE_COLUMNS, LogEventBatch, RunLog
from services.runtime.scheduling import read_time_slice_ns
from services.runtime.slowdowns import WorkerSlowdowns
from services.runtime.transport import Transport
from services.schema.errors import HostError, ProtocolError, first_error_in_group
from services.strategies import SinglePhaseStrategy, WorkerContext
from services.strategies.switching.state_transfer import StrategySwitchTimeout
from services.transport.mailbox import Mailbox
from services.transport.pausable_transport import PausableTransport
from services.transport.self_delivery import SelfDeliveryTransport
from services.worker.batch_balancer import BatchBalancer
from services.worker.event_runner import ScenarioEventRunner
from services.worker.runtime import WorkerRuntime, WorkerTrainingPhase
from services.worker.strategy_switch import WorkerStrategySwitch


@dataclass(frozen=True)
class NodeServices:
    """Services that the engine provides to a node: transport, clock, log and coordinator client, among others."""

    transport: Transport
    control: CoordinatorClient
    clock: Clock
    log: RunLog
    read_interface_bytes: Callable[[], int | None]  # bytes that the shaped network interface has sent; None: unknown
    measure_core_share: Callable[[], CpuCoreShare | None]  # share of a host core; None: all nodes share one process
    link_conditions: ActiveLinkEvents | None = None  # None where the transport does not shape links
    update_time: BusyTime = field(default_factory=BusyTime)  # of the node's server, if it has one


async def run_worker(plan: TrainingPlan, worker_plan: NodePlan, node_services: NodeServices) -> None:
    """Run a worker from start to end.

    If it owns a parameter shard, run the shard's server in the same process.
    """
    device = select_compute_device(worker_plan.device, worker_plan.gpu_memory)
    with _explain_memory_errors(device):
        await _run_worker_on_device(plan, worker_plan, node_services, device)


@contextmanager
def _explain_memory_errors(device: ComputeDevice) -> Iterator[None]:
    """Replace an error about used up memory by one that names the remedy.

    Raises:
        HostError: the body of the `with` block has used up the memory of the device or of the host.
    """
    try:
        yield
    except* MemoryError as errors:
        raise HostError(device.explain_memory_error(first_error_in_group(errors))) from errors


async def _run_worker_on_device(
    plan: TrainingPlan, worker_plan: NodePlan, node_services: NodeServices, device: ComputeDevice
) -> None:
    event_runner = _make_scenario_event_runner(plan, worker_plan, node_services)
    make_transport = _make_transport_factory(plan, worker_plan, node_services, event_runner.slowdowns)
    worker = _make_worker(plan, worker_plan, device, node_services, event_runner, make_transport())
    server = (
        _make_first_server(plan, worker_plan, make_transport(), node_services)
        if worker_plan.name in plan.shard_owners
        else None
    )
    core_share = _cpu_core_share_log_fields(node_services.measure_core_share())
    _log_node_start(node_services.log, **_device_log_fields(device), **core_share)
    await worker.warm_up()
    peers = {*_message_receiver_names(worker), *(server.worker_names if server else ())} - {worker_plan.name}
    await node_services.transport.connect(sorted(peers))
    training_start_s = await node_services.control.join()
    bytes_before = node_services.read_interface_bytes()
    async with event_runner.run_events(training_start_s):
        async with asyncio.TaskGroup() as group:
            training_task = group.create_task(worker.train())
            server_task = (
                group.create_task(_run_server_in_all_phases(plan, worker_plan, server, node_services, training_task))
                if server
                else None
            )
        await node_services.control.leave(server_task.result() if server_task else worker.final_report)
    tally = worker.counters
    _log_node_totals(
        node_services,
        bytes_before,
        steps=tally.steps,
        deadlines=tally.deadlines,
        missed_deadlines=tally.missed_deadlines,
    )


def _message_receiver_names(worker: WorkerRuntime) -> tuple[str, ...]:
    """Return the names of the nodes to which a worker sends messages before or after a strategy switch."""
    strategy_switch = worker.strategy_switch
    algorithms = [worker.current_algorithm, *([strategy_switch.algorithm_after] if strategy_switch else ())]
    names = [name for algorithm in algorithms for name in algorithm.receiver_names]
    return tuple(dict.fromkeys([*names, *(worker.balancer.receiver_names if worker.balancer else ())]))


async def run_parameter_server(plan: TrainingPlan, node: NodePlan, node_services: NodeServices) -> None:
    """Run a parameter server that has its own process, from start to end."""
    server = _make_first_server(plan, node, node_services.transport, node_services)
    _log_node_start(node_services.log, device="cpu", device_reason="servers sum in host memory")
    await node_services.transport.connect(server.worker_names)
    training_start_s = await node_services.control.join()
    bytes_before = node_services.read_interface_bytes()
    async with _make_scenario_event_runner(plan, node, node_services).run_events(training_start_s):
        final_message = await _run_server_in_all_phases(plan, node, server, node_services)
    update_seconds = round(node_services.update_time.seconds, 6)
    _log_node_totals(node_services, bytes_before, deadlines=0, missed_deadlines=0, update_seconds=update_seconds)
    await node_services.control.leave(final_message)


async def _run_server_in_all_phases(
    plan: TrainingPlan, node: NodePlan, server: ServerRuntime, services: NodeServices, *worker_tasks: asyncio.Task[None]
) -> FinalNodeReport:
    """Run a server in all training phases of the strategy, and return its final state.

    Args:
        plan: plan of the trial.
        node: plan of the node that owns the shard.
        server: the server of the first phase that has servers.
        services: interfaces of the node to its environment.
        worker_tasks: training task of the worker in the same process, if there is one.
    """
    switch = plan.strategy.training_phases().switch
    if switch is None or plan.second_phase is None:
        await server.serve_workers()
        return server.final_shard_state
    switching_server = StrategySwitchingServer(
        node.name,
        switch,
        plan.make_parameter_updater(plan.second_phase.optimiser),
        server,
        plan.shard_owners,
        partial(make_shard_server, plan, node, server.transport, services),
        services.control,
        StrategySwitchTimeout(services.clock, plan.timeouts.step),
        worker_tasks,
    )
    await switching_server.serve_and_switch_strategy()
    return switching_server.server.final_shard_state


def make_coordinator(plan: TrainingPlan, clock: Clock, log: RunLog) -> CoordinatorRuntime:
    """Return the coordinator of a trial, and log the description of the workload."""
    _log_mlperf_start_keys(plan, log)
    machine = RunStateMachine(
        node_names=frozenset(node.name for node in plan.nodes if node.name != COORDINATOR),
        worker_names=tuple(worker.name for worker in plan.node_plans_of_role("worker")),
        evaluation_points=plan.evaluation_schedule.evaluation_count,
        is_synchronous=plan.is_synchronous,
        target=plan.target if plan.stop_at_target else None,
        plan_sha256=plan.sha256,
        strategy_switch=_make_strategy_switch(plan),
        point_name="epoch" if plan.evaluation_schedule.is_once_per_epoch else "evaluation",
    )
    return CoordinatorRuntime(plan, machine, plan.dataset.load(plan.dtype), clock, log)


def _make_strategy_switch(plan: TrainingPlan) -> StrategySwitchStateMachine | None:
    switch = plan.strategy.training_phases().switch
    if switch is None:
        return None
    return StrategySwitchStateMachine(
        switch, tuple(worker.name for worker in plan.node_plans_of_role("worker")), plan.shard_owners
    )


def _make_scenario_event_runner(plan: TrainingPlan, node: NodePlan, node_services: NodeServices) -> ScenarioEventRunner:
    return ScenarioEventRunner(
        plan, node, node_services.control, node_services.clock, node_services.log, node_services.link_conditions
    )


def _make_worker(
    plan: TrainingPlan,
    node_plan: NodePlan,
    device: ComputeDevice,
    node_services: NodeServices,
    event_runner: ScenarioEventRunner,
    transport: Transport,
) -> WorkerRuntime:
    context = WorkerContext(
        rank=node_plan.rank,
        workers=tuple(worker.name for worker in plan.node_plans_of_role("worker")),
        shard_owners=plan.shard_owners,
        shards=plan.shards,
        schedule=plan.schedule,
        updater=plan.make_parameter_updater(plan.optimiser),
        device=device,
        transport=transport,
        batch_size=plan.data_order.batch_size,
        seed=plan.seed,
    )
    data, pace = (
        plan.dataset.load(plan.dtype),
        _make_compute_pacer(plan, node_plan, node_services.clock, event_runner.slowdowns),
    )
    parts = assign_training_samples(plan.partition, plan.dataset, plan.workers)
    phases, strategy_switch = plan.strategy.training_phases(), None
    algorithm = phases.first.create_worker_algorithm(context)
    if phases.switch and plan.second_phase:
        updater = plan.make_parameter_updater(plan.second_phase.optimiser)
        context_after = replace(context, updater=updater, schedule=plan.second_phase.schedule)
        strategy_switch = WorkerStrategySwitch(
            node_plan.name,
            phases.switch,
            algorithm,
            phases.switch.second.create_worker_algorithm(context_after),
            plan.second_phase.worker_weights,
            node_services.control,
            StrategySwitchTimeout(node_services.clock, plan.timeouts.step),
        )
    return WorkerRuntime(
        plan,
        node_plan,
        WorkerTrainingPhase(algorithm, plan.is_synchronous, plan.initial_shares),
        data,
        pace,
        node_services.control,
        node_services.clock,
        node_services.log,
        event_runner.begin_events_of_step,
        strategy_switch,
        parts[node_plan.rank] if parts else None,
        _make_batch_balancer(phases.first, context),
    )


def _make_batch_balancer(strategy: SinglePhaseStrategy, context: WorkerContext) -> BatchBalancer | None:
    balance = strategy.describe_worker_exchange().balance
    if not balance.resize_period:
        return None
    return BatchBalancer(balance, GroupMember(context.transport, context.workers, context.rank))


def _make_transport_factory(
    plan: TrainingPlan, node: NodePlan, node_services: NodeServices, worker_slowdowns: WorkerSlowdowns
) -> Callable[[], Transport]:
    """Return a function that makes a transport for a worker or for a server.

    The server is the one in the process of the worker. Pauses of the worker delay its messages to other nodes. Messages
    between the worker and the server in its process stay inside the process.
    """
    transport: Transport = node_services.transport
    pauses = [event.change for event in plan.events if isinstance(event.change, WorkerPause)]
    if any(node.name in pause.node_names for pause in pauses):
        transport = PausableTransport(transport, node_services.clock, worker_slowdowns)
    if node.name not in plan.shard_owners:
        return lambda: transport
    mailbox = Mailbox(plan.message_timeout_s, node_services.clock.to_wall_s(1.0))
    return lambda: SelfDeliveryTransport(transport, node.name, mailbox)


def _make_compute_pacer(
    plan: TrainingPlan, node: NodePlan, clock: Clock, worker_slowdowns: WorkerSlowdowns
) -> ComputeSpeedPacer:
    if node.throughput is None:
        return HostSpeedPacer(clock, worker_slowdowns)
    variation = node.variation
    factor = partial(variation.duration_factor, plan.seed, node.rank) if variation else unit_duration_factor
    return DeclaredSpeedPacer(clock, node.throughput, node.compute_slot, factor, worker_slowdowns)


def _make_first_server(
    plan: TrainingPlan, node: NodePlan, transport: Transport, node_services: NodeServices
) -> ServerRuntime:
    """Return the server of a node's shard for the first training phase with servers.

    The server starts with the initial parameters.
    """
    phase = plan.strategy.training_phases().first_phase_with_servers
    algorithm = phase.server_algorithm() if phase else None
    if phase is None or algorithm is None or node.name not in plan.shard_owners:
        raise ProtocolError(f"strategy {plan.strategy.kind} assigns no shard of the parameter vector to {node.name}")
    task = plan.dataset.describe().task
    shard = plan.shards[plan.shard_owners.index(node.name)]
    params = shard.view(plan.model.init_parameters(task, plan.seed, plan.dtype))
    update_rule = algorithm.make_update_rule(plan.make_parameter_updater(plan.optimiser), params, plan.workers)
    return make_shard_server(plan, node, transport, node_services, phase, update_rule)


def make_shard_server(
    plan: TrainingPlan,
    node: NodePlan,
    transport: Transport,
    services: NodeServices,
    phase_strategy: SinglePhaseStrategy,
    update_rule: UpdateRule,
    prior_update_count: int = 0,
    prior_sample_count: int = 0,
) -> ServerRuntime:
    """Return the server of one node's shard of the parameter vector, for one training phase.

    Args:
        plan: plan of the trial.
        node: plan of the node that owns the shard.
        transport: transport of the server.
        services: interfaces of the node to its environment.
        phase_strategy: training phase that the server belongs to.
        update_rule: update rule with the parameters of the shard and the optimiser's state.
        prior_update_count: number of updates made to the parameters before this phase.
        prior_sample_count: number of samples used for these updates.

    Raises:
        ProtocolError: the phase has no servers.
    """
    algorithm = phase_strategy.server_algorithm()
    if algorithm is None:
        raise ProtocolError(f"training phase {phase_strategy.kind} has no servers")
    is_synchronous = phase_strategy.describe_worker_exchange().is_synchronous
    shard_number = plan.shard_owners.index(node.name)
    return ServerRuntime(
        worker_names=tuple(worker.name for worker in plan.node_plans_of_role("worker")),
        update_rule=update_rule,
        compressor=fit_to_range(algorithm.compressor, *plan.shards[shard_number]),
        machine=ShardStateMachine(
            plan.workers,
            algorithm.synchroniser,
            algorithm.staleness_weighting,
            prior_update_count,
            prior_sample_count,
            sample_budget=None if is_synchronous else plan.sample_budget,
            push_samples=_count_first_push_samples(
                plan,
                algorithm.count_gradient_workers(plan.workers),
                phase_strategy.describe_worker_exchange().exchange_period,
            ),
        ),
        transport=transport,
        clock=services.clock,
        shard_number=shard_number,
        update_log=LogEventBatch(services.log, "shard_updates", UPDATE_COLUMNS),
        drop_log=LogEventBatch(services.log, "shard_drops", UPDATE_COLUMNS),
        busy_time=services.update_time,
        reply_compressor=fit_to_range(algorithm.reply_compressor, *plan.shards[shard_number]),
        reply_seed=CompressorSeed(plan.seed, plan.workers * len(plan.shards) + shard_number),
    )


def _count_first_push_samples(
    plan: TrainingPlan, gradient_worker_count: int, steps_per_exchange: int
) -> dict[int, int]:
    """Return the number of samples in each worker's first push, by rank.

    The last batch of an epoch may be smaller.
    """
    weights, sizes = plan.initial_shares[:gradient_worker_count], plan.data_order.share_sizes
    shares_by_rank = zip(*(sizes(step, weights) for step in range(steps_per_exchange)), strict=True)
    return {rank: sum(shares) for rank, shares in enumerate(shares_by_rank)}


def _device_log_fields(device: ComputeDevice) -> dict[str, object]:
    return {
        "device": device.name,
        "device_model": device.description,
        "device_reason": device.reason,
        "device_memory_limit_bytes": device.memory_limit_bytes,
    }


def _cpu_core_share_log_fields(core_share: CpuCoreShare | None) -> dict[str, float | None]:
    """Return the log fields for the share of a CPU core that a node gets.

    All are None if it was not measured.
    """
    return core_share._asdict() if core_share else dict.fromkeys(CpuCoreShare._fields)


def _log_node_start(log: RunLog, **facts: object) -> None:
    process_facts = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "slice_ns": read_time_slice_ns(),
        "allocator": describe_memory_allocator(),
    }
    log.log_event("node_start", process_facts | facts)


def _log_node_totals(node_services: NodeServices, sent_bytes_before: int | None, **facts: object) -> None:
    """Log the bytes that a node has sent and the CPU time that it has used.

    Interface bytes include headers, acknowledgements and retransmissions.
    """
    traffic, bytes_after = node_services.transport.traffic, node_services.read_interface_bytes()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    bytes_sent = None if bytes_after is None or sent_bytes_before is None else bytes_after - sent_bytes_before
    value = {
        "payload_bytes_sent": traffic.payload_bytes,
        "framing_bytes_sent": traffic.framing_bytes,
        "messages_sent": traffic.messages,
        "interface_bytes_sent": bytes_sent,
        "peers": traffic.payload_bytes_by_peer,
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
        **facts,
    }
    node_services.log.log_event("node_stop", value)


def _log_mlperf_start_keys(plan: TrainingPlan, log: RunLog) -> None:
    """Log the keys that the compliance checker of MLCommons requires before the start of training."""
    log.log_event("cache_clear", value=True)
    log.log_start("init_start")
    for key, value in _make_mlperf_log_fields(plan).items():
        log.log_event(key, value)


def _make_mlperf_log_fields(plan: TrainingPlan) -> dict[str, object]:
    """Return the workload's properties, such as batch size and optimiser, by MLPerf log key."""
    return {
        "submission_org": "ensayo",
        "submission_platform": f"{plan.engine} engine, emulated",
        "submission_division": "open",
        "submission_status": "research",
        "submission_benchmark": plan.dataset.declared_kind,
        "submission_poc_name": plan.trial,
        "config_filename": "plan.json",
        "seed": plan.seed,
        "global_batch_size": plan.batch,
        "micro_batch_size": plan.batch // plan.workers,
        "gradient_accumulation_steps": 1,
        "train_samples": plan.train_samples,
        "eval_samples": plan.eval_samples,
        "number_of_nodes": len(plan.nodes) - 1,
        "accelerators_per_node": 1,
        "opt_name": plan.optimiser.kind,
        "opt_base_learning_rate": plan.optimiser.rate,
        "lowest_numerical_precision_in_linear": plan.precision,
        "lowest_numerical_precision_in_attn": plan.precision,
        "lowest_numerical_precision_in_comm": _communication_precision(plan),
        "tensor_parallelism": 1,
        "pipeline_parallelism": 1,
        "context_parallelism": 1,
        "expert_parallelism": 1,
    }


def _communication_precision(plan: TrainingPlan) -> str:
    """Return the number format of gradients on the network, as MLPerf names it."""
    kind = plan.strategy.training_phases().first.describe_worker_exchange().compressor.kind
    return plan.precision if kind == "identity" else kind
