"""Strategy-Switch: trains with one strategy until a switch rule fires, then with another.

By default all-reduce until the loss has stabilised, then an asynchronous parameter server. N. Provatas, I. Chalas,
I. Konstantinou, N. Koziris, "Strategy-Switch", IEEE Access 13, 2025. We differ: training proceeds in steps, not in
epochs; the scenario declares the numbers of the rule; the switch works in both directions. Servers exist from the start
and are idle before the switch, so the number of workers stays the same; with `placement: promoted` workers become
servers. A strategy whose workers have different parameters between two exchanges can only be the second one.
"""

from collections.abc import Iterator
from sys import maxsize
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, PositiveFloat

from services.collectives import NetworkAndModelSizes
from services.parameter_server.synchronisers import Asp
from services.schema.conflicts import KeyConflict, prepend_parent_key
from services.strategies.all_reduce import AllReduce
from services.strategies.balance_conflicts import find_switch_balance_conflicts
from services.strategies.base import PhasesAndSwitch, ScenarioSizes, Strategy
from services.strategies.cost_model import CostModel
from services.strategies.local_training import DiLoCo, LocalSgd
from services.strategies.server_based import ParameterServer
from services.strategies.switching.rules import AnySwitchRule, PlateauRule
from services.strategies.switching.switch import OptimiserStatePolicy, TrainingPhaseSwitch

SwitchablePhase: TypeAlias = Annotated[AllReduce | ParameterServer | LocalSgd | DiLoCo, Field(discriminator="kind")]
DEFAULT_FIRST_PHASE = AllReduce()
DEFAULT_SECOND_PHASE = ParameterServer(synchrony=Asp())


def _leave_out_local_training(schema: dict[str, Any]) -> None:
    """Leave out kinds whose workers have different parameters between two exchanges, so that messages list the others.

    `find_scenario_conflicts` rejects these kinds with the reason.
    """
    kinds = schema["discriminator"]["mapping"]
    for kind in ("diloco", "local_sgd"):
        schema["oneOf"].remove({"$ref": kinds.pop(kind)})


class StrategySwitch(Strategy):
    """Strategy that switches from the strategy `before` to the strategy `after`.

    The strategy trains with `before` until the switch rule `when` fires.
    """

    kind: Literal["strategy_switch"] = "strategy_switch"
    before: SwitchablePhase = Field(
        DEFAULT_FIRST_PHASE,
        description="before the switch: all_reduce or parameter_server",
        json_schema_extra=_leave_out_local_training,
    )
    after: SwitchablePhase = Field(
        DEFAULT_SECOND_PHASE, description="after the switch: all_reduce, parameter_server, local_sgd or diloco"
    )
    when: AnySwitchRule = Field(
        PlateauRule(), description="rule that decides when to switch: at a plateau of the loss, at a step, or never"
    )
    rate: Literal["keep_per_sample", "keep"] | PositiveFloat = Field(
        default="keep_per_sample",
        description="learning rate after the switch. keep_per_sample: a sample counts as much as before, so an update "
        "from one of n workers uses 1/n of the rate; keep: the same rate; a number: the rate before, times this number",
    )
    optimiser_state: OptimiserStatePolicy = Field(
        default="carry",
        description="optimiser's state after the switch. carry: unchanged; zero: vectors zero, count of updates kept; "
        "reset: initial state",
    )

    def training_phases(self) -> PhasesAndSwitch:
        has_fraction = getattr(self.when, "fraction", None) is not None
        return PhasesAndSwitch(
            self.before,
            TrainingPhaseSwitch(
                self.before,
                self.after,
                rule=self.when,
                state_policy=self.optimiser_state,
                learning_rate_factor=self._compute_lr_switch_factor,
                fraction_key=("when", "fraction") if has_fraction else None,
            ),
        )

    def explain_recovery_limit(self) -> str:
        if self.before.server_algorithm() is not None:
            return "before the switch, servers own the model; use before: {kind: all_reduce}"
        if self.after.server_algorithm() is None or self.after.describe_worker_exchange().is_synchronous:
            remedy = "use after: {kind: parameter_server, synchrony: {kind: asp}}"
            return f"synchronous training after the switch ({self.after.kind}) can't go back to a step; {remedy}"
        return self.before.explain_recovery_limit() or self.after.explain_recovery_limit()

    def _compute_lr_switch_factor(self, worker_count: int) -> float:
        if self.rate == "keep":
            return 1.0
        if self.rate == "keep_per_sample":
            return _learning_rate_scale(self.after, worker_count) / _learning_rate_scale(self.before, worker_count)
        return self.rate

    def resolve_auto_collective(
        self, network_and_model_sizes: NetworkAndModelSizes, cost_model: CostModel
    ) -> tuple[Self, dict[str, float]]:
        """Return the strategy with a chosen collective in place of `auto`.

        Also return the predicted exchange time of each candidate. If both phases have candidates, "before" or "after"
        is appended to the names of the candidates.
        """
        (before, first), (after, second) = (
            phase.resolve_auto_collective(network_and_model_sizes, cost_model) for phase in (self.before, self.after)
        )
        exchange_s = first or second
        if first and second:
            exchange_s = {f"{kind} before": seconds for kind, seconds in first.items()}
            exchange_s |= {f"{kind} after": seconds for kind, seconds in second.items()}
        return self.model_copy(update={"before": before, "after": after}), exchange_s

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        if self.before.server_algorithm() is None and not self.before.describe_worker_exchange().has_equal_replicas:
            kind = self.before.kind
            why = (
                f"between two exchanges of {kind}, every worker has its own parameters, so no common model can be kept"
            )
            yield KeyConflict(("before",), f"{why}; use all_reduce or parameter_server in before, and {kind} in after")
            return
        yield from find_phase_conflicts(
            self.before,
            self.after,
            scenario_sizes,
            self._explain_double_lr_change(scenario_sizes.workers),
        )
        if conflict := self.when.switch_time_conflict(scenario_sizes):
            key, why = conflict
            yield KeyConflict(("when", key), why)

    def _explain_double_lr_change(self, worker_count: int) -> str | None:
        """Return why two scenario keys would both change the learning rate after the switch.

        Return None if they would not.
        """
        if not isinstance(self.after, ParameterServer):
            return None
        if self.after.rate != "per_sample":
            return (
                f"after has rate {self.after.rate}, but the key rate of strategy_switch determines the rate after the "
                "switch; leave out rate in after"
            )
        algorithm = self.after.server_algorithm()
        averages_fewer = algorithm.gradients_per_update(worker_count) < algorithm.count_gradient_workers(worker_count)
        divides = _staleness_divides_lr(self.after) and not _staleness_divides_lr(self.before)
        if self.rate == "keep_per_sample" and averages_fewer and divides:
            return (
                f"both staleness {self.after.staleness.kind} and rate: keep_per_sample divide the learning rate by "
                f"{worker_count}; write rate: keep, or staleness none, exponential or cut_off"
            )
        return None


