"""Base class of the ways in which workers sum one vector per worker."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from services.collectives import NetworkAndModelSizes, TransferSchedule
from services.collectives.execution.executor import GroupMember
from services.compressors import Compressor, CompressorSeed, CompressorState
from services.runtime.device import ComputeDevice
from services.schema.arrays import HostArray, Vector
from services.strategies.cost_model import CostModel


class Summand(NamedTuple):
    """Vector that a worker contributes to a weighted sum."""

    vector: Vector  # on the worker's device
    weight: float
    host_vector: HostArray | None = None  # copy of the vector in host memory; None: none was made


class SumStage(NamedTuple):
    """One of the sums, one after another, of which a sum of vectors consists."""

    stage_sum: "SingleStageSum"
    entry_count: int  # of the vectors of this stage


@dataclass(frozen=True)
class VectorSum(ABC):
    """Way in which workers sum one vector per worker.

    All workers end with the same bits. Schedule, bytes and closed form are known before a run.
    """

    compressor: Compressor  # number format on the wire

    # Whether the sum is formed in host memory, so that a vector is best copied there while it is computed.
    adds_in_host_memory: ClassVar[bool] = False
    # Whether the error of a sum depends on the size of the vectors, so that workers that average parameters should sum
    # differences to common parameters.
    is_for_differences: ClassVar[bool] = True
    stage_count: ClassVar[int] = 1  # sums, one after another, of which this sum consists

    @abstractmethod
    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        """Return the schedule of all transfers of each stage of a sum over `rank_count` ranks."""

    @abstractmethod
    def sent_bytes_by_rank(self, rank_count: int, entry_count: int, dtype: str) -> tuple[int, ...]:
        """Return the payload bytes that each rank sends to sum vectors with `entry_count` entries of type `dtype`."""

    @abstractmethod
    def stages(self, entry_count: int) -> tuple[SumStage, ...]:
        """Return the stages of a sum of vectors with `entry_count` entries, in their order."""

    def sizes_of_added_vector(
        self,
        model_sizes: NetworkAndModelSizes,
        cost_model: CostModel,  # noqa: ARG002 - most add vectors of the model's size
    ) -> NetworkAndModelSizes:
        """Return the sizes from which a collective computes missing fields: those of the vector that it adds."""
        return model_sizes

    def init_state(self, params: Vector, seed: CompressorSeed) -> CompressorState:
        """Return a worker's state before the first sum of vectors with as many entries as `params`."""
        return self.compressor.init_state(params.size, seed)

    @abstractmethod
    async def add_vectors(
        self,
        member: GroupMember,
        schedule: TransferSchedule,
        number: int,
        summand: Summand,
        compressor_state: CompressorState,
        device: ComputeDevice,
    ) -> tuple[Vector, CompressorState]:
        """Return the weighted sum of the vectors of all workers, and the worker's state for the next sum.

        The sum is in host memory or on the device.

        Args:
            member: this worker among all workers.
            schedule: result of `plan_transfers`.
            number: number of this sum, different for each and equal on all workers.
            summand: vector of this worker.
            compressor_state: the state after the previous sum.
            device: device of this worker.
        """


@dataclass(frozen=True)
class SingleStageSum(VectorSum):
    """Sum of vectors that consists of one collective."""

    @property
    @abstractmethod
    def closed_form(self) -> str:
        """Formula of the seconds of a sum, as text."""

    def stages(self, entry_count: int) -> tuple[SumStage, ...]:
        return (SumStage(self, entry_count),)

    @abstractmethod
    def divided_bytes(self, cost_model: CostModel) -> int:
        """Return the bytes, on the wire, of the vector that the schedule divides into chunks."""

    @abstractmethod
    def transfer_time_s(self, cost_model: CostModel, beta_s_per_byte: float) -> float:
        """Return the seconds of a sum by the closed form with a latency of 0.

        `beta_s_per_byte` are the effective seconds per byte of the links under the schedule.
        """

    @abstractmethod
    def latency_hidden_by_transfer_s(
        self, cost_model: CostModel, piece_bytes: float, data_transfer_s: float, path_latency_s: float
    ) -> float:
        """Return the seconds of message latency that overlap with the transfer of other pieces of `piece_bytes`.

        The other arguments are the seconds of the transfer without latency, and the latency of the longest chain of
        transfers.
        """

    def explain_inapplicable_form(self, rank_count: int, message_count: int) -> str:  # noqa: ARG002 - most closed forms are exact
        """Return why the closed form does not describe a sum even over equal ranks and links.

        Return an empty text if it does. The divided vector is cut into `message_count` messages.
        """
        return ""
