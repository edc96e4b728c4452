"""TensorFlow's ReductionToOneDevice, an all-reduce through rank 0.

Rank 0 sums the vectors of all ranks and sends the total to each of them.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt

from services.collectives.base import Collective, NetworkAndModelSizes, Round, Transfer, TransferSchedule


class ReduceToOne(Collective):
    """All-reduce through rank 0, which sums all vectors and broadcasts the total.

    Its link carries all data. If arrays are not fused, rank 0 sends the total of one array while it receives the next,
    as TensorFlow does.
    """

    kind: Literal["reduce_to_one"] = "reduce_to_one"
    closed_form: ClassVar[str] = "2α + (n-1)(S + s)β, s: S if fused, else the largest array; serial: (2n-1)α + 2(n-1)Sβ"

    senders: Literal["concurrent", "serial"] = Field(
        "concurrent",
        description="concurrent: all ranks send to rank 0 at the same time; serial: one after another, each when it "
        "has an empty message (token) from rank 0",
    )
    fused: bool = Field(default=True, description="whether the gradient is one message; else one message per array")
    tensors: tuple[NonNegativeInt, ...] = Field(
        (), description="entries of each array, if arrays are not fused; absent: the arrays of the model"
    )

    @property
    def sums_arrays_separately(self) -> bool:
        return not self.fused

    def fill_in_unset_fields(self, network_and_model_sizes: NetworkAndModelSizes) -> Self:
        return (
            self
            if self.fused or self.tensors
            else self.model_copy(update={"tensors": network_and_model_sizes.array_sizes})
        )

    def find_model_conflict(self, model_array_entry_counts: Sequence[int]) -> tuple[str, str] | None:
        total, model_total = sum(self.tensors), sum(model_array_entry_counts)
        if not self.tensors or total == model_total:
            return None
        reason = (
            f"the sizes in tensors add up to {total}, but the model has {model_total} parameters; write tensors: "
            f"{list(model_array_entry_counts)} (the arrays of the model), or leave out tensors"
        )
        return "tensors", reason

    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        if rank_count == 1:
            return TransferSchedule()
        array_sizes = () if self.fused else self.tensors
        chunk_count = len(array_sizes) or 1
        rounds_of_sums = self._serial_reduce_rounds if self.senders == "serial" else self._concurrent_reduce_rounds
        ranks = range(1, rank_count)
        totals = (tuple(Transfer(0, rank, chunk, chunk + 1, "copy") for rank in ranks) for chunk in range(chunk_count))
        rounds = (*rounds_of_sums(rank_count, chunk_count), *totals)
        return TransferSchedule(chunk_count=chunk_count, chunk_sizes=array_sizes, rounds=rounds)

    def explain_inapplicable_form(self, rank_count: int, message_count: int) -> str:
        if rank_count > 2 and message_count == 1:  # noqa: PLR2004 - two ranks send one vector in each direction
            return (
                "the summed vector is a single message, which ranks receive one after another, so their next vectors "
                "arrive one after another"
            )
        return ""

    def all_reduce_time_s(self, rank_count: int, vector_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
        """Return the run time of the all-reduce in seconds.

        The all-reduce ends when rank 0 has received all vectors and sent the last total (sum). Rank 0 sends the total
        of an array when all ranks have sent it the array, and all earlier totals have left. So the run time is the
        largest sum, over all arrays, of two times: until the array has been received from all ranks, and to send its
        total and all later ones to n-1 ranks.
        """
        others, shares = rank_count - 1, self._vector_share_per_message()
        received = [others * share for share in accumulate(shares)]  # vectors through the link of rank 0
        if self.senders == "serial":
            received = [others - 1 + share for share in accumulate(shares)]
        unsent = [others * (1 - share) for share in accumulate(shares, initial=0.0)]
        vectors = max(before + after for before, after in zip(received, unsent, strict=False)) if others else 0.0
        messages = (2 * others + 1) if self.senders == "serial" else 2
        return (messages * alpha_s if others else 0.0) + vectors * vector_bytes * beta_s_per_byte

    def _vector_share_per_message(self) -> list[float]:
        """Return the size of each message that a rank sends to rank 0, as a share of the whole vector."""
        total = sum(self.tensors)
        return [1.0] if self.fused or not total else [entries / total for entries in self.tensors]

    def _concurrent_reduce_rounds(self, rank_count: int, chunk_count: int) -> Iterator[Round]:
        """Yield one round per chunk, in which all ranks send the chunk to rank 0."""
        for chunk in range(chunk_count):
            yield tuple(Transfer(rank, 0, chunk, chunk + 1, "reduce") for rank in range(1, rank_count))

    def _serial_reduce_rounds(self, rank_count: int, chunk_count: int) -> Iterator[Round]:
        """Yield two rounds per rank, in which the ranks send to rank 0 one after the other.

        First, rank 0 sends an empty message as permission. Then the rank sends all chunks to rank 0.
        """
        for rank in range(1, rank_count):
            yield (Transfer(0, rank, 0, chunk_count, "token"),)
            yield tuple(Transfer(rank, 0, chunk, chunk + 1, "reduce") for chunk in range(chunk_count))
