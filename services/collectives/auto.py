"""Automatic choice of the collective with the least predicted time on the trial's network."""

from typing import ClassVar, Literal, NoReturn

from services.collectives.base import Collective, NetworkAndModelSizes, TransferSchedule
from services.collectives.double_tree import DoubleBinaryTree
from services.collectives.halving_doubling import HalvingDoubling
from services.collectives.hierarchical import HierarchicalAllReduce
from services.collectives.hierarchical_copy import HierarchicalCopyAllReduce
from services.collectives.recursive_doubling import RecursiveDoubling
from services.collectives.reduce_to_one import ReduceToOne
from services.collectives.ring import Ring
from services.collectives.tree import BinomialTree
from services.schema.errors import ProtocolError

SINGLE_LEVEL_CANDIDATES: tuple[Collective, ...] = (  # of equally fast ones, the plan takes the first
    Ring(order="racks"),
    HalvingDoubling(),
    RecursiveDoubling(),
    DoubleBinaryTree(),
    BinomialTree(),
    ReduceToOne(),
)
TWO_LEVEL_CANDIDATES: tuple[Collective, ...] = (
    HierarchicalAllReduce(),
    HierarchicalCopyAllReduce(),
)  # for several racks


class AutoCollective(Collective):
    """Placeholder for the collective with the least predicted time on the trial's network.

    The plan of a trial replaces the placeholder by this collective. The plan also records the predicted time of each
    candidate. Candidates with two levels take part only where the network has several racks or regions.
    """

    kind: Literal["auto"] = "auto"
    closed_form: ClassVar[str] = "that of the collective which the plan chooses"
    needs_link_rates: ClassVar[bool] = True

    def list_auto_candidates(self, network_and_model_sizes: NetworkAndModelSizes) -> tuple[Collective, ...]:
        racks_with_ranks = [rack for rack in network_and_model_sizes.racks if rack]
        candidates = SINGLE_LEVEL_CANDIDATES + (TWO_LEVEL_CANDIDATES if len(racks_with_ranks) > 1 else ())
        return tuple(candidate.fill_in_unset_fields(network_and_model_sizes) for candidate in candidates)

    def plan_transfers(self, rank_count: int) -> TransferSchedule:  # noqa: ARG002 - it has none
        self._raise_unresolved_auto_error()

    def all_reduce_time_s(self, rank_count: int, vector_bytes: float, alpha_s: float, beta_s_per_byte: float) -> float:  # noqa: ARG002
        self._raise_unresolved_auto_error()

    def _raise_unresolved_auto_error(self) -> NoReturn:
        raise ProtocolError("collective auto has no schedule: a plan must replace it by the fastest one on its network")
