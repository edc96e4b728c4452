"""Metrics and status of one trial."""

from dataclasses import dataclass, field
from typing import Any, Literal

from analysis.checks.verdict import VerdictLevel
from analysis.convergence.compare import ReferenceComparison
from analysis.metrics.batch_shares import BatchBalanceResult
from analysis.metrics.collectives import CollectiveTimes
from analysis.metrics.event_outcomes import PlannedVsActualTimes
from analysis.metrics.goodput import UNKNOWN_GOODPUT, Goodput, NodeLossResult
from analysis.metrics.learning.consensus import ConsensusResult
from analysis.metrics.learning.target import EvaluatedModel
from analysis.metrics.learning.worker_samples import WorkerSampleCounts
from analysis.metrics.step_times.compute_utilisation import UNKNOWN_UTILISATION, ComputeUtilisation
from analysis.metrics.step_times.step_seconds import StepStatistic
from analysis.metrics.strategy_changes.strategy_choice import StrategyChoiceResult
from analysis.metrics.strategy_changes.strategy_switch import StrategySwitchResult
from analysis.reading.logs.connections import ConnectionBreak
from analysis.reading.logs.membership import CheckpointFailure
from analysis.reading.logs.message_problems import MessageProblem

TrialStatus = Literal["success", "missed_target", "failed", "aborted"]
SweepLabels = dict[str, str | int | float]  # swept key -> value


@dataclass(frozen=True)
class ContinuedTrainingResult:
    """Earlier training that a trial continues from a checkpoint. The names of the fields are keys in summary.json."""

    folder: str  # of the earlier training
    is_attempt: bool  # whether it is an interrupted attempt at the trial, whose times and steps belong to the trial
    step: int  # of the checkpoint; 0: no checkpoint could be used, and training began anew
    workers: int  # that the checkpoint has states of
    unused_checkpoints: list[str]  # why the earlier training, or newer checkpoints, were not continued


