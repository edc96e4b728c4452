"""Sync-Switch: a parameter server that is synchronous at first and asynchronous later.

S. Li, O. Mangoubi, L. Xu, T. Guo, "Sync-Switch: Hybrid parameter synchronization for distributed deep learning",
ICDCS 2021. Timing policy: a fraction of the workload, found by `ensayo search-switch`. Configuration policy: n·B
samples at rate n·η in synchronous training become B samples at η per push; momentum stays. A scenario declares the
synchronous rate n·η. Straggler policies before the switch: the synchronisers `Elastic` and `Greedy`; with rate
per_sample, as here, updates of k of n gradients use k/n of the rate. The fraction counts samples, since the workers
have no common step.
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from services.compressors import AnyCompressor, Identity
from services.parameter_server.synchronisers import AnySynchroniser, Asp, Bsp, Elastic, Greedy
from services.schema.conflicts import Conflict
from services.strategies.base import Phases, Strategy, StrategyContext
from services.strategies.parameter_server import ParameterServer
from services.strategies.switching.rules import At
from services.strategies.switching.strategy_switch import switch_conflicts
from services.strategies.switching.switch import Switch

SYNCHRONISERS: dict[str, AnySynchroniser] = {"keep": Bsp(), "elastic": Elastic(), "greedy": Greedy()}


class SyncSwitch(Strategy):
    """`bsp` for a fraction of the budget's steps, then `asp`, on the same servers."""

    kind: Literal["sync_switch"] = "sync_switch"
    servers: int = Field(default=1, ge=1, description="number of nodes that own a shard of the parameters")
    fraction: float = Field(default=0.125, ge=0, le=1, description="of the steps that are synchronous; 1: all of them")
    stragglers: Literal["keep", "elastic", "greedy"] = Field(
        default="keep",
        description="before the switch. keep: all wait for stragglers; elastic: nobody waits for stragglers; greedy: "
        "nobody waits for anybody while there is a straggler",
    )
    compress: AnyCompressor = Field(
        default=Identity(), description="number format of pushes; replies are not compressed"
    )

    def phases(self) -> Phases:
        before, after = self._parts()
        rule = At(fraction=self.fraction)
        return Phases(before, Switch(before, after, rule, "carry", self._rate_factor, fraction_key=("fraction",)))

    def _parts(self) -> tuple[ParameterServer, ParameterServer]:
        synchroniser = SYNCHRONISERS[self.stragglers]
        before = ParameterServer(servers=self.servers, synchrony=synchroniser, compress=self.compress)
        return before, before.model_copy(update={"synchrony": Asp()})

    def _rate_factor(self, workers: int) -> float:
        before, after = (part.server_algorithm() for part in self._parts())
        return after.gradients_per_update(workers) / before.gradients_per_update(workers)

    def conflicts(self, context: StrategyContext) -> Iterator[Conflict]:
        """Yield each conflict of the two phases once, at a key of this strategy."""
        conflicts = switch_conflicts(*self._parts(), context, None)
        yield from dict.fromkeys(Conflict(path[1:], why) for path, why in conflicts)
