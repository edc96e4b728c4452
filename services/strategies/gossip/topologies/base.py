"""Base class of gossip topologies, which determine with whom each worker mixes its parameters."""

from abc import ABC, abstractmethod

from services.schema.component import ScenarioComponent
from services.schema.conflicts import KeyConflict
from services.strategies.gossip.mixing import MixingRound


class GossipTopology(ScenarioComponent, ABC):
    """Topology of decentralised training: the neighbours of each worker, and the weights of their parameters."""

    @abstractmethod
    def mixing_rounds(self, worker_count: int) -> tuple[MixingRound, ...]:
        """Return the rounds of mixing that the workers repeat in turn.

        With m rounds, step t mixes with round t modulo m. A single worker has one round without neighbours.
        """

    def find_conflict(self, worker_count: int) -> KeyConflict | None:  # noqa: ARG002 - most fit every number
        """Return why this topology does not fit a number of workers, or None; the key is relative to the topology."""
        return None