@dataclass(frozen=True)
class TrialResult:
    """Metrics of one trial.

    The names of the fields are the keys in summary.json and must not change. Times are virtual seconds. Predictions are
    those of the strategy's closed form.
    """

    id: str
    strategy: str
    workers: int
    servers: int
    repeat: int
    seed: int
    labels: SweepLabels
    status: TrialStatus
    verdict: VerdictLevel
    reasons: list[str]
    steps: int
    samples: int
    seconds: float | None
    samples_per_second: float | None
    time_to_target_s: float | None
    samples_to_target: int | None
    final: dict[str, float]
    step_seconds: dict[str, float] | None
    predicted_step_seconds: float | None  # predicted counterpart of `typical_step_seconds`
    phase_seconds: dict[str, float] | None  # mean per step phase, over steps on whole batches if there are any
    bytes_sent: dict[str, int]
    expected_bytes_sent: dict[str, int]
    staleness: dict[str, Any] | None
    params_sha256: str | None
    # Keys that were added later:
    baseline: bool
    condition: str  # swept keys and values except workers, as one phrase
    declared_samples_per_second: float | None  # sum over the workers
    target: str | None
    status_reason: str
    events: list[PlannedVsActualTimes]
    typical_step_seconds: float | None  # measured counterpart of the predicted step: see `typical_of`
    predicted_samples_per_second: float | None  # of all workers, dropped gradients included
    switch: StrategySwitchResult | None = None  # of a strategy that switches
    evaluation_samples: int | None = None  # samples between the evaluation that reached the target and the previous one
    predicted_mean_step_seconds: float | None = None  # predicted mean over the steps that `phase_seconds` averages
    saturates_at: float | None = None  # predicted number of workers that saturate the servers' links
    typical_of: StepStatistic = "median"  # statistic of the steps that `typical_step_seconds` is; one value per round
    disturbed_attempts: list[str] = field(default_factory=list)  # how the host disturbed each repeated attempt
    worker_samples: list[WorkerSampleCounts] = field(default_factory=list)  # by rank
    diverged: bool = False  # a loss was NaN or infinite; false where the files of the trial are damaged
    evaluations: int = 0  # up to the evaluation that reached the target; all evaluations if the target was missed
    evaluation_seconds: float | None = None  # of these evaluations; None where they were not logged
    startup_s: float | None = None  # wall seconds from the start of the nodes to the first step; None: not measured
    reference: ReferenceComparison | None = None  # with reference convergence points; None: the workload has none
    collectives: list[CollectiveTimes] = field(default_factory=list)  # of a user's command
    extra_collectives: int = 0  # of a rank of a user's command, such as those of evaluations
    hidden_communication_seconds: float | None = (
        None  # of `phase_seconds["compute"]`, of a user's command; None: unknown
    )
    accelerator_hours: float | None = None  # workers times hours of training
    energy_joules: float | None = None  # modelled from declared power draws
    energy_reason: str = ""  # why the energy is not known
    cost: float | None = None  # from declared prices, in `currency`
    currency: str | None = None
    cost_reason: str = ""  # why the cost is not known
    compute_utilisation: ComputeUtilisation = UNKNOWN_UTILISATION  # share of the step time that is not blocked
    batch_balance: BatchBalanceResult | None = None  # None: all workers have equal shares of a batch
    strategy_choice: StrategyChoiceResult | None = None  # of a strategy that was chosen among candidates
    consensus: ConsensusResult | None = None  # of a gossip strategy
    gradient_bytes: int = 0  # of a gradient or of the parameters on the wire, without compression; 0: not known
    slowest_link_bps: float | None = None  # smallest declared rate; None: no rate is declared
    evaluated_model: EvaluatedModel | None = "shared"  # parameters on which the target is decided; None: of a command
    goodput: Goodput = UNKNOWN_GOODPUT  # share of the time in steps that count
    failure_policy: str | None = None  # None: the scenario declares neither failures, nor a policy, nor checkpoints
    failure_interval_s: float | None = None  # declared mean time between failures of all nodes together
    checkpoint_interval_steps: int | None = None  # None: no checkpoints, or their interval is a time
    checkpoint_interval_s: float | None = None  # None: no checkpoints, or their interval is a number of steps
    node_losses: list[NodeLossResult] = field(default_factory=list)  # in the order of time
    ended_by_declared_loss: bool = False  # whether a declared event that ended a node is why the trial failed
    connection_breaks: list[ConnectionBreak] = field(default_factory=list)  # in the order of time
    data_protection: str | None = None  # of messages on the data network; None: of a plan of an older version
    message_problems: list[MessageProblem] = field(default_factory=list)  # in the order of time
    mean_checkpoint_seconds: float | None = None  # of one checkpoint of a worker; None: no checkpoint was written
    mean_checkpoint_seconds_per_step: float | None = None  # of a worker; None: no checkpoint was written
    failed_checkpoints: list[CheckpointFailure] = field(default_factory=list)  # in the order of time
    uncounted_bytes_of: list[str] = field(default_factory=list)  # nodes that sent more than `bytes_sent`, or may have
    continued: ContinuedTrainingResult | None = None  # earlier training that the trial continues; None: it began anew

    @property
    def is_finished(self) -> bool:
        """Whether training ran to its end, even if it missed its target."""
        return self.status in ("success", "missed_target") and self.samples > 0

    @property
    def is_ended_as_declared(self) -> bool:
        """Whether a declared loss of a node ended the trial, and nothing else is wrong with it."""
        return self.ended_by_declared_loss and self.reasons == [self.status_reason]

    @property
    def evaluation_interval_s(self) -> float:
        """Seconds between the evaluation that reached the target and the previous evaluation.

        The value is 0 if the target was missed.
        """
        if not self.samples_to_target or not self.time_to_target_s or not self.evaluation_samples:
            return 0.0
        return self.time_to_target_s * self.evaluation_samples / self.samples_to_target

    @property
    def step_time_mean_or_median_name(self) -> StepStatistic:
        """Statistic of measured step times (mean or median) that is compared with the predicted step time.

        After a switch it is the mean, because a median would be a step of only one of the two strategies.
        """
        return "mean" if self.switch and self.switch.has_switched else self.typical_of

    @property
    def measured_step_seconds(self) -> float | None:
        """Measured step time in seconds, for comparison with the predicted step time.

        It is a mean or a median of the steps.
        """
        if self.switch and self.switch.has_switched:
            return sum(self.phase_seconds.values()) if self.phase_seconds else None
        return self.typical_step_seconds

    @property
    def unpredicted_step_time_share(self) -> float | None:
        """Share by which the measured step time exceeds the predicted step time.

        It is measured step time / predicted step time - 1: the share that the formula does not predict.
        """
        if not self.measured_step_seconds or not self.predicted_step_seconds:
            return None
        return self.measured_step_seconds / self.predicted_step_seconds - 1
