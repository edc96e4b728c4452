"""Construction of the server of a shard of the parameter vector."""

from services.compressors import CompressorSeed, fit_to_range
from services.node.node_services import NodeServices
from services.parameter_server.server_state import ServerState
from services.parameter_server.update_rules import UpdateRule
from services.plan import NodePlan, TrainingPlan
from services.plan.training.regrouping import regroup_plan
from services.ps_shard.machine import ShardStateMachine
from services.ps_shard.runtime import ServerRuntime
from services.runtime.membership import Membership
from services.runtime.run_log import UPDATE_COLUMNS, LogEventBatch
from services.runtime.transport import Transport
from services.schema.errors import ProtocolError
from services.strategies import SinglePhaseStrategy
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
            algorithm.synchroniser,
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
    lost = {*server.worker_names, *membership.joined} - set(membership.continuing_workers)
    transport = begin_membership_epoch(server.transport, membership.epoch, lost, membership.joined)
    group_plan, strategy = regroup_plan(plan, membership.workers), plan.strategy.training_phases().first
    update_rule = make_first_update_rule(group_plan, node, strategy)
    regrouped = make_shard_server(group_plan, node, transport, services, strategy, update_rule)
    regrouped.restore_state(state)
    regrouped.next_steps = dict.fromkeys(range(group_plan.workers), first_step)
    return regrouped


def _count_first_push_samples(
    plan: TrainingPlan, gradient_worker_count: int, steps_per_exchange: int
) -> dict[int, int]:
    """Return the number of samples in each worker's first push, by rank.

    The last batch of an epoch may be smaller.
    """
    weights, sizes = plan.initial_shares[:gradient_worker_count], plan.data_order.share_sizes
    shares_by_rank = zip(*(sizes(step, weights) for step in range(steps_per_exchange)), strict=True)
    return {rank: sum(shares) for rank, shares in enumerate(shares_by_rank)}
