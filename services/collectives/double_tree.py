"""Double binary tree: an all-reduce that sums one half of the vector along each of two trees.

Reference: Sanders, Speck & Träff, Parallel Computing 35, 2009.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal, Self, TypeAlias

from pydantic import Field

from services.collectives.base import Collective, NetworkAndModelSizes, Round, Transfer, TransferKind, TransferSchedule
from services.schema.units import Bytes

TreeEdge: TypeAlias = tuple[int, int, int]  # depth of the child, child, parent

MIN_PREDICTABLE_MESSAGES = 128  # of a vector: with fewer, the time to fill the trees is not as in the closed form


class DoubleBinaryTree(Collective):
    """All-reduce along two binary trees, each of which handles one half of the vector.

    Each tree reduces and broadcasts its half in pieces. S is the size of the vector. An inner node of one tree is a
    leaf of the other, so all links are busy. Pieces of both halves follow each other: a link carries about 2S, however
    many ranks there are, over few hops.
    """

    kind: Literal["double_tree"] = "double_tree"
    closed_form: ClassVar[str] = "2⌊lg n⌋α + (2S + 4(⌊lg n⌋-2)s)β, s: a piece; n > 3"

    segment: Bytes = Field(
        Bytes("32KiB"),
        description="largest piece of the pipeline; larger pieces fill the trees later and may overflow link buffers",
    )
    round_trip: Bytes | None = Field(
        None,
        description="bytes that a link carries during the round trip of a piece (bandwidth-delay product); absent: "
        "computed from the network",
    )

    def fill_in_unset_fields(self, network_and_model_sizes: NetworkAndModelSizes) -> Self:
        if self.round_trip is not None or not network_and_model_sizes.bandwidth_delay_bytes:
            return self
        return self.model_copy(update={"round_trip": Bytes(f"{network_and_model_sizes.bandwidth_delay_bytes}B")})

    def plan_transfers(self, rank_count: int) -> TransferSchedule:
        trees = [sorted(_tree_edges(rank_count, half)) for half in (0, 1)]
        depths = range(1, 1 + max((depth for tree in trees for depth, _, _ in tree), default=0))
        reduce_rounds = (_transfers_at_depth(trees, depth, "reduce") for depth in reversed(depths))
        broadcast_rounds = (_transfers_at_depth(trees, depth, "copy") for depth in depths)
        return TransferSchedule(
            chunk_count=2,
            rounds=(*reduce_rounds, *broadcast_rounds),
            is_pipelined=True,
            max_piece_bytes=int(self.segment),
            sends_partial_sums_first=True,
            # One piece per level is on its way up and one on its way down; hosts buffer as many in between.
            window_pieces=4 * len(depths) or None,
            window_extra_bytes=len(depths) * int(self.round_trip or 0),
        )

    def explain_inapplicable_form(self, rank_count: int, message_count: int) -> str:
        if rank_count > 2 and message_count < MIN_PREDICTABLE_MESSAGES:  # noqa: PLR2004 - two ranks have no inner rank
            return f"a vector of {message_count} messages is too short to fill the pipeline of a double tree"
        return ""

    def all_reduce_time_s(self, rank_count: int, vector_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
        """Return the run time of the all-reduce in seconds.

        The run time is the latency of all tree levels plus the time to send the bytes of the busiest rank. S is the
        size of the vector. An inner rank sends 2S: S/2 to its parent, S/2 to each of two children, and S/2 as a leaf of
        the other tree. From a depth of three on, the trees must fill first: four pieces per level, measured on the
        virtual transport.
        """
        fill_bytes = _pieces_to_fill_pipeline(rank_count) * min(self.segment, vector_bytes / 2)
        busiest_bytes = _max_sent_volume_in_vectors(rank_count) * vector_bytes + fill_bytes
        return 2 * _tree_depth(rank_count) * alpha_s + busiest_bytes * beta_s_per_byte

    def latency_hidden_by_transfer_s(
        self, rank_count: int, vector_bytes: float, piece_bytes: float, data_transfer_s: float, path_latency_s: float
    ) -> float:
        """Return the seconds during which message latency and data transfer overlap.

        The overlap is at most the shorter of the two times. Over short distances, links are idle only while the trees
        fill. Over long distances, they are always idle except for half of the bytes that they carry. Measured on the
        virtual transport for 2 to 16 ranks, run times are 0.96 to 1.08 of this prediction, and 1.18 for three ranks.
        """
        if rank_count == 1:
            return 0.0
        levels, piece_share = 2 * _tree_depth(rank_count), min(piece_bytes / vector_bytes, 0.5)
        vectors_sent = _max_sent_volume_in_vectors(rank_count)
        exposed_share = (vectors_sent / 2 + levels * piece_share) / (
            vectors_sent + _pieces_to_fill_pipeline(rank_count) * piece_share
        )
        return max(0.0, min((1 - max(1, levels - 3) / levels) * path_latency_s, (1 - exposed_share) * data_transfer_s))


def _tree_depth(rank_count: int) -> int:
    """Return the number of levels below the root of each tree."""
    return rank_count.bit_length() - 1


def _max_sent_volume_in_vectors(rank_count: int) -> float:
    """Return the data volume that the busiest rank sends, as a multiple of the vector size.

    The volume is 2 vectors, but 1.5 for three ranks and 1 for two ranks.
    """
    return min(rank_count, 4) / 2 if rank_count > 1 else 0.0


def _pieces_to_fill_pipeline(rank_count: int) -> int:
    """Return the number of pieces that a link carries until the pipeline is full.

    Both trees send on all levels.
    """
    return 4 * max(0, _tree_depth(rank_count) - 2)


def _tree_edges(rank_count: int, vector_half_index: int) -> Iterator[TreeEdge]:
    """Yield the edges of the tree that sums one half of the vector.

    `vector_half_index` is 0 or 1. Inner nodes of the first tree are the ranks with odd numbers; those of the second
    tree are the even ones. The second tree numbers the ranks in reverse where their number is even, and shifted by one
    where it is odd.
    """
    for depth, child, parent in _make_binary_tree_edges(1, rank_count, root_depth=0):
        if vector_half_index == 0:
            yield depth, child - 1, parent - 1
        elif rank_count % 2:
            yield depth, child % rank_count, parent % rank_count
        else:
            yield depth, rank_count - child, rank_count - parent


def _make_binary_tree_edges(first_node: int, last_node: int, root_depth: int) -> Iterator[TreeEdge]:
    """Yield the edges of an in-order binary tree with the nodes `first_node`, …, `last_node`.

    `first_node` is odd, and odd numbers are leaves.
    """
    root = _subtree_root(first_node, last_node)
    for low, high in ((first_node, root - 1), (root + 1, last_node)):
        if low <= high:
            yield root_depth + 1, _subtree_root(low, high), root
            yield from _make_binary_tree_edges(low, high, root_depth + 1)


def _subtree_root(first_node: int, last_node: int) -> int:
    """Return the root of the subtree that has the nodes `first_node` to `last_node`.

    It is `first_node` - 1 + p, where p is the largest power of two that does not exceed the number of nodes.
    """
    return first_node - 1 + (1 << ((last_node - first_node + 1).bit_length() - 1))


def _transfers_at_depth(trees: list[list[TreeEdge]], depth: int, transfer_kind: TransferKind) -> Round:
    """Return all transfers between the ranks at `depth` and their parents, in both trees."""
    return tuple(
        Transfer(*((child, parent) if transfer_kind == "reduce" else (parent, child)), half, half + 1, transfer_kind)
        for half, tree in enumerate(trees)
        for child_depth, child, parent in tree
        if child_depth == depth
    )
