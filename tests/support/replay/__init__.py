"""Replay of a run: compute its final parameters again from its plan and the logs of its servers.

The parameters of an asynchronous server depend only on the seed and on the order in which pushes arrive. The log has
this order: which pushes each update used, and how stale each was. The replay computes every gradient from the
parameters that its worker had read, and applies the update rules of the servers; the result must be bitwise equal.
`pushes` replays pushed gradients, `sums` gradients of an all-reduce, `elastic` the parameters that workers exchange
with the centre. Across a strategy switch, the second replay starts from the result of the first.
"""

from collections.abc import Sequence
from math import inf

from replay import elastic, pushes, sums
from replay.base import Model, ShardArrivals, TrialProgress
from services.collectives import TransferSchedule
from services.compressors import CompressorSeed, IdentityCompressor
from services.learning.datasets import TrainTestData
from services.learning.parameter_updater import ParameterUpdater
from services.plan import Plan
from services.schema.arrays import HostArray
from services.schema.errors import UserError
from services.strategies import AllReduce, Easgd, ParameterServer, SinglePhaseStrategy

__all__ = ["ShardArrivals", "TrialProgress", "replay"]


def replay(plan: Plan, arrivals: Sequence[ShardArrivals], progress: TrialProgress) -> HostArray:
    """Return the expected final parameters of a run, shape (parameters,); `arrivals` has one item per shard.

    Raises:
        UserError: the strategy is `none` or `local_sgd`, its compressor has a state, or replies are compressed.
        ProtocolError: the logs contradict themselves.
    """
    strategy, data = plan.strategy, plan.dataset.load(plan.dtype)
    phases = strategy.training_phases()
    compressor, switch = phases.first.describe_worker_exchange().compressor, phases.switch
    if compressor.init_state(1, CompressorSeed()) is not None:
        raise UserError(f"{compressor.kind} remembers what it has sent, which replays do not follow")
    servers = [phase.server_algorithm() for phase in phases]
    if any(algorithm and algorithm.reply_compressor != IdentityCompressor() for algorithm in servers):
        raise UserError("compressed replies depend on all earlier replies to a worker, which replays do not follow")
    initial_params = plan.model.init_parameters(data.task, plan.seed, plan.dtype)
    initial_model = Model(initial_params, plan.optimiser.init_state(initial_params))
    updater = plan.make_parameter_updater(plan.optimiser)
    if isinstance(strategy, Easgd):
        return elastic.replay(plan, strategy, data, arrivals, progress.end_steps, initial_params)
    if switch is None or plan.second_phase is None:
        steps = (0, max(progress.end_steps))
        return _replay_phase(plan, phases.first, updater, plan.schedule, data, arrivals, steps, initial_model).params
    switch_step = progress.switch_step
    end = max(progress.end_steps) if switch_step is None else switch_step
    first_arrivals = [shard.between(-inf, inf if switch_step is None else end) for shard in arrivals]
    reached = _replay_phase(plan, switch.first, updater, plan.schedule, data, first_arrivals, (0, end), initial_model)
    if switch_step is None:
        return reached.params
    after, second_arrivals = plan.second_phase, [shard.between(end, inf) for shard in arrivals]
    optimiser_state = switch.optimiser_state_after_switch(after.optimiser, reached.params, reached.state)
    start_model, steps = reached._replace(state=optimiser_state), (end, max(progress.end_steps))
    updater_after = plan.make_parameter_updater(after.optimiser)
    return _replay_phase(
        plan, switch.second, updater_after, after.schedule, data, second_arrivals, steps, start_model
    ).params


def _replay_phase(
    plan: Plan,
    strategy: SinglePhaseStrategy,
    updater: ParameterUpdater,
    schedule: TransferSchedule,
    data: TrainTestData,
    arrivals: Sequence[ShardArrivals],
    steps: tuple[int, int],
    start_model: Model,
) -> Model:
    """Return the model after one phase that starts from `start_model`; `steps` is its first step and its end step."""
    if isinstance(strategy, ParameterServer):
        return pushes.replay(plan, strategy, updater, data, arrivals, start_model)
    if isinstance(strategy, AllReduce):
        return sums.replay(plan, strategy, updater, schedule, data, steps, start_model)
    raise UserError(
        f"{strategy.kind} can't be replayed; all_reduce, parameter_server, easgd and switches between the first two "
        "can be"
    )
