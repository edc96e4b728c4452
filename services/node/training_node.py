"""Run of a worker or a parameter server of a training, from the start of the node to its end."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from services.checkpoints.folder import CheckpointFolder
from services.checkpoints.node_checkpoints import NodeCheckpoints, require_checkpoint_folder
from services.checkpoints.schedules import CheckpointSchedule, IntervalSchedule, StepSchedule
from services.node.node_log import cpu_core_share_log_fields, device_log_fields, log_node_start, log_node_totals
from services.node.node_services import NodeServices
from services.node.server_assembly import (
    make_first_server,
    make_switching_server,
    regroup_server,
    regroup_switching_server,
)
from services.node.worker_assembly import make_transport_factory, make_worker, regroup_worker
from services.plan import NodePlan, TrainingPlan
from services.ps_shard.evicting_serving import EvictingServing
from services.ps_shard.recoverable_serving import RecoverableServing
from services.ps_shard.recoverable_switch_serving import RecoverableSwitchServing
from services.ps_shard.runtime import ServerRuntime
from services.ps_shard.strategy_switch import StrategySwitchingServer
from services.runtime.control import FinalNodeReport
from services.runtime.device import ComputeDevice, select_compute_device
from services.runtime.membership_follower import MembershipFollower
from services.scenario.recovery import CheckpointSettings
from services.schema.errors import HostError, first_error_in_group
from services.transport.epoch_transport import first_epoch_transport
from services.worker.event_runner import ScenarioEventRunner
from services.worker.recoverable_training import RecoverableTraining
from services.worker.runtime import WorkerRuntime
from services.worker.training_position import RecoveryPoints
from services.worker.uninterrupted_training import UninterruptedTraining

KEPT_RECOVERY_POINTS = 2  # workers that wait for each other in every exchange are at most one exchange apart


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
    make_transport = make_transport_factory(plan, worker_plan, node_services, event_runner.slowdowns)
    worker = make_worker(plan, worker_plan, device, node_services, event_runner, make_transport())
    server = (
        make_first_server(plan, worker_plan, make_transport(), node_services)
        if worker_plan.name in plan.shard_owners
        else None
    )
    core_share = cpu_core_share_log_fields(node_services.measure_core_share())
    log_node_start(node_services.log, **device_log_fields(device), **core_share)
    await worker.gradients.warm_up(worker.phase)
    peers = {*_message_receiver_names(worker), *(server.worker_names if server else ())} - {worker_plan.name}
    await node_services.transport.connect(sorted(peers))
    training_start_s = await node_services.control.join()
    is_back = await _has_joined_again(plan, worker_plan, node_services)
    bytes_before = node_services.read_interface_bytes()
    async with event_runner.run_events(training_start_s, has_joined_again=is_back), _heartbeats(plan, node_services):
        async with asyncio.TaskGroup() as group:
            training_task = group.create_task(_train(plan, worker, node_services))
            server_task = (
                group.create_task(_run_server_in_all_phases(plan, worker_plan, server, node_services, training_task))
                if server
                else None
            )
        worker = training_task.result()
        if not _can_recover(plan):
            await node_services.control.leave(server_task.result() if server_task else worker.final_report)
    tally = worker.counters
    log_node_totals(
        node_services,
        bytes_before,
        steps=tally.steps,
        deadlines=tally.deadlines,
        missed_deadlines=tally.missed_deadlines,
    )


def _can_recover(plan: TrainingPlan) -> bool:
    """Return whether nodes continue from an earlier step after a change of the membership, until they have left."""
    return plan.recovery.is_active and plan.is_synchronous


async def _train(plan: TrainingPlan, worker: WorkerRuntime, services: NodeServices) -> WorkerRuntime:
    """Train, and return the worker at the end: another one if the membership has changed."""
    if not plan.recovery.is_active:
        await worker.train()
        return worker
    follower = _make_membership_follower(plan, worker.node, services)
    if not _can_recover(plan):
        await UninterruptedTraining(worker, follower).train()
        return worker
    pattern = plan.strategy.training_phases().first.describe_worker_exchange()
    capacity = plan.workers if pattern.is_gossip else KEPT_RECOVERY_POINTS
    training = RecoverableTraining(
        worker,
        partial(regroup_worker, plan),
        follower,
        RecoveryPoints(pattern.exchange_period, capacity),
        _make_checkpoints(plan, worker.node, services, worker.algorithm_context.device),
        plan.recovery.on_failure == "restore",
        services.control.leave,
        continues_other_trial=plan.continued is not None and not plan.continued.is_attempt,
    )
    return await training.train()


def _make_checkpoints(
    plan: TrainingPlan, node: NodePlan, services: NodeServices, device: ComputeDevice
) -> NodeCheckpoints | None:
    """Return the checkpoints of a node; None if the trial writes none."""
    if plan.recovery.checkpoint is None:
        return None
    return NodeCheckpoints(
        CheckpointFolder(require_checkpoint_folder(services.trial_folder)),
        plan.sha256,
        plan.trial,
        node.name,
        _make_checkpoint_schedule(plan, node, services, plan.recovery.checkpoint),
        plan.first_step,
        device,
        services.membership,
        services.clock,
        services.log,
        services.disk,
    )


def _make_checkpoint_schedule(
    plan: TrainingPlan, node: NodePlan, services: NodeServices, checkpoint: CheckpointSettings
) -> CheckpointSchedule:
    if checkpoint.interval is None:
        assert checkpoint.steps is not None  # noqa: S101 - a scenario with neither key is rejected
        return StepSchedule(checkpoint.steps)
    return IntervalSchedule(
        checkpoint.interval, plan.exchange_period, plan.steps, node.name, services.membership, services.clock
    )


def _make_membership_follower(plan: TrainingPlan, node: NodePlan, services: NodeServices) -> MembershipFollower:
    is_server = node.role == "ps_shard"
    return MembershipFollower(
        node.name, is_server, services.membership, services.clock, services.log, plan.loss_announcement_timeout_s
    )


async def _has_joined_again(plan: TrainingPlan, node: NodePlan, services: NodeServices) -> bool:
    """Return whether a node that has just joined the run was lost before, and started again.

    The membership with which it begins names it, until it has agreed with the other nodes on a step.
    """
    if not plan.recovery.restarts_workers:
        return False
    return node.name in (await services.membership.await_membership(-1)).joined


@asynccontextmanager
async def _heartbeats(plan: TrainingPlan, services: NodeServices) -> AsyncIterator[None]:
    """Send heartbeats during the `async with` block, if the trial can go on without a lost node."""
    if not plan.recovery.is_active:
        yield
        return
    async with asyncio.TaskGroup() as group:
        sender = group.create_task(_send_heartbeats(plan.recovery.heartbeat_interval_s, services))
        yield
        sender.cancel()


async def _send_heartbeats(interval_s: float, services: NodeServices) -> None:
    while True:
        await services.membership.send_heartbeat()
        await services.clock.sleep_until(services.clock.now() + interval_s)


def _message_receiver_names(worker: WorkerRuntime) -> tuple[str, ...]:
    """Return the names of the nodes to which a worker sends messages before or after a strategy switch."""
    strategy_switch = worker.strategy_switch
    algorithms = [worker.current_algorithm, *([strategy_switch.algorithm_after] if strategy_switch else ())]
    names = [name for algorithm in algorithms for name in algorithm.receiver_names]
    return tuple(dict.fromkeys([*names, *(worker.balancer.receiver_names if worker.balancer else ())]))


async def run_parameter_server(plan: TrainingPlan, node: NodePlan, node_services: NodeServices) -> None:
    """Run a parameter server that has its own process, from start to end."""
    transport = first_epoch_transport(node_services.transport, plan.recovery)
    server = make_first_server(plan, node, transport, node_services)
    log_node_start(node_services.log, device="cpu", device_reason="servers sum in host memory")
    await node_services.transport.connect(server.worker_names)
    training_start_s = await node_services.control.join()
    is_back = await _has_joined_again(plan, node, node_services)
    bytes_before = node_services.read_interface_bytes()
    events = _make_scenario_event_runner(plan, node, node_services)
    async with events.run_events(training_start_s, has_joined_again=is_back), _heartbeats(plan, node_services):
        final_message = await _run_server_in_all_phases(plan, node, server, node_services)
    update_seconds = round(node_services.update_time.seconds, 6)
    log_node_totals(node_services, bytes_before, deadlines=0, missed_deadlines=0, update_seconds=update_seconds)
    if not _can_recover(plan):
        await node_services.control.leave(final_message)


async def _run_server_in_all_phases(
    plan: TrainingPlan, node: NodePlan, server: ServerRuntime, services: NodeServices, *worker_tasks: asyncio.Task[Any]
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
    if switch and plan.second_phase:
        switching_server = make_switching_server(plan, node, services, switch, plan.second_phase, server, worker_tasks)
        if plan.recovery.is_active:
            return await _serve_with_switch(plan, node, switching_server, services)
        await switching_server.serve_and_switch_strategy()
        return switching_server.server.final_shard_state
    if plan.recovery.is_active:
        follower = _make_membership_follower(plan, node, services)
        if not _can_recover(plan):
            await follower.begin()
            await EvictingServing(server, follower).serve()
            return server.final_shard_state
        regroup = partial(regroup_server, plan, node, services)
        checkpoints = _make_checkpoints(plan, node, services, select_compute_device("cpu"))
        restores = plan.recovery.on_failure == "restore"
        serving = RecoverableServing(
            server, regroup, follower, plan.exchange_period, checkpoints, restores, services.control.leave
        )
        return (await serving.serve()).final_shard_state
    await server.serve_workers()
    return server.final_shard_state


async def _serve_with_switch(
    plan: TrainingPlan, node: NodePlan, switching_server: StrategySwitchingServer, services: NodeServices
) -> FinalNodeReport:
    """Run a server from a strategy switch to the end of a run that goes on without lost workers; leave the run."""
    regroup = partial(regroup_switching_server, plan, node, services)
    follower = _make_membership_follower(plan, node, services)
    serving = RecoverableSwitchServing(switching_server, regroup, follower, services.control.leave)
    return (await serving.serve()).final_shard_state


def _make_scenario_event_runner(plan: TrainingPlan, node: NodePlan, node_services: NodeServices) -> ScenarioEventRunner:
    return ScenarioEventRunner(
        plan,
        node,
        node_services.control,
        node_services.clock,
        node_services.log,
        node_services.link_conditions,
        node_services.corruptor,
        node_services.drop_connections,
        node_services.disk,
    )
