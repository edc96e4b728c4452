"""Schedule of a single rank in a collective: its sends and receives.

The schedule states which of them must be complete before another may start.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from services.collectives.base import RankPair, Transfer, TransferKind, TransferSchedule
from services.learning.layout import VectorRange


class RankSendOrReceive(NamedTuple):
    """Send or receive of one message by one rank.

    Fields refer to other operations of the rank by their index.
    """

    is_send: bool
    peer_rank: int
    kind: TransferKind
    first_chunk: int  # of the transfer
    message_number: int  # within the transfer; tokens are numbered per (source, target)
    piece_numbers: range
    prerequisites: tuple[int, ...]  # operations that must be complete before this one starts
    dependents: tuple[int, ...] = ()  # operations that have this one among their prerequisites
    is_forwarded: bool = False  # whether a dependent sends what this operation receives


class RankSchedule(NamedTuple):
    """Pieces into which the vector is cut, and the sends and receives of one rank in order."""

    pieces: tuple[VectorRange, ...]
    operations: tuple[RankSendOrReceive, ...]


@lru_cache(maxsize=256)  # every step uses the same schedule; a simulation has many ranks in one process
def build_rank_schedule(
    schedule: TransferSchedule, rank: int, entry_count: int, max_message_entries: int, entry_bytes: float
) -> RankSchedule:
    """Return the sends and receives of one rank in an all-reduce.

    Args:
        schedule: transfers of all ranks.
        rank: rank whose operations are returned.
        entry_count: entries of the vector.
        max_message_entries: entries of the longest message.
        entry_bytes: bytes of an entry on the wire, before compression.
    """
    pieces_by_chunk = [_cut_into_pieces(chunk, max_message_entries) for chunk in schedule.chunk_ranges(entry_count)]
    builder = _RankOpsBuilder(rank, pieces_by_chunk, max_message_entries, awaits_transfers=not schedule.is_pipelined)
    for transfers in schedule.rounds:
        builder.add_sends_of_round(transfer for transfer in transfers if transfer.source == rank)
        builder.add_receives(transfer for transfer in transfers if transfer.target == rank)
    window_pieces = schedule.max_pieces_in_flight(max_message_entries * entry_bytes)
    operations = _limit_send_window(builder.operations, window_pieces) if window_pieces else builder.operations
    return RankSchedule(tuple(piece for pieces in pieces_by_chunk for piece in pieces), _derive_dependents(operations))


def _cut_into_pieces(chunk: VectorRange, max_piece_entries: int) -> tuple[VectorRange, ...]:
    """Cut a chunk of the vector into ranges of at most `max_piece_entries` entries.

    Return an empty tuple if the chunk is empty.
    """
    ends = (*range(chunk.start, chunk.stop, max_piece_entries), chunk.stop)
    return tuple(VectorRange(start, stop) for start, stop in pairwise(ends))


def _limit_send_window(operations: Sequence[RankSendOrReceive], window_pieces: int) -> list[RankSendOrReceive]:
    """Limit how far a rank may send partial sums ahead of the totals received so far.

    The returned operations send partial sums at most `window_pieces` messages ahead. The send of a partial sum also
    waits for the total of the message `window_pieces` before it, from the same peer.
    """
    received_totals = {
        (operation.peer_rank, operation.first_chunk, operation.message_number): index
        for index, operation in enumerate(operations)
        if operation.kind == "copy" and not operation.is_send
    }

    def prerequisite_receives(operation: RankSendOrReceive) -> set[int]:
        if operation.kind != "reduce" or not operation.is_send:
            return set()
        awaited = (operation.peer_rank, operation.first_chunk, operation.message_number - window_pieces)
        return {received_totals[awaited]} if awaited in received_totals else set()

    return [
        operation._replace(prerequisites=tuple(sorted(prerequisite_receives(operation).union(operation.prerequisites))))
        for operation in operations
    ]


def _derive_dependents(operations: Sequence[RankSendOrReceive]) -> tuple[RankSendOrReceive, ...]:
    """Return the operations with the fields `dependents` and `is_forwarded` filled in.

    Both fields are derived from the prerequisites of all operations.
    """
    dependents: defaultdict[int, list[int]] = defaultdict(list)
    for index, operation in enumerate(operations):
        for earlier in operation.prerequisites:
            dependents[earlier].append(index)
    sends = {index for index, operation in enumerate(operations) if operation.is_send}
    return tuple(
        operation._replace(
            dependents=tuple(dependents[index]),
            is_forwarded=not (operation.is_send or sends.isdisjoint(dependents[index])),
        )
        for index, operation in enumerate(operations)
    )


class _RankOpsBuilder:
    """Builder of one rank's sends and receives, which are added round by round."""

    def __init__(
        self, rank: int, pieces_by_chunk: Sequence[Sequence[VectorRange]], max_entries: int, *, awaits_transfers: bool
    ) -> None:
        """Create a builder that has no sends and receives yet.

        With `awaits_transfers`, a send waits until all pieces of the transfers that it depends on have been
        received, and until this rank has sent everything of earlier rounds.
        """
        self.operations: list[RankSendOrReceive] = []
        self._rank = rank
        self._awaits_transfers = awaits_transfers
        self._max_entries = max_entries
        self._piece_sizes = [piece.size for pieces in pieces_by_chunk for piece in pieces]
        self._first_piece_by_chunk = list(accumulate(map(len, pieces_by_chunk), initial=0))
        self._token_counts: Counter[RankPair] = Counter()  # (source, target) -> tokens so far
        self._last_receive_by_piece: dict[int, int] = {}  # piece -> last operation that changed it
        self._sends_since_receive: defaultdict[int, set[int]] = defaultdict(set)  # piece -> sends since that operation
        self._previous_round: set[int] = set()  # sends of the last round that had any, and tokens received since

    def add_sends_of_round(self, sends_of_round: Iterable[Transfer]) -> None:
        """Add all sends of one round.

        Sends of one round do not wait for each other.
        """
        earlier = self._previous_round if self._awaits_transfers else set()
        sends = {index for transfer in sends_of_round for index in self._add_send(transfer, earlier)}
        self._previous_round = sends or self._previous_round

    def add_receives(self, transfers: Iterable[Transfer]) -> None:
        """Add all receives of one round, in the order of `transfers`."""
        for transfer in transfers:
            self._add_receive(transfer)

    def _add_send(self, transfer: Transfer, prerequisite_operations: set[int]) -> Iterable[int]:
        """Add one send per message of a transfer, and yield the index of each send."""
        if transfer.kind == "token":
            prerequisite_operations = prerequisite_operations | set(self._last_receive_by_piece.values())
        for number, pieces in enumerate(self._split_into_messages(transfer)):
            receives = self._last_receives_of(self._pieces_awaited_by_message(transfer, pieces))
            index = self._append_send_recv(transfer, number, pieces, prerequisite_operations | receives)
            for piece in pieces:
                self._sends_since_receive[piece].add(index)
            yield index

    def _add_receive(self, transfer: Transfer) -> None:
        """Add one receive per message of a transfer.

        The transfer is complete when its last message has arrived.
        """
        previous: set[int] = set()
        for number, pieces in enumerate(self._split_into_messages(transfer)):
            sends = {index for piece in pieces for index in self._sends_since_receive.pop(piece, ())}
            index = self._append_send_recv(transfer, number, pieces, previous | sends | self._last_receives_of(pieces))
            previous = {index} if self._awaits_transfers else set()
            if transfer.kind == "token":
                self._previous_round.add(index)
            self._last_receive_by_piece.update(dict.fromkeys(self._pieces_awaited_by_message(transfer, pieces), index))

    def _append_send_recv(
        self, transfer: Transfer, message_number: int, piece_numbers: range, prerequisite_operations: set[int]
    ) -> int:
        """Append the send or receive of one message, and return the index of this operation.

        Two tokens between the same ranks may concern the same chunk, so tokens have numbers of their own.
        """
        is_send = transfer.source == self._rank
        if transfer.kind == "token":
            message_number = self._token_counts[transfer.rank_pair]
            self._token_counts[transfer.rank_pair] += 1
        peer = transfer.target if is_send else transfer.source
        needs = tuple(sorted(prerequisite_operations))
        self.operations.append(
            RankSendOrReceive(is_send, peer, transfer.kind, transfer.first_chunk, message_number, piece_numbers, needs)
        )
        return len(self.operations) - 1

    def _last_receives_of(self, piece_numbers: range) -> set[int]:
        """Return the last receive operations that changed the given pieces of the vector.

        Operations are returned by index.
        """
        return {self._last_receive_by_piece[k] for k in piece_numbers if k in self._last_receive_by_piece}

    def _pieces_awaited_by_message(self, transfer: Transfer, message_pieces: range) -> range:
        """Return the pieces of the vector for which a message waits.

        With `awaits_transfers`, these are all pieces of the transfer, otherwise only the pieces of the message.
        """
        return self._piece_numbers_of_transfer(transfer) if self._awaits_transfers else message_pieces

    def _piece_numbers_of_transfer(self, transfer: Transfer) -> range:
        return range(self._first_piece_by_chunk[transfer.first_chunk], self._first_piece_by_chunk[transfer.stop_chunk])

    def _split_into_messages(self, transfer: Transfer) -> list[range]:
        """Return for each message of a transfer the pieces that it contains.

        A message contains as many pieces as the longest message can hold. A token (an empty message) stands for all
        pieces of its transfer.
        """
        pieces = self._piece_numbers_of_transfer(transfer)
        if transfer.kind == "token":
            return [pieces]
        message_starts: list[int] = []
        free_entries = 0
        for piece in pieces:
            if self._piece_sizes[piece] > free_entries:
                message_starts.append(piece)
                free_entries = self._max_entries
            free_entries -= self._piece_sizes[piece]
        return [range(start, stop) for start, stop in pairwise((*message_starts, pieces.stop))]
