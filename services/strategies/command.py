"""Strategy of users' training commands: selects gloo or Ensayo to run the collectives of the script."""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field

from services.collectives import AnyCollective, NetworkAndModelSizes, Ring
from services.compressors import AnyCompressor, Compressor, IdentityCompressor
from services.schema.conflicts import KeyConflict
from services.strategies.all_reduce import AllReduce
from services.strategies.base import PhasesAndSwitch, ScenarioSizes, Strategy
from services.strategies.cost_model import CostModel

COMPRESSED_TYPES = frozenset({"float32", "float64"})


def compressor_of_type(compress: Compressor, type_name: str) -> Compressor:
    """Return the number format in which sums of entries of a type (a name of NumPy or PyTorch) are sent.

    Only fp32 and fp64 are compressed: whole numbers must stay exact, and the other types are as short already.
    """
    return compress if type_name in COMPRESSED_TYPES else IdentityCompressor()


class CommandStrategy(Strategy):
    """The collectives of a user's command, run by gloo or by Ensayo."""

    kind: Literal["command"] = "command"
    process_group: Literal["gloo", "ensayo"] = Field(
        "gloo",
        description="implementation of the collectives of torch.distributed. gloo: that of PyTorch; ensayo: schedules, "
        "compressors and transport of Ensayo",
    )
    collective: AnyCollective = Field(Ring(), description="algorithm of all-reduce, with process_group: ensayo")
    compress: AnyCompressor = Field(
        IdentityCompressor(), description="number format of vectors sent, with process_group: ensayo"
    )

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        if self.process_group == "ensayo":
            if self.compress.aggregation != "partial_sums":
                why = f"but compressor {self.compress.kind} encodes whole vectors; use fp16, bf16 or identity"
                yield KeyConflict(("compress",), f"process_group: ensayo adds partial sums, {why}")
            yield from self._all_reduce.find_scenario_conflicts(scenario_sizes)
            return
        for key, default in (("collective", Ring()), ("compress", IdentityCompressor())):
            if getattr(self, key) != default:
                yield KeyConflict(
                    (key,),
                    f"{key} has no effect with process_group: gloo; write process_group: ensayo, or remove {key}",
                )

    def resolve_auto_collective(
        self, network_and_model_sizes: NetworkAndModelSizes, cost_model: CostModel
    ) -> tuple[Self, dict[str, float]]:
        chosen, exchange_s = self._all_reduce.resolve_auto_collective(network_and_model_sizes, cost_model)
        return self.model_copy(update={"collective": chosen.collective}), exchange_s

    def training_phases(self) -> PhasesAndSwitch:
        """Return one phase: the all-reduce that predicts the command's collectives.

        The ring all-reduce of gloo has the cost of Ensayo's ring.
        """
        return PhasesAndSwitch(self._all_reduce)

    @property
    def _all_reduce(self) -> AllReduce:
        return AllReduce(collective=self.collective, compress=self.compress)
