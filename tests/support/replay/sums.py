"""Replay of all-reduce: every step is done again by the collective's own executor."""

import asyncio
from math import inf

from replay.base import Model, gradient
from services.cluster.links.fluid_link import RateLimiter
from services.collectives import TransferSchedule
from services.collectives.execution.executor import all_reduce
from services.learning.datasets import TrainTestData
from services.learning.parameter_updater import ParameterUpdater
from services.plan import Plan
from services.runtime.clock import VirtualTimeLoop
from services.schema.arrays import HostArray
from services.strategies import AllReduce
from services.transport.virtual import VirtualFabric


def replay(
    plan: Plan,
    strategy: AllReduce,
    updater: ParameterUpdater,
    schedule: TransferSchedule,
    data: TrainTestData,
    steps: tuple[int, int],
    start_model: Model,
) -> Model:
    """Return the replicas after the steps `steps[0]` to `steps[1] - 1`, started from `start_model`."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_replay_steps(plan, strategy, updater, schedule, data, steps, start_model))


async def _replay_steps(
    plan: Plan,
    strategy: AllReduce,
    updater: ParameterUpdater,
    schedule: TransferSchedule,
    data: TrainTestData,
    steps: tuple[int, int],
    start_model: Model,
) -> Model:
    params, state, version, samples = start_model
    fabric = _fabric(plan)
    for step in range(*steps):
        summands = [_summand(plan, data, params, rank, step) for rank in range(plan.workers)]
        mean = await _all_reduce_sum(fabric, schedule, step, summands, strategy)
        params, state = updater.update_params(params, mean, state, samples)
        version += 1
        samples += plan.data_order.batch_size(step)
    return Model(params, state, version, samples)


def _fabric(plan: Plan) -> VirtualFabric:
    """Return a network whose links take no time: the resulting bits do not depend on time."""
    names = [node.name for node in plan.node_plans_of_role("worker")]
    uplinks, downlinks = ({name: RateLimiter(inf) for name in names} for _ in range(2))
    return VirtualFabric(uplinks, downlinks, plan.timeouts.step)


def _summand(plan: Plan, data: TrainTestData, params: HostArray, rank: int, step: int) -> HostArray:
    """Return a worker's part of the mean over the batch."""
    mean, samples = gradient(plan, data, params, rank, step)
    summand: HostArray = mean * mean.dtype.type(samples / plan.data_order.batch_size(step))
    return summand


async def _all_reduce_sum(
    fabric: VirtualFabric, schedule: TransferSchedule, step: int, summands: list[HostArray], strategy: AllReduce
) -> HostArray:
    """Return the sum that every rank has after the all-reduce."""
    names = list(fabric.mailboxes)
    async with asyncio.TaskGroup() as group:
        for rank, summand in enumerate(summands):
            transport = fabric.make_transport(names[rank])
            group.create_task(all_reduce(transport, names, rank, schedule, step, summand, strategy.compress))
    return summands[0]