def find_phase_conflicts(
    phase_before: SwitchablePhase,
    phase_after: SwitchablePhase,
    scenario_sizes: ScenarioSizes,
    lr_conflict_reason: str | None,
) -> Iterator[KeyConflict]:
    """Yield the conflicts between two training phases of a strategy switch.

    Conflicts of learning rates come first.
    """
    if phase_before == phase_after:
        message = (
            f"before and after are the same strategy ({phase_before.kind}); before is {DEFAULT_FIRST_PHASE.kind} if it "
            "is not declared; declare another strategy or other settings in before or after"
        )
        yield KeyConflict((), message)
    elif lr_conflict_reason:
        yield KeyConflict((), lr_conflict_reason)
    conflicts = [
        *prepend_parent_key("before", phase_before.find_scenario_conflicts(scenario_sizes)),
        *prepend_parent_key("before", phase_before.find_pre_switch_conflicts()),
        *prepend_parent_key("after", phase_after.find_post_switch_conflicts(scenario_sizes)),
    ]
    yield from conflicts
    for key, phase in (("before", phase_before), ("after", phase_after)):
        yield from find_switch_balance_conflicts(key, phase.describe_worker_exchange().balance)
    shard_reason = _explain_shard_mismatch(phase_before, phase_after, scenario_sizes.workers)
    reason = shard_reason or _explain_unequal_shards(phase_before, scenario_sizes.workers)
    if reason and not conflicts:
        yield KeyConflict((), reason)


def _explain_shard_mismatch(
    phase_before: SwitchablePhase, phase_after: SwitchablePhase, worker_count: int
) -> str | None:
    """Return how shards or shard owners differ between two training phases with servers.

    A difference is not allowed. Return None if there is no difference.
    """
    before, after = phase_before.server_algorithm(), phase_after.server_algorithm()
    if before is None or after is None:
        return None
    if before.servers != after.servers:
        return (
            f"before has {before.servers} servers and after has {after.servers}, but a switch can't change the number; "
            "declare the same number in both"
        )
    parts = [each.placement.compute_shard_proportions(worker_count, each.servers) for each in (before, after)]
    if parts[0] != parts[1]:
        return (
            f"before has placement {before.placement.kind} and after has {after.placement.kind}, but a switch can't "
            "move shards; use the same placement in both"
        )
    return None


def _explain_unequal_shards(phase_before: SwitchablePhase, worker_count: int) -> str | None:
    """Return why shards of two servers may contain different updates at a strategy switch.

    Return None if the shards can't contain different updates.
    """
    algorithm = phase_before.server_algorithm()
    if algorithm is None or phase_before.describe_worker_exchange().has_equal_replicas:
        return None
    drops = not (
        algorithm.synchroniser.accepts_staleness(maxsize) and algorithm.staleness_weighting.accepts_staleness(maxsize)
    )
    may_differ = drops or algorithm.gradients_per_update(worker_count) != 1
    if len(algorithm.shard_ranges(worker_count, parameter_count=1)) == 1 or not may_differ:
        return None
    action = "drop late gradients" if drops else "choose the gradients of an update"
    return (
        f"before has several servers, and each may {action} differently, so their shards may not form one consistent "
        "model at the switch; use one server (servers: 1)"
    )


def _learning_rate_scale(training_phase: SwitchablePhase, worker_count: int) -> float:
    """Return the factor by which the learning rate of a training phase is scaled.

    With this factor, each sample has the same weight as in synchronous training. The factor is the share of the batch
    in one update. It is 1 if the staleness weights already reduce the rate.
    """
    algorithm = training_phase.server_algorithm()
    if algorithm is None or _staleness_divides_lr(training_phase):
        return 1.0
    return algorithm.gradients_per_update(worker_count) / algorithm.count_gradient_workers(worker_count)


def _staleness_divides_lr(training_phase: SwitchablePhase) -> bool:
    """Return whether staleness weights reduce the learning rate to about 1/n of it.

    n is the number of workers. The staleness weights are those of the given training phase.
    """
    algorithm = training_phase.server_algorithm()
    return algorithm is not None and algorithm.staleness_weighting.divides_lr_by_worker_count
