"""Load balancing of a worker: measures its speed, and changes the shares of a batch together with all other workers."""

from dataclasses import dataclass

from services.collectives.data_exchange.gather_numbers import gather_numbers, gather_target_ranks
from services.collectives.execution.executor import GroupMember
from services.learning.batch_balance import BatchBalance
from services.learning.batch_balance.base import BatchShares, MeasuredSpeeds


@dataclass
class BatchBalancer:
    """Load balancing of one worker in a training phase whose shares may change."""

    balance: BatchBalance
    member: GroupMember  # this worker among all workers
    speed: float = 0.0  # smoothed, in samples per virtual second; 0: not measured yet

    @property
    def receiver_names(self) -> tuple[str, ...]:
        """Names of the workers to which this worker sends speeds."""
        names = self.member.node_names
        return tuple(names[rank] for rank in gather_target_ranks(len(names), self.member.rank))

    def measure_step(self, sample_count: int, compute_s: float) -> None:
        """Add the samples and the compute time of one step to the measured speed."""
        self.speed = self.balance.smooth_speed(self.speed, sample_count, compute_s)

    def is_resize_due(self, step: int) -> bool:
        """Return whether workers exchange their speeds after `step`."""
        return (step + 1) % self.balance.resize_period == 0

    async def exchange_speeds(self, step: int) -> MeasuredSpeeds:
        """Return the measured speeds of all workers, by rank. All workers call this after the same step."""
        return await gather_numbers(self.member, step, self.speed)

    def resize_shares(self, shares: BatchShares, speeds: MeasuredSpeeds) -> BatchShares:
        """Return the shares of a whole batch for the next steps, the same in all workers."""
        return self.balance.resize_shares(shares, speeds)
