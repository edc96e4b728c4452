"""What do the messages of a collective hold, and what becomes of it at the receiver?"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from services.collectives.execution.rank_schedule import Act
from services.compressors import Compressor, Identity, from_wire, to_wire
from services.learning.layout import Range
from services.runtime.transport import Buffer
from services.schema.arrays import HostArray

PLAIN = Identity()


class Payloads(ABC):
    """One vector between a rank's acts and its messages; tokens have no payload and never come here."""

    @abstractmethod
    def pack(self, act: Act) -> Buffer:
        """What a message holds; the vector's own memory where it can be sent as it is."""

    @abstractmethod
    def take(self, act: Act, data: Buffer) -> None:
        """Add what has come, or hold it instead of what was there."""

    def room(self, act: Act) -> memoryview | None:  # noqa: ARG002 - most formats must be unpacked
        """Memory to which the payload may be written as it comes; then there is nothing left to `take`."""
        return None

    def finish(self) -> None:  # noqa: B027 - where nothing is rounded there is nothing to do
        """All acts are over."""


def payloads(compressor: Compressor, vector: HostArray, pieces: Sequence[Range]) -> Payloads:
    """Those of `vector`, shape (n,) in host memory, in the number format of `compressor`."""
    return Plain(vector, pieces) if compressor == PLAIN else Packed(compressor, vector, pieces)


class Plain(Payloads):
    """Entries travel as they are, from the vector and into it."""

    def __init__(self, vector: HostArray, pieces: Sequence[Range]) -> None:
        self._vector = vector
        self._pieces = pieces
        self._came: dict[range, Buffer] = {}  # pieces -> their total as it came, until it is passed on

    def pack(self, act: Act) -> Buffer:
        return self._came.pop(act.pieces, None) or self._entries(act).data.cast("B")

    def room(self, act: Act) -> memoryview | None:
        return self._entries(act).data.cast("B") if act.does == "copies" else None

    def take(self, act: Act, data: Buffer) -> None:
        entries = self._entries(act)
        received = np.frombuffer(data, entries.dtype)
        if act.does == "adds":
            np.add(received, entries, out=entries)
        else:
            entries[:] = received
            if act.passed_on:
                self._came[act.pieces] = data

    def _entries(self, act: Act) -> HostArray:
        """Pieces of one message follow each other."""
        return self._vector[self._pieces[act.pieces[0]].start : self._pieces[act.pieces[-1]].stop]


class Packed(Payloads):
    """Every piece goes through a compressor.

    What is rounded on the wire is rounded at its sender too, and totals are passed on as they came: so all ranks end
    with the same bits.
    """

    def __init__(self, compressor: Compressor, vector: HostArray, pieces: Sequence[Range]) -> None:
        self._compressor = compressor
        self._vector = vector
        self._pieces = pieces
        self._totals: dict[int, Buffer] = {}  # piece -> how everybody gets its total

    def pack(self, act: Act) -> Buffer:
        """Partial sums are packed now, totals once."""
        pack = self._pack if act.does == "adds" else self._total
        data = [pack(k) for k in act.pieces]
        return data[0] if len(data) == 1 else b"".join(data)

    def take(self, act: Act, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        for k in act.pieces:
            piece = self._pieces[k].of(self._vector)
            length = self._compressor.nbytes(piece.size, piece.dtype.name)
            received, view = view[:length], view[length:]
            if act.does == "adds":
                np.add(self._unpack(received, piece), piece, out=piece)
            else:
                piece[:] = self._unpack(received, piece)
                self._totals[k] = received

    def finish(self) -> None:
        """A total that others have got is rounded; whoever has formed it too and sent it to nobody rounds it alike."""
        for k in range(len(self._pieces)):
            self._total(k)

    def _total(self, k: int) -> Buffer:
        if k not in self._totals:
            self._totals[k] = self._pack(k)
        return self._totals[k]

    def _pack(self, k: int) -> Buffer:
        """A piece as it is sent; what is kept of it is what the others get."""
        piece = self._pieces[k].of(self._vector)
        payload, _ = self._compressor.compress(piece, None)
        data = to_wire(payload).data
        piece[:] = self._unpack(data, piece)
        return data

    def _unpack(self, data: Buffer, piece: HostArray) -> HostArray:
        return from_wire(self._compressor, np.frombuffer(data, np.uint8), piece.size, piece.dtype.name)
