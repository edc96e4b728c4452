"""TensorFlow's ReductionToOneDevice: rank 0 sums all vectors and sends the total to everybody."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt

from services.collectives.base import Collective, Round, Schedule, Site, Transfer


class ReduceToOne(Collective):
    """Everything passes the link of rank 0, once in each direction.

    Tensor by tensor, the total of the first is sent while the next is received; TensorFlow fuses none.
    """

    kind: Literal["reduce_to_one"] = "reduce_to_one"
    closed_form: ClassVar[str] = "2α + (n-1)(S + s)β, s: S if fused, else the largest array; serial: (2n-1)α + 2(n-1)Sβ"

    senders: Literal["concurrent", "serial"] = Field(
        "concurrent", description="serial: one rank sends at a time, when rank 0 hands it a token"
    )
    fused: bool = Field(default=True, description="the whole gradient in one message; or a message per array")
    tensors: tuple[NonNegativeInt, ...] = Field(
        (), description="entries of each array, where they are not fused; those of the model when absent"
    )

    def settled(self, site: Site) -> Self:
        return self if self.fused or self.tensors else self.model_copy(update={"tensors": site.tensors})

    def conflict(self, arrays: Sequence[int]) -> tuple[str, str] | None:
        if not self.tensors or sum(self.tensors) == sum(arrays):
            return None
        own = ", ".join(map(str, arrays))
        return "tensors", f"{sum(self.tensors)} entries, and the model has {sum(arrays)}, in arrays of {own}"

    def schedule(self, ranks: int) -> Schedule:
        if ranks == 1:
            return Schedule()
        tensors = () if self.fused else self.tensors
        parts = len(tensors) or 1
        sums = self._in_turn(ranks, parts) if self.senders == "serial" else self._at_once(ranks, parts)
        totals = (tuple(Transfer(0, rank, k, k + 1, "copies") for rank in range(1, ranks)) for k in range(parts))
        return Schedule(parts=parts, tensors=tensors, rounds=(*sums, *totals))

    def seconds(self, ranks: int, size_bytes: float, alpha_s: float, beta_s: float) -> float:
        """A tensor's total leaves when the tensor has come from everybody and the totals before it have left.

        That makes the latest, over all tensors, of: what has come with it, then it and all behind it to n-1 ranks.
        """
        others, shares = ranks - 1, self._shares()
        come = [others * share for share in accumulate(shares)]
        if self.senders == "serial":
            come = [others - 1 + share for share in accumulate(shares)]
        left = [others * (1 - share) for share in accumulate(shares, initial=0.0)]
        moved = max(there + back for there, back in zip(come, left, strict=False)) if others else 0.0
        waits = (2 * others + 1) if self.senders == "serial" else 2
        return (waits * alpha_s if others else 0.0) + moved * size_bytes * beta_s

    def _shares(self) -> list[float]:
        """Which part of the vector each message holds."""
        whole = sum(self.tensors)
        return [1.0] if self.fused or not whole else [entries / whole for entries in self.tensors]

    def _at_once(self, ranks: int, parts: int) -> Iterator[Round]:
        for k in range(parts):
            yield tuple(Transfer(rank, 0, k, k + 1, "adds") for rank in range(1, ranks))

    def _in_turn(self, ranks: int, parts: int) -> Iterator[Round]:
        for rank in range(1, ranks):
            yield (Transfer(0, rank, 0, parts, "allows"),)
            yield tuple(Transfer(rank, 0, k, k + 1, "adds") for k in range(parts))
