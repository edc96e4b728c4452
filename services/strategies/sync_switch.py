"""Sync-Switch: a parameter server that waits for everybody at first and for nobody later.

S. Li, O. Mangoubi, L. Xu, T. Guo, "Sync-Switch: Hybrid parameter synchronization for distributed deep learning",
ICDCS 2021. Timing policy: a fraction of the workload, found by `ensayo search-switch`. Configuration policy: n·B
samples at n·η in lockstep become B samples at η per push; momentum stays. A scenario's rate is the lockstep one, n·η.
Straggler policies, before the switch: `services.parameter_server.synchronisers.Elastic` and `Greedy`; with rate per_sample,
as here, updates of k of n gradients use k/n of the rate. The fraction is of the samples used then, since workers are in
no common step.
"""

from typing import Literal

from pydantic import Field

from services.compressors import AnyCompressor, Identity
from services.parameter_server.synchronisers import AnySynchroniser, Asp, Bsp, Elastic, Greedy
from services.strategies.parameter_server import ParameterServer
from services.strategies.switch_rules import At
from services.strategies.switching import Part, StatePolicy, Switching

LOCKSTEP: dict[str, AnySynchroniser] = {"keep": Bsp(), "elastic": Elastic(), "greedy": Greedy()}


class SyncSwitch(Switching):
    """`bsp` for a fraction of the budget's steps, then `asp`, on the same servers."""

    kind: Literal["sync_switch"] = "sync_switch"
    servers: int = Field(default=1, ge=1, description="how many nodes hold the parameters, a range each")
    fraction: float = Field(default=0.125, ge=0, le=1, description="of the steps that are lockstep; 1: all of them")
    stragglers: Literal["keep", "elastic", "greedy"] = Field(
        default="keep",
        description="before the switch. keep: all wait for them; elastic: nobody waits for them; greedy: nobody waits "
        "for anybody while there is one",
    )
    compress: AnyCompressor = Field(
        default=Identity(), description="number format of pushes; answers are not compressed"
    )

    @property
    def parts(self) -> tuple[Part, Part]:
        before = ParameterServer(servers=self.servers, synchrony=LOCKSTEP[self.stragglers], compress=self.compress)
        return before, before.model_copy(update={"synchrony": Asp()})

    @property
    def switch_rule(self) -> At:
        return At(fraction=self.fraction)

    @property
    def state_policy(self) -> StatePolicy:
        return "carry"

    def factor(self, workers: int) -> float:
        return self.second.gathers(workers) / self.first.gathers(workers)
