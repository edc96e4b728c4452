"""All-gather in a logarithmic number of rounds, for any number of ranks.

Reference: J. Bruck et al., IEEE Trans. Parallel Distrib. Syst. 8(11), 1997. We differ in that ranks store payloads by
rank instead of in the order of their arrival, so that a message may consist of two parts.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

from services.collectives.all_gather.base import AllGather
from services.collectives.base import Round, Transfer, TransferSchedule


class TreeAllGather(AllGather):
    """All-gather in ⌈lg n⌉ rounds, in each of which every rank sends all payloads that its target lacks.

    The number of payloads that a rank has doubles from round to round, as in recursive doubling, but the number of
    ranks need not be a power of two.
    """

    kind: Literal["tree"] = "tree"
    closed_form: ClassVar[str] = "⌈lg(2n/3)⌉α + (n-1)P·β"

    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        distances = (1 << bit for bit in range((rank_count - 1).bit_length()))
        rounds = (each for distance in distances for each in _make_rounds(distance, rank_count))
        return TransferSchedule(chunk_count=rank_count, rounds=tuple(rounds))

    def all_gather_time_s(self, rank_count: int, payload_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
        """Return the run time in seconds, computed by the closed form.

        ⌈lg n⌉ rounds have ⌈lg(2n/3)⌉ messages that wait for each other: if n is at most 1.5 times a power of two, ranks
        have everything that they send in the last round already before the round before.
        """
        messages = (-(-2 * rank_count // 3) - 1).bit_length()
        return messages * alpha_s + (rank_count - 1) * payload_bytes * beta_s_per_byte


def _make_rounds(distance: int, rank_count: int) -> Iterator[Round]:
    """Yield the rounds in which each rank r sends payloads to rank r - distance.

    Before, rank r has the payloads r, …, r + distance - 1 (mod n). Its target lacks the first min(distance, n -
    distance) of them. Payloads that wrap around are two ranges of chunks. The second range, which has arrived last,
    goes first: if a rank sent the other one as early as possible, it would share the link of a target that still
    receives the payloads of the last distance.
    """
    last_parts, first_parts = [], []
    for rank in range(rank_count):
        target, stop = (rank - distance) % rank_count, rank + min(distance, rank_count - distance)
        if stop <= rank_count:
            last_parts.append(Transfer(rank, target, rank, stop, "copy"))
        else:
            last_parts.append(Transfer(rank, target, 0, stop - rank_count, "copy"))
            first_parts.append(Transfer(rank, target, rank, rank_count, "copy"))
    yield from (tuple(transfers) for transfers in (last_parts, first_parts) if transfers)
