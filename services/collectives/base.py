"""Base class of collectives (all-reduce algorithms).

Each collective has a schedule of transfers between ranks and a closed form of its run time. A collective cuts the
vector into chunks and lists rounds of transfers: which rank sends which chunks to which rank. It sends nothing itself.
One executor (`execution/executor.py`) runs the schedules of all collectives. Bytes, messages and latencies are counted
from the same schedule before a run starts.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from math import ceil
from typing import ClassVar, Literal, NamedTuple, Self, TypeAlias

from services.learning.layout import VectorRange, equal_vector_ranges
from services.schema.component import FrozenRecord, ScenarioComponent
from services.schema.errors import ProtocolError

RankPair: TypeAlias = tuple[int, int]  # (source rank, target rank)
TransferKind: TypeAlias = Literal["reduce", "copy", "token"]


class Transfer(NamedTuple):
    """Transfer of consecutive chunks of the vector from one rank to another.

    Rank `source` sends the chunks `first_chunk`, …, `stop_chunk` - 1 to rank `target`. It is one message, unless the
    transport prefers shorter ones. What the receiver does depends on the kind:

    - reduce: it adds the chunks to its own.
    - copy: it replaces its own chunks by the received ones.
    - token: it may go on; a token is an empty message. The sender sends it once it has received everything scheduled
      before the token. Everything that the receiver sends later waits for the token.
    """

    source: int
    target: int
    first_chunk: int
    stop_chunk: int
    kind: TransferKind

    @property
    def rank_pair(self) -> RankPair:
        """Source rank and target rank of the transfer."""
        return self.source, self.target

    def sum_chunk_sizes(self, chunk_sizes: Sequence[int]) -> int:
        """Return the total size of the chunks in this transfer, in the unit of `chunk_sizes`.

        Return 0 for an empty message.
        """
        return sum(chunk_sizes[self.first_chunk : self.stop_chunk]) if self.kind != "token" else 0


Round: TypeAlias = tuple[Transfer, ...]


class TransferSchedule(FrozenRecord):
    """Schedule of a collective: rounds of transfers, from which each rank derives its sends and receives.

    Within a round, a rank sends the data that it held before the round, then receives in the order of the transfers.
    Rounds are not barriers. A send waits for all earlier receives of the same chunks. A received chunk is added or
    copied after all earlier sends and receives of the same chunk. So every sum is formed in a fixed order.
    """

    chunk_count: int = 1  # chunks of the vector; their sizes differ by one entry at most, unless `chunk_sizes` is given
    chunk_sizes: tuple[int, ...] = ()  # entries of each chunk; empty: equal chunks
    rounds: tuple[Round, ...] = ()
    # Whether chunks are forwarded piece by piece. Otherwise a transfer waits until all chunks that it depends on have
    # been received completely, and until this rank has sent all transfers of earlier rounds.
    is_pipelined: bool = False
    max_piece_bytes: int | None = None  # upper limit of a piece; None: the transport's own limit
    # Whether pieces of partial sums are sent before pieces of totals, one piece at a time, where both are ready.
    sends_partial_sums_first: bool = False
    # A rank may send this many pieces of a partial sum, and `window_extra_bytes` besides, before the total of the
    # first piece has come back; None: no limit. Without a limit, ranks that wait for nothing fill the link buffers of
    # ranks that others wait for.
    window_pieces: int | None = None
    window_extra_bytes: int = 0

    @property
    def transfers_of_all_rounds(self) -> Iterator[Transfer]:
        """Transfers of all rounds, in order."""
        return (transfer for transfers in self.rounds for transfer in transfers)

    @property
    def sending_rank_pairs(self) -> frozenset[RankPair]:
        """All pairs (source rank, target rank) between which data or empty messages are sent."""
        return frozenset(transfer.rank_pair for transfer in self.transfers_of_all_rounds)

    @property
    def all_ranks_send_in_every_round(self) -> bool:
        """Whether every rank sends data in every round that has data.

        If not, fast ranks may already exchange while slow ranks still compute.
        """
        senders = [{t.source for t in transfers if t.kind != "token"} for transfers in self.rounds]
        return all(each == self._ranks for each in senders if each)

    @property
    def _ranks(self) -> set[int]:
        return {rank for pair in self.sending_rank_pairs for rank in pair}

    def chunk_ranges(self, entry_count: int) -> tuple[VectorRange, ...]:
        """Return the range of vector entries that each chunk covers.

        The vector has `entry_count` entries.

        Raises:
            ProtocolError: the schedule was planned for a vector of another length.
        """
        if not self.chunk_sizes:
            return equal_vector_ranges(entry_count, self.chunk_count)
        if sum(self.chunk_sizes) != entry_count:
            raise ProtocolError(f"vector of {entry_count} entries cannot be cut into chunks of {self.chunk_sizes}")
        return tuple(VectorRange(start, stop) for start, stop in pairwise(accumulate(self.chunk_sizes, initial=0)))

    def max_message_bytes(self, vector_bytes: int, preferred_message_bytes: int, min_message_bytes: int) -> int:
        """Return the size of the longest message in bytes.

        The schedule sums vectors of `vector_bytes` bytes. A pipeline cuts each chunk into at least two pieces: a rank
        forwards one while it receives the next.

        Args:
            vector_bytes: bytes of the whole vector.
            preferred_message_bytes: message size that the transport prefers; no message is longer.
            min_message_bytes: a pipeline does not cut chunks into shorter pieces.
        """
        max_bytes = min(preferred_message_bytes, self.max_piece_bytes or preferred_message_bytes)
        if not self.is_pipelined:
            return max_bytes
        half_chunk_bytes = -(-vector_bytes // (2 * self.chunk_count))
        return min(max_bytes, max(min_message_bytes, half_chunk_bytes))

    def max_pieces_in_flight(self, piece_bytes: float) -> int | None:
        """Return the maximum number of pieces that a rank may send ahead of the totals.

        A total is the sum of a piece over all ranks. The rank may send this number of pieces before it has received the
        total of the first piece. The transport's pieces may be shorter than `max_piece_bytes`; then
        `window_extra_bytes` are more pieces. None means no limit.
        """
        return None if self.window_pieces is None else self.window_pieces + ceil(self.window_extra_bytes / piece_bytes)

    def target_ranks(self, rank: int) -> frozenset[int]:
        """Return all ranks to which `rank` sends data or empty messages."""
        return frozenset(target for source, target in self.sending_rank_pairs if source == rank)

    def count_transfers_from(self, rank: int) -> int:
        """Return the number of transfers that `rank` sends.

        A long transfer may become several messages.
        """
        return sum(transfer.source == rank for transfer in self.transfers_of_all_rounds)

    def payload_bytes_by_rank(
        self, rank_count: int, vector_entries: int, entries_to_bytes: Callable[[int], int]
    ) -> tuple[int, ...]:
        """Return the payload bytes that each rank sends in one all-reduce, by rank.

        `entries_to_bytes` maps the number of entries of a chunk to the bytes of its payload.
        """
        chunk_bytes = [entries_to_bytes(chunk.size) for chunk in self.chunk_ranges(vector_entries)]
        sent_bytes = [0] * rank_count
        for transfer in self.transfers_of_all_rounds:
            sent_bytes[transfer.source] += transfer.sum_chunk_sizes(chunk_bytes)
        return tuple(sent_bytes)

    @property
    def relative_payload_sizes(self) -> tuple[Mapping[RankPair, int], ...]:
        """Relative payload size for each pair of ranks.

        There is one mapping per round, or a single mapping if rounds overlap. The unit is entries, or chunks where all
        chunks are equal. Only ratios between the values are meaningful.
        """
        chunk_sizes = self.chunk_sizes or (1,) * self.chunk_count
        concurrent = (tuple(self.transfers_of_all_rounds),) if self.is_pipelined else self.rounds
        return tuple(_sum_sizes_by_rank_pair(transfers, chunk_sizes) for transfers in concurrent)

    def critical_path_latency_s(self, rank_pair_latency_s: Mapping[RankPair, float]) -> float:
        """Return the latency in seconds of the longest chain of dependent transfers.

        Each transfer of the chain waits for the one before. `rank_pair_latency_s` is the latency of one message by pair
        of ranks. Moving the bytes is not counted.
        """
        arrival_s: defaultdict[int, dict[int, float]] = defaultdict(dict)  # rank -> chunk -> time of its last arrival
        token_s: defaultdict[int, float] = defaultdict(float)  # rank -> arrival of its last token; it sends later
        for transfers in self.rounds:
            starts_s = [max(token_s[t.source], _data_ready_s(arrival_s[t.source], t)) for t in transfers]
            for transfer, start_s in zip(transfers, starts_s, strict=True):
                target_arrival_s, end_s = arrival_s[transfer.target], start_s + rank_pair_latency_s[transfer.rank_pair]
                if transfer.kind == "token":
                    token_s[transfer.target] = max(token_s[transfer.target], end_s)
                else:
                    for chunk in range(transfer.first_chunk, transfer.stop_chunk):
                        target_arrival_s[chunk] = max(target_arrival_s.get(chunk, 0.0), end_s)
        return max((time_s for by_chunk in arrival_s.values() for time_s in by_chunk.values()), default=0.0)


def _data_ready_s(source_arrival_s_by_chunk: Mapping[int, float], transfer: Transfer) -> float:
    """Return the time in seconds at which the source rank of a transfer has all chunks to send.

    A token (empty message) waits for earlier rounds.
    """
    if transfer.kind == "token":
        return max(source_arrival_s_by_chunk.values(), default=0.0)
    chunks = range(transfer.first_chunk, transfer.stop_chunk)
    return max((source_arrival_s_by_chunk.get(chunk, 0.0) for chunk in chunks), default=0.0)


def _sum_sizes_by_rank_pair(transfers: Sequence[Transfer], chunk_sizes: Sequence[int]) -> Mapping[RankPair, int]:
    """Return the total payload size that each pair of ranks transfers.

    The sizes of all `transfers` are summed, in the unit of `chunk_sizes`.
    """
    loads: defaultdict[RankPair, int] = defaultdict(int)
    for transfer in transfers:
        loads[transfer.rank_pair] += transfer.sum_chunk_sizes(chunk_sizes)
    return loads


class NetworkAndModelSizes(FrozenRecord):
    """Sizes of network and model from which a collective computes missing fields.

    The sizes are the racks, the array sizes and the link capacity. Missing fields are those that the scenario leaves
    out.
    """

    racks: tuple[tuple[int, ...], ...]  # ranks of each rack (or region); every rank once
    array_sizes: tuple[int, ...]  # entries of the model's arrays, in the order of the parameter vector
    array_shapes: tuple[tuple[int, ...], ...] = ()  # of the same arrays; empty: not known
    array_names: tuple[str, ...] = ()  # of the same arrays; empty: not known
    array_flops: tuple[float, ...] = ()  # operations of a forward pass by array, in the same order; empty: not known
    # Bytes of an entry as it is summed, whatever its number format on the wire; more where a payload is declared.
    entry_bytes: float = 4
    bandwidth_delay_bytes: int = 0  # bytes that a worker's link transfers during the longest round trip

    @property
    def vector_bytes(self) -> int:
        """Size of the parameter vector on the wire in bytes."""
        return round(sum(self.array_sizes) * self.entry_bytes)


class Collective(ScenarioComponent, ABC):
    """All-reduce algorithm, after which all ranks hold the sum of their vectors.

    The closed form counts α, the latency of a message, once per message of the longest chain. A pipeline overlaps the
    part `latency_hidden_by_transfer_s` of this latency with data transfer.
    """

    closed_form: ClassVar[str]  # formula of `all_reduce_time_s`, as reports print it
    needs_link_rates: ClassVar[bool] = False  # whether it compares predicted times, which are 0 without link rates

    @property
    def all_reduce_time_formula(self) -> str:
        """Formula that `all_reduce_time_s` evaluates, as text.

        It may depend on the collective's fields.
        """
        return self.closed_form

    @property
    def sums_arrays_separately(self) -> bool:
        """Whether every array of the model is summed by messages of its own, so that no other vector can be summed."""
        return False

    @abstractmethod
    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        """Return the schedule of all transfers in an all-reduce over `rank_count` ranks.

        The schedule for a single rank has no transfers.
        """

    @abstractmethod
    def all_reduce_time_s(self, rank_count: int, vector_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
        """Return the run time of the all-reduce in seconds, computed by the closed form.

        Args:
            rank_count: number of ranks, n.
            vector_bytes: bytes of the vector, S.
            alpha_s: seconds of latency per message, α.
            beta_s_per_byte: seconds per byte on a link in one direction, β; links are full duplex.
        """

    def latency_hidden_by_transfer_s(
        self,
        rank_count: int,  # noqa: ARG002 - only pipelines hide latency
        vector_bytes: float,  # noqa: ARG002
        piece_bytes: float,  # noqa: ARG002
        data_transfer_s: float,  # noqa: ARG002
        path_latency_s: float,  # noqa: ARG002
    ) -> float:
        """Return the seconds of message latency that overlap with the transfer of other pieces.

        Return 0 without pipelining.

        Args:
            rank_count: number of ranks.
            vector_bytes: bytes of the vector.
            piece_bytes: bytes of a piece.
            data_transfer_s: run time by the closed form with α = 0, on the real network.
            path_latency_s: latency of the longest chain of transfers, on the real network.
        """
        return 0.0

    def explain_inapplicable_form(self, rank_count: int, message_count: int) -> str:  # noqa: ARG002 - most closed forms are exact
        """Return why the closed form does not describe an all-reduce even over equal ranks and links.

        Return an empty text if it does. A vector is cut into `message_count` messages.
        """
        return ""

    def unsupported_rank_count_reason(self, rank_count: int) -> str | None:  # noqa: ARG002 - most take any number
        """Return the reason why the collective cannot run on `rank_count` ranks.

        Return None if the collective can run.
        """
        return None

    def find_model_conflict(self, model_array_entry_counts: Sequence[int]) -> tuple[str, str] | None:  # noqa: ARG002 - most look at none
        """Return the scenario key that contradicts the sizes of the model's arrays, and the reason.

        Return None if none does. `model_array_entry_counts` are the entries of each array of the model.
        """
        return None

    def fill_in_unset_fields(self, network_and_model_sizes: NetworkAndModelSizes) -> Self:  # noqa: ARG002 - most are the same everywhere
        """Return a copy in which unset fields have values that suit the network and the model.

        Unset fields are None or empty.
        """
        return self

    def list_auto_candidates(self, network_and_model_sizes: NetworkAndModelSizes) -> tuple["Collective", ...]:
        """Return the collectives among which a plan chooses the one with the least predicted run time."""
        return (self.fill_in_unset_fields(network_and_model_sizes),)
