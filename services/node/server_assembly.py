"""Construction of the server of a shard of the parameter vector."""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Any

from services.compressors import CompressorSeed, fit_to_range
from services.node.node_services import NodeServices
from services.parameter_server.server_state import ServerState
from services.parameter_server.update_rules import UpdateRule
from services.plan import NodePlan, TrainingPlan
from services.plan.training.phase_plans import PostSwitchPhasePlan
from services.plan.training.regrouping import regroup_plan
from services.ps_shard.machine import ShardStateMachine
from services.ps_shard.runtime import ServerRuntime
from services.ps_shard.strategy_switch import StrategySwitchingServer
from services.runtime.membership import Membership
from services.runtime.run_log import UPDATE_COLUMNS, LogEventBatch
from services.runtime.transport import Transport
from services.schema.errors import ProtocolError
from services.strategies import SinglePhaseStrategy
from services.strategies.switching.state_transfer import StrategySwitchTimeout
from services.strategies.switching.switch import TrainingPhaseSwitch
from services.transport.epoch_transport import begin_membership_epoch


def make_first_server(
    plan: TrainingPlan, node: NodePlan, transport: Transport, node_services: NodeServices
) -> ServerRuntime:
    """Return the server of a node's shard for the first training phase with servers.

    The server starts with the initial parameters.
    """
    phase = plan.strategy.training_phases().first_phase_with_servers
    if phase is None:
        raise ProtocolError(f"strategy {plan.strategy.kind} has no servers")
    update_rule = make_first_update_rule(plan, node, phase)
    return make_shard_server(plan, node, transport, node_services, phase, update_rule)


def make_first_update_rule(plan: TrainingPlan, node: NodePlan, phase: SinglePhaseStrategy) -> UpdateRule:
    """Return the update rule of a node's shard with the initial parameters.

    Raises:
        ProtocolError: the node owns no shard.
    """
    algorithm = phase.server_algorithm()
    if algorithm is None or node.name not in plan.shard_owners:
        raise ProtocolError(f"strategy {plan.strategy.kind} assigns no shard of the parameter vector to {node.name}")
    shard = plan.shards[plan.shard_owners.index(node.name)]
    params = shard.view(plan.model.init_parameters(plan.dataset.describe().task, plan.seed, plan.dtype))
    return algorithm.make_update_rule(plan.make_parameter_updater(plan.optimiser), params, plan.workers)


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
            algorithm.synchroniser.for_later_shards() if shard_number else algorithm.synchroniser,
            algorithm.staleness_weighting,
            prior_update_count,
            prior_sample_count,
            sample_budget=None if is_synchronous else plan.sample_budget,
            # Only the first server, whose counts decide when workers stop: servers that hold the replies to each
            # other's workers would wait for ever.
            holds_last_replies=plan.recovery.changes_membership and shard_number == 0,
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


def regroup_server(
    plan: TrainingPlan,
    node: NodePlan,
    services: NodeServices,
    server: ServerRuntime,
    membership: Membership,
    state: ServerState,
    first_step: int,
) -> ServerRuntime:
    """Return a server that continues with the workers of a new membership epoch.

    Args:
        plan: plan of the trial, with all its workers.
        node: plan of the server's node.
        services: interfaces of the node to its environment.
        server: the server of the epoch before.
        membership: workers of the new epoch.
        state: state of the server from which it continues.
        first_step: next step of all workers.
    """
    group_plan = regroup_plan(plan, membership.workers)
    regrouped = make_first_server(group_plan, node, _begin_epoch(server, membership), services)
    regrouped.restore_state(state)
    regrouped.next_steps = dict.fromkeys(range(group_plan.workers), first_step)
    return regrouped


def make_switching_server(
    plan: TrainingPlan,
    node: NodePlan,
    services: NodeServices,
    switch: TrainingPhaseSwitch,
    second_phase: PostSwitchPhasePlan,
    server: ServerRuntime,
    worker_tasks: Collection[asyncio.Task[Any]] = (),
    epoch: int = 0,
) -> StrategySwitchingServer:
    """Return the server of a node's shard that takes part in a strategy switch.

    Args:
        plan: plan of the trial, or of the workers of a later membership epoch.
        node: plan of the node that owns the shard.
        services: interfaces of the node to its environment.
        switch: the strategy switch.
        second_phase: plan of the second training phase.
        server: the server of the first phase that has servers.
        worker_tasks: training task of the worker in the same process, if there is one.
        epoch: number of the membership epoch.
    """
    return StrategySwitchingServer(
        node.name,
        switch,
        plan.make_parameter_updater(second_phase.optimiser),
        server,
        plan.shard_owners,
        partial(make_shard_server, plan, node, server.transport, services),
        services.control,
        StrategySwitchTimeout(services.clock, plan.timeouts.step),
        worker_tasks,
        epoch,
        plan.loss_announcement_timeout_s,
    )


def regroup_switching_server(
    plan: TrainingPlan,
    node: NodePlan,
    services: NodeServices,
    switching_server: StrategySwitchingServer,
    membership: Membership,
) -> StrategySwitchingServer:
    """Return a server without a state that waits for a strategy switch with the workers of a new membership epoch.

    Raises:
        ProtocolError: the plan has no second training phase.
    """
    group_plan, switch = regroup_plan(plan, membership.workers), switching_server.switch
    if group_plan.second_phase is None:
        raise ProtocolError(f"strategy {plan.strategy.kind} has one training phase only")
    server = make_first_server(group_plan, node, _begin_epoch(switching_server.server, membership), services)
    return make_switching_server(
        group_plan, node, services, switch, group_plan.second_phase, server, epoch=membership.epoch
    )


def _begin_epoch(server: ServerRuntime, membership: Membership) -> Transport:
    """Return the transport with which a server continues in a new membership epoch."""
    lost = {*server.worker_names, *membership.joined} - set(membership.continuing_workers)
    return begin_membership_epoch(server.transport, membership.epoch, lost, membership.joined)


def _count_first_push_samples(
    plan: TrainingPlan, gradient_worker_count: int, steps_per_exchange: int
) -> dict[int, int]:
    """Return the number of samples in each worker's first push, by rank.

    The last batch of an epoch may be smaller.
    """
    weights, sizes = plan.initial_shares[:gradient_worker_count], plan.data_order.share_sizes
    shares_by_rank = zip(*(sizes(step, weights) for step in range(steps_per_exchange)), strict=True)
    return {rank: sum(shares) for rank, shares in enumerate(shares_by_rank)}
