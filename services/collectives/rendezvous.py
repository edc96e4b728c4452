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

    def _insert_arrival_acks(self, rounds: Sequence[Round], *, with_ready_signals: bool = False) -> Iterator[Round]:
        """Yield each round, followed by a round of confirmations of arrival.

        The confirmations go to the senders that send to another rank next. A confirmation is an empty message (token):
        it reports that a message has arrived. Without tokens, the sender's second message takes half of its link from
        the first one: broadcast along a binomial tree took a fifth longer than its closed form, since the rank that has
        to forward most is served first.

        With `with_ready_signals`, each rank that sends to another rank in the next round also gets a token from this
        target, which has then received everything of earlier rounds. A rank that is early therefore takes no share of
        a downlink through which another rank still sends.
        """
        for number, transfers in enumerate(rounds, 1):
            yield transfers
            tokens = tuple(
                Transfer(t.target, t.source, t.first_chunk, t.stop_chunk, "token")
                for t in transfers
                if self.ranks_wait_for_tokens and _needs_arrival_ack(t, rounds[number:])
            )
            if with_ready_signals and self.ranks_wait_for_tokens:
                tokens += tuple(_make_ready_signals(transfers, rounds[number : number + 1]))
            if tokens:
                yield tokens


def _make_ready_signals(transfers: Round, next_rounds: Sequence[Round]) -> Iterator[Transfer]:
    """Yield a token from each target of the next round to its source, if the source has not just sent to it."""
    rank_pairs = {transfer.rank_pair for transfer in transfers}
    for following in (transfer for next_round in next_rounds for transfer in next_round):
        if following.rank_pair not in rank_pairs:
            yield Transfer(following.target, following.source, following.first_chunk, following.stop_chunk, "token")


def _needs_arrival_ack(transfer: Transfer, later_rounds: Sequence[Round]) -> bool:
    """Return whether the source of a transfer needs a confirmation of arrival.

    It needs one if it next sends to another rank, before it gets a message from the target.
    """
    for transfers in later_rounds:
        targets = {later.target for later in transfers if later.source == transfer.source}
        if targets:
            return transfer.target not in targets
        if any(later.rank_pair == transfer.rank_pair[::-1] for later in transfers):
            return False
    return False
