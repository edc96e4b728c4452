"""Equal shares of a batch."""

from typing import ClassVar, Literal

from services.learning.batch_balance.base import BatchBalance, BatchShares, DeclaredSpeeds


class UniformBalance(BatchBalance):
    """Equal shares, whatever the speeds of the workers: a synchronous step takes as long as on the slowest worker."""

    has_equal_shares: ClassVar[bool] = True

    kind: Literal["uniform"] = "uniform"

    def initial_shares(self, batch: int, declared_speeds: DeclaredSpeeds) -> BatchShares:  # noqa: ARG002 - equal weights fit every batch
        return (1,) * len(declared_speeds)
