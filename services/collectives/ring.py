"""Ring all-reduce, in which every chunk of the vector passes the ring twice.

Reference: Patarasuk & Yuan, J. Parallel Distrib. Comput. 69, 2009.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from services.collectives.base import Collective, NetworkAndModelSizes, Round, Transfer, TransferKind, TransferSchedule
from services.collectives.recursive_doubling import RecursiveDoubling
from services.schema.conflicts import KeyConflict, raise_conflicts
from services.schema.units import Bytes


class Ring(Collective):
    """All-reduce as a reduce-scatter and an all-gather along the same ring, both pipelined.

    The sum of chunk k starts at position k of the ring. Every rank sends 2(n-1)/n of the vector in 2(n-1) messages, for
    every n: no other algorithm moves fewer bytes.
    """

    kind: Literal["ring"] = "ring"
    closed_form: ClassVar[str] = "2(n-1)(α + S/n·β)"

    stride: PositiveInt = Field(
        1,
        description="difference between the ranks of neighbours in the ring; with the size of a rack, every hop leaves "
        "the rack",
    )
    order: Literal["ranks", "racks"] = Field(
        "ranks",
        description="ranks: in the order of their numbers; racks: rack by rack (or region by region), so that one hop "
        "leaves each rack",
    )
    sequence: tuple[NonNegativeInt, ...] = Field(
        (), description="ranks in the order of the ring; absent: defined by order and stride"
    )
    small: Bytes | None = Field(None, description="vectors up to this size use recursive_doubling; absent: none")

    @model_validator(mode="after")
    def _reject_ring_conflicts(self) -> Self:
        raise_conflicts(self._find_field_conflicts())
        return self

    def _find_field_conflicts(self) -> Iterator[KeyConflict]:
        if self.stride > 1 and (self.order == "racks" or self.sequence):
            yield KeyConflict(("stride",), "stride already defines the order of the ranks; remove order and sequence")

    def unsupported_rank_count_reason(self, rank_count: int) -> str | None:
        if not self.sequence or sorted(self.sequence) == list(range(rank_count)):
            return None
        declared = list(self.sequence)
        return f"sequence of {self.kind} must list the ranks 0 to {rank_count - 1}, each once; it is {declared}"

    def fill_in_unset_fields(self, network_and_model_sizes: NetworkAndModelSizes) -> Self:
        if self.order == "ranks" or self.sequence:
            return self
        return self.model_copy(
            update={"sequence": tuple(rank for rack in network_and_model_sizes.racks for rank in rack)}
        )

    def list_auto_candidates(self, network_and_model_sizes: NetworkAndModelSizes) -> tuple[Collective, ...]:
        """Return recursive doubling for small vectors, else this ring.

        A vector is small if it has at most `small` bytes. The plan records the choice.
        """
        is_small = self.small is not None and network_and_model_sizes.vector_bytes <= self.small
        return ((RecursiveDoubling() if is_small else self).fill_in_unset_fields(network_and_model_sizes),)

    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        rank_order = self.sequence or sorted(range(rank_count), key=lambda rank: (rank % self.stride, rank))
        return TransferSchedule(chunk_count=rank_count, rounds=tuple(make_ring_rounds(rank_order)), is_pipelined=True)

    def all_reduce_time_s(self, rank_count: int, vector_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
        """Return the run time of the all-reduce in seconds.

        An all-reduce over n ranks has 2(n-1) rounds. Every rank sends 1/n of the vector per round.
        """
        return 2 * (rank_count - 1) * (alpha_s + vector_bytes / rank_count * beta_s_per_byte)

    def latency_hidden_by_transfer_s(
        self, rank_count: int, vector_bytes: float, piece_bytes: float, data_transfer_s: float, path_latency_s: float
    ) -> float:
        """Return the seconds during which message latency and data transfer overlap.

        The overlap is at most the shorter of the two times. It is (1 - 1/m)·min(latency, (1 - s/c)·transfer) with m =
        2(n-1) hops, and pieces of s in chunks of c bytes. Over short distances, links are idle for one latency only.
        Over long ones, they are busy for one piece per hop.
        """
        if rank_count == 1:
            return 0.0
        piece_share = min(1.0, piece_bytes * rank_count / vector_bytes)
        return (1 - 1 / (2 * (rank_count - 1))) * min(path_latency_s, (1 - piece_share) * data_transfer_s)


def make_ring_rounds(rank_order: Sequence[int], first_chunk_number: int = 0) -> Iterator[Round]:
    """Yield the rounds of a ring all-reduce with one chunk per rank.

    Chunk numbers start at `first_chunk_number`.
    """
    hops = range(len(rank_order) - 1)
    yield from (_make_ring_round(rank_order, first_chunk_number, -hop, "reduce") for hop in hops)
    yield from (_make_ring_round(rank_order, first_chunk_number, 1 - hop, "copy") for hop in hops)


def _make_ring_round(
    rank_order: Sequence[int], first_chunk_number: int, chunk_minus_position: int, transfer_kind: TransferKind
) -> Round:
    """Return one round of a ring, in which each rank sends one chunk to the next rank.

    The rank at position p of n sends chunk (p + `chunk_minus_position`) mod n.
    """
    ranks = len(rank_order)
    chunks = [first_chunk_number + (position + chunk_minus_position) % ranks for position in range(ranks)]
    return tuple(
        Transfer(rank_order[position], rank_order[(position + 1) % ranks], chunk, chunk + 1, transfer_kind)
        for position, chunk in enumerate(chunks)
    )
