"""The contract of a collective: who sends which part of the vector to whom, as data.

A collective cuts the vector into chunks and lists rounds of transfers; nothing here sends anything. One executor
(`executor.py`) runs every collective, and bytes, messages and waits are counted from the same rounds before a run
starts.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import ClassVar, Literal, NamedTuple, Self, TypeAlias

from services.learning.layout import Range, ranges
from services.schema.component import Component, Record
from services.schema.errors import ProtocolError

Edge: TypeAlias = tuple[int, int]  # (from rank, to rank)
Does: TypeAlias = Literal["adds", "copies", "allows"]


class Transfer(NamedTuple):
    """One rank sends the chunks first, ..., last - 1 to another, in one message if the transport likes its size.

    The receiver adds them to its own, or takes them instead of its own; or there is no payload, and the receiver is
    allowed to go on: a token, sent when all that comes before it is in; all that the receiver sends then waits for it.
    """

    source: int
    target: int
    first: int
    last: int
    does: Does

    @property
    def edge(self) -> Edge:
        """Who sends to whom."""
        return self.source, self.target

    def weight(self, weights: Sequence[int]) -> int:
        """What it carries, when each chunk weighs so much; a token carries nothing."""
        return sum(weights[self.first : self.last]) if self.does != "allows" else 0


Round: TypeAlias = tuple[Transfer, ...]


class Schedule(Record):
    """Rounds of transfers, in which every rank finds its own part.

    Within a round a rank sends what it held before it, then takes what it receives, in the order of the transfers.
    Rounds are no barriers. What is sent waits for what was received before of the same chunks; what is received is
    taken after all that was sent and received before of the same chunks. So sums are formed in a fixed order.
    """

    parts: int = 1  # chunks of the vector, equal to one entry; unless:
    tensors: tuple[int, ...] = ()  # entries of each chunk
    rounds: tuple[Round, ...] = ()
    # Pieces follow each other through the ranks. Otherwise a transfer waits until what it depends on is there as a
    # whole, and until this rank has sent what earlier rounds ask for.
    pipelined: bool = False
    segment_bytes: int | None = None  # the largest piece, where a transport would take larger ones
    sums_first: bool = False  # of the pieces that a rank could send, partial sums go before totals, one at a time
    # So many pieces of a partial sum go before the first of their totals is back, and so many bytes besides. Without a
    # bound, who has nothing to wait for fills the ports of those that others wait for.
    ahead: int | None = None
    ahead_bytes: int = 0

    @property
    def transfers(self) -> Iterator[Transfer]:
        """All of them, in order."""
        return (transfer for each in self.rounds for transfer in each)

    @property
    def edges(self) -> frozenset[Edge]:
        """Who sends to whom at any time."""
        return frozenset(transfer.edge for transfer in self.transfers)

    def chunks(self, size: int) -> tuple[Range, ...]:
        """How a vector of `size` entries is cut; raises ProtocolError when it is not the one that was planned for."""
        if not self.tensors:
            return ranges(size, self.parts)
        if sum(self.tensors) != size:
            raise ProtocolError(f"a vector of {size} entries is not one of arrays of {self.tensors}")
        return tuple(Range(start, stop) for start, stop in pairwise(accumulate(self.tensors, initial=0)))

    def piece_bytes(self, size_bytes: int, most: int, finest: int) -> int:
        """The longest message for a vector of `size_bytes`; a transport likes `most` best, and none below `finest`.

        In a pipeline a chunk is two pieces at least: while one comes, the link passes on the other.
        """
        most = min(most, self.segment_bytes or most)
        return min(most, max(finest, -(-size_bytes // (2 * self.parts)))) if self.pipelined else most

    def pieces_ahead(self, piece_bytes: int) -> int | None:
        """The bound in pieces of such a length, whatever a segment may be: a transport takes shorter ones."""
        return None if self.ahead is None else self.ahead + -(-self.ahead_bytes // piece_bytes)

    def partners(self, rank: int) -> frozenset[int]:
        """Ranks to which `rank` sends anything."""
        return frozenset(target for source, target in self.edges if source == rank)

    def sends(self, rank: int) -> int:
        """Messages that `rank` sends, before long ones are cut into pieces."""
        return sum(transfer.source == rank for transfer in self.transfers)

    def sent(self, ranks: int, size: int, weigh: Callable[[int], int]) -> tuple[int, ...]:
        """Payload bytes that each of `ranks` sends for a vector of `size` entries; `weigh` gives those of a chunk."""
        weights = [weigh(chunk.size) for chunk in self.chunks(size)]
        counts = [0] * ranks
        for transfer in self.transfers:
            counts[transfer.source] += transfer.weight(weights)
        return tuple(counts)

    @property
    def loads(self) -> tuple[Mapping[Edge, int], ...]:
        """What each edge carries while nothing else moves: round by round, or all at once when pipelined.

        In entries, or in chunks where all are equal: only ratios mean something.
        """
        weights, together = self.tensors or (1,) * self.parts, (tuple(self.transfers),)
        return tuple(_load(each, weights) for each in (together if self.pipelined else self.rounds))

    def latency_s(self, waits_s: Mapping[Edge, float]) -> float:
        """Seconds that the longest chain of transfers spends waiting; each edge takes `waits_s` beside moving bytes."""
        arrived: defaultdict[int, dict[int, float]] = defaultdict(dict)  # rank -> chunk -> since when it is there
        allowed: defaultdict[int, float] = defaultdict(float)  # rank -> since when it may send
        for each in self.rounds:
            since = [max(allowed[t.source], _ready_s(arrived[t.source], t)) for t in each]
            for transfer, sent in zip(each, since, strict=True):
                here, at = arrived[transfer.target], sent + waits_s[transfer.edge]
                if transfer.does == "allows":
                    allowed[transfer.target] = max(allowed[transfer.target], at)
                else:
                    here.update({k: max(here.get(k, 0.0), at) for k in range(transfer.first, transfer.last)})
        return max((at for here in arrived.values() for at in here.values()), default=0.0)


def _ready_s(arrived: Mapping[int, float], transfer: Transfer) -> float:
    """When all that a transfer carries has arrived at its sender; for a token, all that has come before it."""
    if transfer.does == "allows":
        return max(arrived.values(), default=0.0)
    return max((arrived.get(chunk, 0.0) for chunk in range(transfer.first, transfer.last)), default=0.0)


def _load(transfers: Sequence[Transfer], weights: Sequence[int]) -> Mapping[Edge, int]:
    """What is carried, by edge."""
    load: defaultdict[Edge, int] = defaultdict(int)
    for transfer in transfers:
        load[transfer.edge] += transfer.weight(weights)
    return load


class Site(Record):
    """What a collective may want to know of the place where it runs."""

    racks: tuple[tuple[int, ...], ...]  # ranks that stand together; every rank once
    tensors: tuple[int, ...]  # entries of the model's arrays, in the order of the vector
    entry_bytes: int = 4  # as they are summed, whatever their number format on the wire
    round_trip_bytes: int = 0  # what a worker's link carries while a message goes and its answer comes, at most

    @property
    def vector_bytes(self) -> int:
        """Of all that is summed."""
        return sum(self.tensors) * self.entry_bytes


class Collective(Component, ABC):
    """A way for n ranks to end up with the sum of their vectors.

    The closed forms count alpha once per message of the longest chain; `hidden_s` is what pieces hide of that.
    """

    closed_form: ClassVar[str]  # `seconds` as a reader of a report should see it
    needs_link_rates: ClassVar[bool] = False  # whether it chooses by predicted times, which are 0 without rates

    @property
    def formula(self) -> str:
        """The closed form, of those that it has the one that `seconds` computes."""
        return self.closed_form

    @abstractmethod
    def schedule(self, ranks: int) -> Schedule:
        """The rounds; none for a single rank."""

    @abstractmethod
    def seconds(self, ranks: int, size_bytes: float, alpha_s: float, beta_s: float) -> float:
        """Closed form of the run time: `alpha_s` seconds per message, `beta_s` seconds per byte and direction."""

    def hidden_s(self, ranks: int, size_bytes: float, piece_bytes: int, moving_s: float, waits_s: float) -> float:  # noqa: ARG002
        """Seconds of waits in which pieces move; none where a transfer waits until all is there.

        `moving_s` is the closed form without waits, and `waits_s` what it counts of them, whatever the network.
        """
        return 0.0

    def refusal(self, ranks: int) -> str | None:  # noqa: ARG002 - most take any number
        """Why it can't run on so many ranks; None when it can."""
        return None

    def conflict(self, arrays: Sequence[int]) -> tuple[str, str] | None:  # noqa: ARG002 - most look at no arrays
        """A key that makes no sense of a model whose arrays have so many entries, and why; None when all do."""
        return None

    def settled(self, site: Site) -> Self:  # noqa: ARG002 - most are the same everywhere
        """The same with all decided that depends on the place."""
        return self

    def candidates(self, site: Site) -> tuple["Collective", ...]:
        """The collectives of which the plan takes the cheapest, settled."""
        return (self.settled(site),)
