"""Replays gradients that workers add up among themselves: every step again, by the collective's own executor."""

import asyncio
from math import inf

from replay.base import Model, gradient
from services.cluster.links.fluid_link import RateLimiter
from services.collectives import TransferSchedule
from services.collectives.execution.executor import all_reduce
from services.learning.datasets import TrainTestData
from services.learning.optimisers import AnyOptimiser
from services.plan import Plan
from services.runtime.clock import VirtualTimeLoop
from services.schema.arrays import HostArray
from services.strategies import AllReduce
from services.transport.virtual import VirtualFabric


def replay(
    plan: Plan,
    strategy: AllReduce,
    optimiser: AnyOptimiser,
    schedule: TransferSchedule,
    data: TrainTestData,
    steps: tuple[int, int],
    begins: Model,
) -> Model:
    """Where replicas are that begin with `begins` and do the steps from the first one to before the second."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_steps(plan, strategy, optimiser, schedule, data, steps, begins))


async def _steps(
    plan: Plan,
    strategy: AllReduce,
    optimiser: AnyOptimiser,
    schedule: TransferSchedule,
    data: TrainTestData,
    steps: tuple[int, int],
    begins: Model,
) -> Model:
    params, state, version = begins
    fabric = _fabric(plan)
    for step in range(*steps):
        summands = [_summand(plan, data, params, rank, step) for rank in range(plan.workers)]
        mean = await _sum(fabric, schedule, step, summands, strategy)
        params, state = optimiser.update_params(params, mean, state)
        version += 1
    return Model(params, state, version)


def _fabric(plan: Plan) -> VirtualFabric:
    """Links that take no time: bits do not depend on them."""
    names = [node.name for node in plan.node_plans_of_role("worker")]
    uplinks, downlinks = ({name: RateLimiter(inf) for name in names} for _ in range(2))
    return VirtualFabric(uplinks, downlinks, plan.timeouts.step)


def _summand(plan: Plan, data: TrainTestData, params: HostArray, rank: int, step: int) -> HostArray:
    """A worker's part of the mean over the batch."""
    mean, samples = gradient(plan, data, params, rank, step)
    summand: HostArray = mean * mean.dtype.type(samples / len(plan.data_order.batch_sample_indices(step)))
    return summand


async def _sum(
    fabric: VirtualFabric, schedule: TransferSchedule, step: int, summands: list[HostArray], strategy: AllReduce
) -> HostArray:
    """What every rank ends with."""
    names = list(fabric.mailboxes)
    async with asyncio.TaskGroup() as group:
        for rank, summand in enumerate(summands):
            transport = fabric.make_transport(names[rank])
            group.create_task(all_reduce(transport, names, rank, schedule, step, summand, strategy.compress))
    return summands[0]
