"""Strategy that a plan chooses among candidates: by predicted step times, and by those of a few probed candidates."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from services.schema.conflicts import KeyConflict
from services.schema.limits import MAX_SERVERS
from services.strategies.all_reduce import AllReduce
from services.strategies.auto.candidates import AnyCandidate, list_default_candidates
from services.strategies.auto.quality import QualityGuard, explain_unpermitted
from services.strategies.base import PhasesAndSwitch, ScenarioSizes, Strategy
from services.strategies.server_based import ParameterServer

MAX_PROBES = 20
MAX_PROBE_STEPS = 10_000


class AutoStrategy(Strategy):
    """Placeholder for the strategy with the shortest step among candidates.

    The plan of a trial predicts the step time of each candidate with its closed form. Before the trial, the fastest
    candidates by prediction train for a few steps on the same engine (probes), and the measured step times decide. The
    trial then runs the chosen strategy as if the scenario declared it. The quality guard limits the choice to
    candidates whose training is close enough to synchronous training without compression.
    """

    kind: Literal["auto"] = "auto"
    quality: QualityGuard = Field(
        "exact",
        description="quality guard. exact: sums of all gradients in every step, without compression; rounded: also "
        "with 16-bit payloads; lossy: also compressors with error feedback or small errors, and local steps",
    )
    candidates: tuple[AnyCandidate, ...] | None = Field(
        None, min_length=1, description="strategies to choose among; null: a list that follows from the other keys"
    )
    servers: int = Field(
        0, ge=0, le=MAX_SERVERS, description="dedicated servers that a default candidate may use; 0: none"
    )
    max_period: PositiveInt = Field(16, description="longest period of local_sgd and diloco under quality: lossy")
    probes: NonNegativeInt = Field(
        3,
        le=MAX_PROBES,
        description="largest number of candidates that train a few steps before the trial; 0: predictions decide",
    )
    probe_steps: PositiveInt = Field(
        20, le=MAX_PROBE_STEPS, description="training steps of a probe; at least three periods of local steps"
    )
    margin: float = Field(
        0.25,
        ge=0,
        description="a candidate is probed if its predicted step is at most this share longer than the least",
    )

    def find_scenario_conflicts(self, scenario_sizes: ScenarioSizes) -> Iterator[KeyConflict]:
        if not scenario_sizes.has_link_rates:
            why = "auto compares predicted step times, but the scenario declares no link rate"
            yield KeyConflict((), f"{why}; set cluster.worker.uplink, or use another kind of strategy")
        if self.candidates and self.servers:
            why = "servers has no effect, because candidates lists all strategies"
            yield KeyConflict(("servers",), f"{why}; remove servers, or candidates")
        for number, candidate in enumerate(self.candidates or ()):
            if reason := explain_unpermitted(candidate, self.quality, self.max_period):
                yield KeyConflict(("candidates", number), reason)

    def list_candidates(self) -> tuple[AnyCandidate, ...]:
        return self.candidates or tuple(list_default_candidates(self.quality, self.servers, self.max_period))

    def training_phases(self) -> PhasesAndSwitch:
        """Return a phase with as many servers as the candidate with the most servers.

        It stands for all candidates where the nodes of a scenario are counted.
        """
        servers = max(candidate.training_phases().server_count for candidate in self.list_candidates())
        return PhasesAndSwitch(ParameterServer(servers=servers) if servers else AllReduce())
