"""Strategy-Switch: all-reduce until the model has stabilised, then an asynchronous parameter server; or two others.

N. Provatas, I. Chalas, I. Konstantinou, N. Koziris, "Strategy-Switch", IEEE Access 13, 2025. We differ: training
proceeds in steps, not in epochs; the rule's numbers belong to the scenario; the switch works in every direction.
Servers are there from the start and idle before the switch, so the number of workers stays; with `placement: promoted`
workers become servers.
"""

from collections.abc import Iterator
from sys import maxsize
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, PositiveFloat

from services.collectives import CollectiveSite
from services.parameter_server.synchronisers import Asp
from services.schema.conflicts import Conflict, nested
from services.strategies.all_reduce import AllReduce
from services.strategies.base import Phases, Strategy, StrategyContext
from services.strategies.cost_model import CostModel
from services.strategies.parameter_server import ParameterServer
from services.strategies.switching.rules import AnySwitchRule, Plateau
from services.strategies.switching.switch import StatePolicy, Switch

SwitchablePhase: TypeAlias = Annotated[AllReduce | ParameterServer, Field(discriminator="kind")]
DEFAULT_AFTER = ParameterServer(synchrony=Asp())


class StrategySwitch(Strategy):
    """`before` until the rule `when` fires, then `after`."""

    kind: Literal["strategy_switch"] = "strategy_switch"
    before: SwitchablePhase = Field(default=AllReduce(), description="all_reduce or parameter_server")
    after: SwitchablePhase = Field(default=DEFAULT_AFTER, description="all_reduce or parameter_server")
    when: AnySwitchRule = Field(default=Plateau(), description="plateau of the loss, at a step, or never")
    rate: Literal["keep_per_sample", "keep"] | PositiveFloat = Field(
        default="keep_per_sample",
        description="learning rate after the switch. keep_per_sample: a sample counts as much as before, so an update "
        "from one worker's gradient uses 1/n; keep: the same rate; a number: the rate before times this number",
    )
    optimiser_state: StatePolicy = Field(
        default="carry", description="carry: unchanged; zero: vectors zero, count of updates kept; reset: initial state"
    )

    def phases(self) -> Phases:
        has_fraction = getattr(self.when, "fraction", None) is not None
        return Phases(
            self.before,
            Switch(
                self.before,
                self.after,
                rule=self.when,
                state_policy=self.optimiser_state,
                rate_factor=self._rate_factor,
                fraction_key=("when", "fraction") if has_fraction else None,
            ),
        )

    def _rate_factor(self, workers: int) -> float:
        if self.rate == "keep":
            return 1.0
        if self.rate == "keep_per_sample":
            return _rate_share(self.after, workers) / _rate_share(self.before, workers)
        return self.rate

    def resolve(self, site: CollectiveSite, cost: CostModel) -> tuple[Self, dict[str, float]]:
        """Resolve both phases; where both have alternatives, their names say which phase is meant."""
        (before, first), (after, second) = self.before.resolve(site, cost), self.after.resolve(site, cost)
        exchange_s = first or second
        if first and second:
            exchange_s = {f"{kind} before": seconds for kind, seconds in first.items()}
            exchange_s |= {f"{kind} after": seconds for kind, seconds in second.items()}
        return self.model_copy(update={"before": before, "after": after}), exchange_s

    def conflicts(self, context: StrategyContext) -> Iterator[Conflict]:
        yield from switch_conflicts(self.before, self.after, context, self._rate_contradiction(context.workers))
        if conflict := self.when.conflict(context.steps, context.steps_per_epoch):
            key, why = conflict
            yield Conflict(("when", key), why)

    def _rate_contradiction(self, workers: int) -> str | None:
        """Return why the rate after the switch would be decided in two places."""
        if not isinstance(self.after, ParameterServer):
            return None
        if self.after.rate != "per_sample":
            return f"after has rate {self.after.rate}; the rate of the switch decides the rate after it"
        algorithm = self.after.server_algorithm()
        averages_fewer = algorithm.gradients_per_update(workers) < algorithm.computing_workers(workers)
        divides = _staleness_divides(self.after) and not _staleness_divides(self.before)
        if self.rate == "keep_per_sample" and averages_fewer and divides:
            return (
                f"staleness {self.after.staleness.kind} divides the rate by {workers} on average, and rate "
                "keep_per_sample does so again; write rate: keep, or staleness none, exponential or cut_off"
            )
        return None


def switch_conflicts(
    before: SwitchablePhase, after: SwitchablePhase, context: StrategyContext, first_contradiction: str | None
) -> Iterator[Conflict]:
    """Yield the conflicts of two phases with a switch between them; `first_contradiction` is reported before others."""
    if before == after:
        yield Conflict((), "before and after are the same; there is nothing to switch")
    elif first_contradiction:
        yield Conflict((), first_contradiction)
    conflicts_after = after.conflicts_after_switch if isinstance(after, ParameterServer) else after.conflicts
    conflicts = [*nested("before", before.conflicts(context)), *nested("after", conflicts_after(context))]
    yield from conflicts
    reason = _moved_shards(before, after, context.workers) or _inconsistent_servers(before, context.workers)
    if reason and not conflicts:
        yield Conflict((), reason)


def _moved_shards(before: SwitchablePhase, after: SwitchablePhase, workers: int) -> str | None:
    """Return why the two phases do not have the same shards on the same servers."""
    if not (isinstance(before, ParameterServer) and isinstance(after, ParameterServer)):
        return None
    if before.servers != after.servers:
        return (
            f"before has {before.servers} servers and after has {after.servers}; a switch keeps the number of servers"
        )
    if before.placement.shares(workers, before.servers) != after.placement.shares(workers, after.servers):
        return (
            f"before has placement {before.placement.kind} and after has {after.placement.kind}; "
            "a switch leaves every shard where it is"
        )
    return None


def _inconsistent_servers(before: SwitchablePhase, workers: int) -> str | None:
    """Return why several servers may have made different updates when workers stop, so that they are not one model."""
    if not isinstance(before, ParameterServer) or before.traits().is_synchronous:
        return None
    algorithm = before.server_algorithm()
    drops = not (before.synchrony.takes(maxsize) and before.staleness.takes(maxsize))
    if len(algorithm.shards(workers, entries=1)) == 1 or (algorithm.gradients_per_update(workers) == 1 and not drops):
        return None
    action = "drop late gradients" if drops else "choose the gradients of an update"
    return (
        f"before has several servers, each of which may {action} differently; they can't hand over one model; "
        "one server can (servers: 1)"
    )


def _rate_share(phase: SwitchablePhase, workers: int) -> float:
    """Return the part of the synchronous rate that gives a sample the same weight in an update of this phase.

    As much as an update has of a batch; the whole rate where staleness divides by as much already.
    """
    algorithm = phase.server_algorithm()
    if algorithm is None or _staleness_divides(phase):
        return 1.0
    return algorithm.gradients_per_update(workers) / algorithm.computing_workers(workers)


def _staleness_divides(phase: SwitchablePhase) -> bool:
    """Return whether staleness divides the rate, on average, by the number of workers missing from an update."""
    return isinstance(phase, ParameterServer) and phase.staleness.divides_by_workers
