"""Strategy-Switch: all-reduce until the model has stabilised, then an asynchronous parameter server; or any two others.

N. Provatas, I. Chalas, I. Konstantinou, N. Koziris, "Strategy-Switch", IEEE Access 13, 2025. We differ: training
goes on in steps, not in epochs; the rule's numbers are a scenario's to choose; the switch works in every direction.
Servers stand beside the workers from the start and rest before the switch, so that the number of workers stays; with
`placement: promoted` workers become servers.
"""

from typing import Literal, Self

from pydantic import Field, PositiveFloat

from services.collectives import Site
from services.parameter_server.synchronisers import Asp
from services.strategies.all_reduce import AllReduce
from services.strategies.base import Cost
from services.strategies.parameter_server import ParameterServer
from services.strategies.switch_rules import AnySwitchRule, Plateau
from services.strategies.switching import Part, StatePolicy, Switching

DEFAULT_AFTER = ParameterServer(synchrony=Asp())


class StrategySwitch(Switching):
    """`before` until `when` fires, `after` from then on."""

    kind: Literal["strategy_switch"] = "strategy_switch"
    before: Part = Field(default=AllReduce(), description="all_reduce or parameter_server")
    after: Part = Field(default=DEFAULT_AFTER, description="all_reduce or parameter_server")
    when: AnySwitchRule = Field(default=Plateau(), description="plateau of the loss, at a step, or never")
    rate: Literal["keep_per_sample", "keep"] | PositiveFloat = Field(
        default="keep_per_sample",
        description="of learning after the switch. keep_per_sample: a sample counts as much as before, so an update "
        "from one worker's gradient uses 1/n; keep: the same rate; a number: so many times the rate before",
    )
    optimiser_state: StatePolicy = Field(
        default="carry", description="carry: as it was; zero: vectors zero, count of updates kept; reset: as at first"
    )

    @property
    def parts(self) -> tuple[Part, Part]:
        return self.before, self.after

    @property
    def switch_rule(self) -> AnySwitchRule:
        return self.when

    @property
    def state_policy(self) -> StatePolicy:
        return self.optimiser_state

    def factor(self, workers: int) -> float:
        if self.rate == "keep":
            return 1.0
        if self.rate == "keep_per_sample":
            return _share(self.after, workers) / _share(self.before, workers)
        return self.rate

    def settled(self, site: Site, cost: Cost) -> Self:
        before, after = (part.settled(site, cost) for part in self.parts)
        return self.model_copy(update={"before": before, "after": after})

    def refusal(self, workers: int) -> str | None:
        return self._rate_twice(workers) or super().refusal(workers)

    def _rate_twice(self, workers: int) -> str | None:
        """Why the rate after the switch would be decided in two places."""
        if not isinstance(self.after, ParameterServer):
            return None
        if self.after.rate != "per_sample":
            return f"after has rate {self.after.rate}; what becomes of the rate is said beside it, by the switch's rate"
        fewer = self.after.gathers(workers) < self.after.computing(workers)
        if self.rate == "keep_per_sample" and fewer and _divides(self.after) and not _divides(self.before):
            return (
                f"staleness {self.after.staleness.kind} divides the rate by {workers} on average, and rate "
                "keep_per_sample does so again; write rate: keep, or staleness none, exponential or cut_off"
            )
        return None


def _share(part: Part, workers: int) -> float:
    """Of the rate of lockstep that gives a sample the same weight in an update of this part.

    As much as an update has of a batch; the whole of it where staleness divides by as much already.
    """
    return 1.0 if _divides(part) else part.gathers(workers) / part.computing(workers)


def _divides(part: Part) -> bool:
    """Whether the age of gradients divides the rate by the workers that an update does not have, on average."""
    return isinstance(part, ParameterServer) and part.staleness.divides_by_workers
