"""Construction of a worker of a training: its transport, algorithm, pacing, data and strategy switch."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from services.cluster.events import WorkerPause
from services.collectives.execution.executor import GroupMember
from services.learning.partitions.assignment import assign_training_samples
from services.node.node_services import NodeServices
from services.node.training_data import load_training_data
from services.plan import NodePlan, TrainingPlan
from services.plan.training.regrouping import regroup_plan
from services.runtime.clock import Clock
from services.runtime.control import CoordinatorClient
from services.runtime.device import ComputeDevice
from services.runtime.membership import Membership
from services.runtime.pacing import ComputeSpeedPacer, DeclaredSpeedPacer, HostSpeedPacer, unit_duration_factor
from services.runtime.slowdowns import WorkerSlowdowns
from services.runtime.transport import Transport
from services.strategies import SinglePhaseStrategy, WorkerAlgorithm, WorkerContext
from services.strategies.switching.state_transfer import StrategySwitchTimeout
from services.transport.epoch_transport import begin_membership_epoch, first_epoch_transport
from services.transport.mailbox import Mailbox
from services.transport.pausable_transport import PausableTransport
from services.transport.self_delivery import SelfDeliveryTransport
from services.worker.batch_balancer import BatchBalancer
from services.worker.event_runner import ScenarioEventRunner
from services.worker.gradient_computer import GradientComputer
from services.worker.runtime import WorkerRuntime
from services.worker.strategy_switch import WorkerStrategySwitch
from services.worker.training_phase import WorkerTrainingPhase


def make_worker(
    plan: TrainingPlan,
    node_plan: NodePlan,
    device: ComputeDevice,
    node_services: NodeServices,
    event_runner: ScenarioEventRunner,
    transport: Transport,
) -> WorkerRuntime:
    """Return a worker that is ready to warm up and to train."""
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
    data = load_training_data(plan.dataset, plan.dtype)
    pacer = _make_compute_pacer(plan, node_plan, node_services.clock, event_runner.slowdowns)
    parts = assign_training_samples(plan.partition, plan.dataset, plan.workers)
    gradients = GradientComputer(plan, data, pacer, parts[node_plan.rank] if parts else None)
    first = plan.strategy.training_phases().first
    algorithm = first.create_worker_algorithm(context)
    return WorkerRuntime(
        plan,
        node_plan,
        WorkerTrainingPhase(algorithm, plan.is_synchronous, plan.initial_shares),
        gradients,
        node_services.control,
        node_services.clock,
        node_services.log,
        event_runner.begin_events_of_step,
        _make_strategy_switch(plan, node_plan, algorithm, node_services.control, node_services.clock),
        _make_batch_balancer(first, context),
        is_evaluation_worker=node_plan.rank == 0,
    )


def _make_strategy_switch(
    plan: TrainingPlan,
    node_plan: NodePlan,
    algorithm: WorkerAlgorithm,
    control: CoordinatorClient,
    clock: Clock,
    epoch: int = 0,
) -> WorkerStrategySwitch | None:
    """Return the switch of a worker from its algorithm to that of the second training phase; None if there is none."""
    switch = plan.strategy.training_phases().switch
    if switch is None or plan.second_phase is None:
        return None
    updater = plan.make_parameter_updater(plan.second_phase.optimiser)
    context_after = replace(algorithm.context, updater=updater, schedule=plan.second_phase.schedule)
    return WorkerStrategySwitch(
        node_plan.name,
        switch,
        algorithm,
        switch.second.create_worker_algorithm(context_after),
        plan.second_phase.worker_weights,
        control,
        StrategySwitchTimeout(clock, plan.timeouts.step),
        epoch,
    )


def regroup_worker(plan: TrainingPlan, worker: WorkerRuntime, membership: Membership) -> WorkerRuntime:
    """Return a worker that continues its training in a new membership epoch.

    It has another rank, other shares of a batch and another collective; its data, device and pacing stay. The
    membership changes in this way in the first training phase only.

    Args:
        plan: plan of the trial, with all its workers.
        worker: the worker of the epoch before.
        membership: workers of the new epoch.
    """
    group_plan, before = regroup_plan(plan, membership.workers), worker.algorithm_context
    strategy = plan.strategy.training_phases().first
    lost = {*before.workers, *membership.joined} - set(membership.continuing_workers)
    context = replace(
        before,
        rank=membership.workers.index(worker.node.name),
        workers=membership.workers,
        schedule=group_plan.schedule,
        transport=begin_membership_epoch(before.transport, membership.epoch, lost, membership.joined),
    )
    node, algorithm = group_plan.node_plan(worker.node.name), strategy.create_worker_algorithm(context)
    return replace(
        worker,
        plan=group_plan,
        node=node,
        phase=WorkerTrainingPhase(algorithm, worker.phase.is_synchronous, group_plan.initial_shares),
        strategy_switch=_make_strategy_switch(
            group_plan, node, algorithm, worker.control, worker.clock, membership.epoch
        ),
        gradients=replace(worker.gradients, plan=group_plan),
        balancer=_make_batch_balancer(strategy, context),
        is_evaluation_worker=context.rank == 0,
    )


def _make_batch_balancer(strategy: SinglePhaseStrategy, context: WorkerContext) -> BatchBalancer | None:
    balance = strategy.describe_worker_exchange().balance
    if not balance.resize_period:
        return None
    return BatchBalancer(balance, GroupMember(context.transport, context.workers, context.rank))


def make_transport_factory(
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
        return lambda: first_epoch_transport(transport, plan.recovery)
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
