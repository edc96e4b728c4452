"""Recursive halving and doubling (R. Rabenseifner, ICCS 2004).

We differ where n is not a power of two: folded ranks hand in the whole vector instead of swapping halves, which on
full-duplex links moves as many bytes in one message less.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from services.collectives.base import Round, Schedule, Transfer
from services.collectives.folding import core, fold_s, folded
from services.collectives.swapping import Swapping


class HalvingDoubling(Swapping):
    """Partners swap halves of what they still sum until each holds one finished chunk; then they go back.

    As few bytes as a ring in far fewer messages, where n is a power of two.
    """

    kind: Literal["halving_doubling"] = "halving_doubling"
    closed_form: ClassVar[str] = "4⌊lg n⌋α + 2(p-1)/p·S·β; + 2(α + S·β) where n ≠ p = 2^⌊lg n⌋"
    eager_form: ClassVar[str] = "2⌊lg n⌋α + 2(p-1)/p·S·β; + 2(α + S·β) where n ≠ p = 2^⌊lg n⌋"

    def schedule(self, ranks: int) -> Schedule:
        members = core(ranks)
        parts = len(members)
        rounds = self.meeting((*_halving(members), *_doubling(members)))
        return Schedule(parts=parts, rounds=folded(ranks, parts, rounds, tokens=not self.meets))

    def seconds(self, ranks: int, size_bytes: float, alpha_s: float, beta_s: float) -> float:
        """Halves, quarters, ...: (p-1)/p of the vector, there and back; to fold takes it whole twice.

        Nobody waits for the token of a fold: of two that swap halves, it is on its way with the other one's half.
        """
        power = len(core(ranks))
        waiting_s = 2 * (power.bit_length() - 1) * self.alphas * alpha_s
        moving_s = 2 * (power - 1) / power * size_bytes * beta_s
        return waiting_s + moving_s + fold_s(ranks, size_bytes, alpha_s, beta_s)


def _halving(members: Sequence[int]) -> Iterator[Round]:
    """Every place gives away the half of its segment that holds the chunk of its partner's number."""
    distance = len(members) // 2
    while distance:
        yield tuple(
            Transfer(rank, members[place ^ distance], *_segment(place ^ distance, distance), "adds")
            for place, rank in enumerate(members)
        )
        distance //= 2


def _doubling(members: Sequence[int]) -> Iterator[Round]:
    """Every place gives its partner all that it has finished."""
    distance = 1
    while distance < len(members):
        yield tuple(
            Transfer(rank, members[place ^ distance], *_segment(place, distance), "copies")
            for place, rank in enumerate(members)
        )
        distance *= 2


def _segment(place: int, length: int) -> tuple[int, int]:
    """The chunks that hold the place's own, aligned to their length."""
    first = place // length * length
    return first, first + length
