"""What do collectives of two levels share? Groups of ranks: given, of a size, or the racks of the network."""

from abc import ABC
from collections.abc import Iterator
from typing import Self, TypeAlias

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from services.collectives.base import Site
from services.collectives.rendezvous import Rendezvous
from services.schema.conflicts import Conflict, refuse

Groups: TypeAlias = tuple[tuple[int, ...], ...]


class Grouped(Rendezvous, ABC):
    """A collective that treats ranks of one group and of several differently."""

    size: PositiveInt | None = Field(None, description="ranks per group, by their numbers; the last may have fewer")
    groups: tuple[tuple[NonNegativeInt, ...], ...] = Field(
        (), description="ranks that stand together; when neither this nor size is given, the network's racks or regions"
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        refuse(self._conflicts())
        return self

    def _conflicts(self) -> Iterator[Conflict]:
        if self.size and self.groups:
            yield Conflict(("size",), "groups say who stands together already; write one of the two")

    def refusal(self, ranks: int) -> str | None:
        named = sorted(rank for group in self.groups for rank in group)
        if not self.groups or (all(self.groups) and named == list(range(ranks))):
            return None
        return f"groups of {self.kind} hold the ranks 0 to {ranks - 1}, each once, and none is empty"

    def settled(self, site: Site) -> Self:
        settled = super().settled(site)
        if self.size or self.groups:
            return settled
        return settled.model_copy(update={"groups": tuple(rack for rack in site.racks if rack)})

    def among(self, ranks: int) -> Groups:
        """The groups; all ranks in one where nothing is said or settled, as on one switch."""
        if self.groups:
            return self.groups
        size = self.size or ranks
        return tuple(tuple(range(first, min(first + size, ranks))) for first in range(0, ranks, size))
