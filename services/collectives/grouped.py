"""Groups of ranks for collectives with two levels.

The groups are declared, have a declared size, or are the racks of the network.
"""

from abc import ABC
from collections.abc import Iterator
from typing import Self, TypeAlias

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from services.collectives.base import NetworkAndModelSizes
from services.collectives.rendezvous import OptionalRendezvousCollective
from services.schema.conflicts import KeyConflict, raise_conflicts

RankGroups: TypeAlias = tuple[tuple[int, ...], ...]


class RankGroupCollective(OptionalRendezvousCollective, ABC):
    """A collective with two levels: inside each group of ranks, and between the groups."""

    size: PositiveInt | None = Field(
        None, description="ranks per group, in the order of their numbers; the last group may have fewer"
    )
    groups: tuple[tuple[NonNegativeInt, ...], ...] = Field(
        (), description="ranks of each group; when groups and size are absent, the network's racks or regions"
    )

    @model_validator(mode="after")
    def _reject_key_conflicts(self) -> Self:
        raise_conflicts(self._find_group_conflicts())
        return self

    def _find_group_conflicts(self) -> Iterator[KeyConflict]:
        if self.size and self.groups:
            yield KeyConflict(("size",), "size and groups exclude each other; remove one of them")

    def unsupported_rank_count_reason(self, rank_count: int) -> str | None:
        grouped_ranks = sorted(rank for group in self.groups for rank in group)
        if not self.groups or (all(self.groups) and grouped_ranks == list(range(rank_count))):
            return None
        last_rank = rank_count - 1
        return f"groups of {self.kind} must contain the ranks 0 to {last_rank}, each once, and no group may be empty"

    def fill_in_unset_fields(self, network_and_model_sizes: NetworkAndModelSizes) -> Self:
        resolved = super().fill_in_unset_fields(network_and_model_sizes)
        if self.size or self.groups:
            return resolved
        return resolved.model_copy(update={"groups": tuple(rack for rack in network_and_model_sizes.racks if rack)})

    def rank_groups(self, rank_count: int) -> RankGroups:
        """Return the ranks of each group.

        All ranks form one group if neither the groups nor their size are set.
        """
        if self.groups:
            return self.groups
        size = self.size or rank_count
        return tuple(tuple(range(first, min(first + size, rank_count))) for first in range(0, rank_count, size))
