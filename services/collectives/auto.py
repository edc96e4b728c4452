"""The cheapest collective by the closed forms, for whoever does not want to choose."""

from typing import ClassVar, Literal, NoReturn

from services.collectives.base import Collective, Schedule, Site
from services.collectives.double_tree import DoubleTree
from services.collectives.halving_doubling import HalvingDoubling
from services.collectives.hierarchical import Hierarchical
from services.collectives.hierarchical_copy import HierarchicalCopy
from services.collectives.recursive_doubling import RecursiveDoubling
from services.collectives.reduce_to_one import ReduceToOne
from services.collectives.ring import Ring
from services.collectives.tree import Tree
from services.schema.errors import ProtocolError

CANDIDATES: tuple[Collective, ...] = (  # of equals the first is taken
    Ring(order="racks"),
    HalvingDoubling(),
    RecursiveDoubling(),
    DoubleTree(),
    Tree(),
    ReduceToOne(),
)
TWO_LEVELS: tuple[Collective, ...] = (Hierarchical(), HierarchicalCopy())  # where there are two


class Auto(Collective):
    """A plan puts the member in its place that its trial's network carries soonest, and says what each would take."""

    kind: Literal["auto"] = "auto"
    closed_form: ClassVar[str] = "that of the member in its place"
    needs_link_rates: ClassVar[bool] = True

    def candidates(self, site: Site) -> tuple[Collective, ...]:
        levels = TWO_LEVELS if len([rack for rack in site.racks if rack]) > 1 else ()
        return tuple(candidate.settled(site) for candidate in (*CANDIDATES, *levels))

    def schedule(self, ranks: int) -> Schedule:  # noqa: ARG002 - there is none
        self._undecided()

    def seconds(self, ranks: int, size_bytes: float, alpha_s: float, beta_s: float) -> float:  # noqa: ARG002
        self._undecided()

    def _undecided(self) -> NoReturn:
        raise ProtocolError("auto is decided in a plan; nothing else knows the network")
