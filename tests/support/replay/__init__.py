"""Does the order of arrival explain a result? Computes a run again from its plan and the logs of its servers.

What an asynchronous server holds depends on nothing but the seed and on who came when. The log has that: which pushes
went into each update, and how old each was. The replay computes every gradient from the parameters that its worker had
and lets the servers' own rules make the updates; the result must be the same bits. `pushes` replays gradients that are
pushed, `sums` those that are added up among workers, `elastic` parameters that worker and centre exchange; across a
switch one goes on from where the other ended.
"""

from collections.abc import Sequence
from math import inf

from replay import elastic, pushes, sums
from replay.base import Arrivals, Course, Model
from services.collectives import TransferSchedule
from services.learning.datasets import TrainTestData
from services.learning.optimisers import AnyOptimiser
from services.plan import Plan
from services.schema.arrays import HostArray
from services.schema.errors import UserError
from services.strategies import AllReduce, Easgd, ParameterServer, SinglePhaseStrategy

__all__ = ["Arrivals", "Course", "replay"]


def replay(plan: Plan, arrivals: Sequence[Arrivals], course: Course) -> HostArray:
    """The parameters, shape (parameters,), that a run must have ended with; `arrivals` are by shard.

    Raises:
        UserError: `none` and `local_sgd`, or a number format that remembers what it has sent.
        ProtocolError: the logs contradict themselves.
    """
    strategy, data = plan.strategy, plan.dataset.load(plan.dtype)
    phases = strategy.training_phases()
    compressor, switch = phases.first.training_properties().compressor, phases.switch
    if compressor.init_state(1) is not None:
        raise UserError(f"{compressor.kind} remembers what it has sent, which replays do not follow")
    params = plan.model.init_parameters(data.task, plan.seed, plan.dtype)
    first = Model(params, plan.optimiser.init_state(params))
    if isinstance(strategy, Easgd):
        return elastic.replay(plan, strategy, data, arrivals, course.ends, params)
    if switch is None or plan.second_phase is None:
        return _part(
            plan, phases.first, plan.optimiser, plan.schedule, data, arrivals, (0, max(course.ends)), first
        ).params
    end = max(course.ends) if course.switched is None else course.switched
    told = [each.between(-inf, inf if course.switched is None else end) for each in arrivals]
    reached = _part(plan, switch.first, plan.optimiser, plan.schedule, data, told, (0, end), first)
    if course.switched is None:
        return reached.params
    after, told = plan.second_phase, [each.between(end, inf) for each in arrivals]
    begins = reached._replace(state=switch.optimiser_state_after_switch(after.optimiser, reached.params, reached.state))
    steps = (end, max(course.ends))
    return _part(plan, switch.second, after.optimiser, after.schedule, data, told, steps, begins).params


def _part(
    plan: Plan,
    strategy: SinglePhaseStrategy,
    optimiser: AnyOptimiser,
    schedule: TransferSchedule,
    data: TrainTestData,
    arrivals: Sequence[Arrivals],
    steps: tuple[int, int],
    begins: Model,
) -> Model:
    """Where one strategy of a run ends, which begins with `begins` and does these steps: a first one and an end."""
    if isinstance(strategy, ParameterServer):
        return pushes.replay(plan, strategy, optimiser, data, arrivals, begins)
    if isinstance(strategy, AllReduce):
        return sums.replay(plan, strategy, optimiser, schedule, data, steps, begins)
    raise UserError(
        f"{strategy.kind} can't be replayed; all_reduce, parameter_server, easgd and switches between the first two "
        "can be"
    )
