"""Base class of collectives in which ranks swap data with one partner after another."""

from collections.abc import Iterable, Iterator

from services.collectives.base import Round
from services.collectives.rendezvous import OptionalRendezvousCollective, make_token


class PairwiseExchangeCollective(OptionalRendezvousCollective):
    """A collective in which each rank swaps data with one partner per round.

    Long vectors need a rendezvous. A rank that finishes a swap early would begin with its next partner and take half of
    the link on which that partner still waits for its own swap. Such delays feed each other: without tokens, steps took
    up to twice as long.
    """

    @property
    def _messages_per_round(self) -> int:
        """Number of consecutive messages per round.

        A round has one data message and, if ranks wait for tokens, an empty message (token) before the data.
        """
        return 1 + self.ranks_wait_for_tokens

    def _insert_readiness_tokens(self, rounds: Iterable[Round]) -> Iterator[Round]:
        """Yield all rounds. If ranks wait for tokens, a round of tokens precedes each round.

        A rank sends a token to its next partner, after all earlier data have reached the rank.
        """
        for transfers in rounds:
            if self.ranks_wait_for_tokens:
                yield tuple(map(make_token, transfers))
            yield transfers
