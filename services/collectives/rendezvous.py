"""Rendezvous as in MPI: a rank sends a long message only after an empty message (token).

So two long messages never share a link. A send counts as done when the sending host has accepted the message. For a
long message that is well before it has arrived.
"""

from abc import ABC
from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

from pydantic import Field

from services.collectives.base import Collective, NetworkAndModelSizes, Round, Transfer

EAGER_LIMIT_BYTES = 64 << 10  # vectors up to this size may share a link with the previous message


class OptionalRendezvousCollective(Collective, ABC):
    """A collective in which each rank sends to one rank after another, with or without a rendezvous.

    With `rendezvous`, a rank waits for an empty message (token) where two messages would share a link.
    """

    eager_closed_form: ClassVar[str]  # closed form without tokens

    rendezvous: bool | None = Field(
        None,
        description="whether ranks wait for an empty message (token) where two messages would share a link; absent: "
        "for vectors of more than 64 KiB",
    )

    def fill_in_unset_fields(self, network_and_model_sizes: NetworkAndModelSizes) -> Self:
        if self.rendezvous is not None:
            return self
        return self.model_copy(update={"rendezvous": network_and_model_sizes.vector_bytes > EAGER_LIMIT_BYTES})

    @property
    def all_reduce_time_formula(self) -> str:
        return self.closed_form if self.ranks_wait_for_tokens else self.eager_closed_form

    @property
    def ranks_wait_for_tokens(self) -> bool:
        """Whether ranks wait for empty messages (tokens) before they send.

        The value is also true while the field `rendezvous` has no value.
        """
        return self.rendezvous is not False

    def _insert_tokens(self, rounds: Sequence[Round], *, confirm_readiness: bool = False) -> Iterator[Round]:
        """Yield all rounds. If ranks wait for tokens, a round of tokens follows each round that needs one.

        A rank that sends to another rank next gets a token from its last target, after its data have arrived there.
        Without tokens, the rank's second message takes half of its link from the first one: broadcast along a binomial
        tree took a fifth longer than its closed form, since the rank that has to forward most is served first.

        With `confirm_readiness`, the rank's next target also sends it a token, after all earlier data have reached that
        target. A rank that is ahead therefore cannot slow down a rank that still sends to this target.
        """
        for number, transfers in enumerate(rounds, 1):
            yield transfers
            if not self.ranks_wait_for_tokens:
                continue
            tokens = tuple(make_token(t) for t in transfers if _needs_arrival_token(t, rounds[number:]))
            if confirm_readiness and number < len(rounds):
                tokens += tuple(_make_readiness_tokens(transfers, rounds[number]))
            if tokens:
                yield tokens


def make_token(transfer: Transfer) -> Transfer:
    """Return a token (empty message) from the target of a transfer to its source."""
    return Transfer(transfer.target, transfer.source, transfer.first_chunk, transfer.stop_chunk, "token")


def _make_readiness_tokens(transfers: Round, next_round: Round) -> Iterator[Transfer]:
    """Return a token from each target of the next round to its source, if the source has not just sent to it."""
    rank_pairs = {transfer.rank_pair for transfer in transfers}
    return (make_token(following) for following in next_round if following.rank_pair not in rank_pairs)


def _needs_arrival_token(transfer: Transfer, later_rounds: Sequence[Round]) -> bool:
    """Return whether the source of a transfer waits for a token that is sent when the data have arrived.

    It waits if it next sends to another rank, before it gets a message from the target.
    """
    for transfers in later_rounds:
        targets = {later.target for later in transfers if later.source == transfer.source}
        if targets:
            return transfer.target not in targets
        if any(later.rank_pair == transfer.rank_pair[::-1] for later in transfers):
            return False
    return False
