"""Conversion between pieces of a vector and the payloads of a collective's messages.

Pieces are encoded for sending. Received payloads are added to the vector or copied into it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from services.collectives.execution.rank_schedule import RankSendOrReceive
from services.compressors import Compressor, IdentityCompressor, bytes_to_vector, payload_to_bytes
from services.learning.layout import VectorRange
from services.runtime.transport import Buffer
from services.schema.arrays import HostArray
from services.schema.errors import ProtocolError

UNCOMPRESSED = IdentityCompressor()
# Combines received entries with a rank's own entries, and writes the result into the own ones (second argument).
CombineEntries: TypeAlias = Callable[[HostArray, HostArray], object]


def add_entries(received_entries: HostArray, own_entries: HostArray) -> None:
    """Add the received entries to a rank's own entries, in place."""
    np.add(received_entries, own_entries, out=own_entries)


class PayloadCodec(ABC):
    """Conversion between a vector and the payloads of one rank's messages.

    Empty messages need no codec.
    """

    @abstractmethod
    def encode_payload(self, send_operation: RankSendOrReceive) -> Buffer:
        """Return the payload of a send operation.

        The payload may share memory with the vector that is sent.
        """

    @abstractmethod
    def apply_payload_to_vector(self, receive_operation: RankSendOrReceive, received_payload: Buffer) -> None:
        """Add a received payload to the vector or copy the payload into the vector, as the operation requires."""

    def find_direct_receive_buffer(self, receive_operation: RankSendOrReceive) -> memoryview | None:  # noqa: ARG002 - most formats are decoded
        """Return the part of the vector into which the transport may write a payload directly.

        Return None if the payload is decoded or added. `apply_payload_to_vector` is called only for payloads that the
        transport has not written there.
        """
        return None

    def round_sums_like_receiver(self) -> None:  # noqa: B027 - without rounding there is nothing to do
        """Round all sums in the vector to the values that receivers decode.

        Called after all sends and receives.
        """


def create_payload_codec(
    compressor: Compressor,
    payload_vector: HostArray,
    piece_ranges: Sequence[VectorRange],
    combine_entries: CombineEntries = add_entries,
) -> PayloadCodec:
    """Return a codec that converts pieces of a vector into message payloads and back.

    `payload_vector` has the shape (n,) and is in host memory. `compressor` determines the number format, and
    `combine_entries` how a received piece and the piece of the vector become one.
    """
    if compressor == UNCOMPRESSED:
        return UncompressedPayloadCodec(payload_vector, piece_ranges, combine_entries)
    return CompressedPayloadCodec(compressor, payload_vector, piece_ranges, combine_entries)


class UncompressedPayloadCodec(PayloadCodec):
    """Codec that sends the entries of the vector unchanged."""

    def __init__(
        self,
        payload_vector: HostArray,
        piece_ranges: Sequence[VectorRange],
        combine_entries: CombineEntries = add_entries,
    ) -> None:
        self._combine_entries = combine_entries
        self._vector = payload_vector
        self._pieces = piece_ranges
        self._totals_to_forward: dict[range, Buffer] = {}  # pieces -> payload of their total, until it is forwarded

    def encode_payload(self, send_operation: RankSendOrReceive) -> Buffer:
        received_total = self._totals_to_forward.pop(send_operation.piece_numbers, None)
        return received_total or self._view_message_entries(send_operation).data.cast("B")

    def find_direct_receive_buffer(self, receive_operation: RankSendOrReceive) -> memoryview | None:
        return (
            self._view_message_entries(receive_operation).data.cast("B") if receive_operation.kind == "copy" else None
        )

    def apply_payload_to_vector(self, receive_operation: RankSendOrReceive, received_payload: Buffer) -> None:
        entries = self._view_message_entries(receive_operation)
        if (size_bytes := memoryview(received_payload).nbytes) != entries.nbytes:
            raise ProtocolError(
                f"rank {receive_operation.peer_rank} sent {size_bytes} bytes where {entries.nbytes} were expected; all "
                "ranks must call the same collective with vectors of the same size and type"
            )
        received = np.frombuffer(received_payload, entries.dtype)
        if receive_operation.kind == "reduce":
            self._combine_entries(received, entries)
            return
        entries[:] = received
        if receive_operation.is_forwarded:
            self._totals_to_forward[receive_operation.piece_numbers] = received_payload

    def _view_message_entries(self, rank_operation: RankSendOrReceive) -> HostArray:
        """Return the entries of one message as a view of the vector.

        The pieces of a message are contiguous.
        """
        first, last = self._pieces[rank_operation.piece_numbers[0]], self._pieces[rank_operation.piece_numbers[-1]]
        return self._vector[first.start : last.stop]


class CompressedPayloadCodec(PayloadCodec):
    """Codec that compresses every piece of the vector separately.

    The sender also keeps the rounded values that it has sent, and totals are forwarded as they were received. So all
    ranks end with the same bits.
    """

    def __init__(
        self,
        compressor: Compressor,
        payload_vector: HostArray,
        piece_ranges: Sequence[VectorRange],
        combine_entries: CombineEntries = add_entries,
    ) -> None:
        self._combine_entries = combine_entries
        self._compressor = compressor
        self._vector = payload_vector
        self._pieces = piece_ranges
        self._encoded_totals: dict[int, Buffer] = {}  # piece -> payload of its total, the same for all ranks

    def encode_payload(self, send_operation: RankSendOrReceive) -> Buffer:
        """Return the compressed payload of a send operation.

        Each piece's total is compressed once and then reused.
        """
        encode_piece = self._encode_vector_piece if send_operation.kind == "reduce" else self._encode_reduced_piece
        data = [encode_piece(piece_number) for piece_number in send_operation.piece_numbers]
        return data[0] if len(data) == 1 else b"".join(data)

    def apply_payload_to_vector(self, receive_operation: RankSendOrReceive, received_payload: Buffer) -> None:
        unread = memoryview(received_payload).cast("B")
        for piece_number in receive_operation.piece_numbers:
            piece = self._pieces[piece_number].view(self._vector)
            piece_bytes = self._compressor.compressed_size_bytes(piece.size, piece.dtype.name)
            received, unread = unread[:piece_bytes], unread[piece_bytes:]
            if receive_operation.kind == "reduce":
                self._combine_entries(self._decode_payload_of_piece(received, piece), piece)
            else:
                piece[:] = self._decode_payload_of_piece(received, piece)
                self._encoded_totals[piece_number] = received

    def round_sums_like_receiver(self) -> None:
        """Round all totals in the vector, so that all ranks have equal bits.

        Totals that this rank has not sent are rounded too.
        """
        for piece_number in range(len(self._pieces)):
            self._encode_reduced_piece(piece_number)

    def _encode_reduced_piece(self, piece_number: int) -> Buffer:
        if piece_number not in self._encoded_totals:
            self._encoded_totals[piece_number] = self._encode_vector_piece(piece_number)
        return self._encoded_totals[piece_number]

    def _encode_vector_piece(self, piece_number: int) -> Buffer:
        """Return a compressed piece of the vector.

        The piece in the vector is replaced by the values that receivers will decode.
        """
        piece = self._pieces[piece_number].view(self._vector)
        payload, _ = self._compressor.compress(piece, None)
        data = payload_to_bytes(payload).data
        piece[:] = self._decode_payload_of_piece(data, piece)
        return data

    def _decode_payload_of_piece(self, payload: Buffer, vector_piece: HostArray) -> HostArray:
        return bytes_to_vector(
            self._compressor, np.frombuffer(payload, np.uint8), vector_piece.size, vector_piece.dtype.name
        )
