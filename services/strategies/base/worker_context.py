"""Resources of a worker, and the gradient and the result of one of its steps."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from services.collectives.base import TransferSchedule
from services.collectives.execution.executor import GroupMember
from services.compressors import CompressorSeed
from services.learning.layout import VectorRange
from services.learning.parameter_updater import ParameterUpdater
from services.runtime.device import ComputeDevice
from services.runtime.transport import Transport
from services.schema.arrays import HostArray, Vector
from services.strategies.overlap import BucketReduction

WorkerState: TypeAlias = Any  # state of a worker algorithm between steps


@dataclass(frozen=True)
class Gradient:
    """The mean gradient over a worker's share of the batch."""

    mean: Vector  # shape (n,), on the device
    samples: int  # in the share; 0 is possible in the last batch of an epoch
    samples_before: int  # of all workers, used before this step if all workers do the same number of steps
    host_mean: HostArray | None = None  # copy that was made during the backward pass; None: none was made
    reduction: BucketReduction | None = None  # sum over all workers, which began during the backward pass

    def to_host(self, device: ComputeDevice) -> HostArray:
        """Return the mean gradient in host memory, without a copy if it is already there."""
        return device.to_host(self.mean) if self.host_mean is None else self.host_mean


@dataclass(frozen=True)
class WorkerContext:
    """Resources of one worker that its worker algorithm uses.

    The resources are rank, node names, shards, updater, device and transport.
    """

    rank: int
    workers: Sequence[str]  # node names by rank
    shard_owners: Sequence[str]  # names of the nodes that own a shard, by shard; a worker may be one of them
    shards: Sequence[VectorRange]  # of the parameter vector
    schedule: TransferSchedule  # of the collective
    updater: ParameterUpdater  # of the whole parameter vector
    device: ComputeDevice
    transport: Transport
    batch_size: Callable[[int], int]  # samples of all workers in a step
    seed: int = 0  # of the trial

    @property
    def group_member(self) -> GroupMember:
        """This worker in the group of all workers, which runs collectives."""
        return GroupMember(self.transport, self.workers, self.rank)

    @property
    def other_workers(self) -> tuple[str, ...]:
        """Names of all workers but this one, by rank."""
        return tuple(name for rank, name in enumerate(self.workers) if rank != self.rank)

    @property
    def compressor_seed(self) -> CompressorSeed:
        """Seed of the random numbers with which this worker compresses whole vectors."""
        return CompressorSeed(self.seed, self.rank)


@dataclass(frozen=True)
class StepResult:
    """Result of a training step in one worker.

    The result consists of the worker's parameters, the state of its algorithm, and sample counts.
    """

    params: Vector
    state: WorkerState
    staleness: float | None = None  # updates by other workers between reading the parameters and updating them
    samples: int = 0  # of all workers, in the parameters so far; 0: this worker does not know
    pending_samples: int | None = None  # of other workers, not in the parameters yet; None: this worker does not know
    eval_params: Vector | None = None  # the parameters to evaluate, where they differ from `params`
    # Where layers begin the next forward pass when their own parameters are there: ends of the forward pass, given its
    # duration in seconds. None: the forward pass begins after this step.
    end_of_next_forward_s: Callable[[float], float] | None = None
    # Exchange by which all workers compute the mean of their parameters (`eval_params`, or else `params`) before an
    # evaluation, with the context of the worker at this time. None: no exchange is needed.
    average_params: Callable[["WorkerContext"], Awaitable[Vector]] | None = None
