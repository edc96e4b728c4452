"""Actions that the state machine of a run returns, and that the runtime of the coordinator executes."""

from dataclasses import dataclass
from typing import TypeAlias

from services.coordinator import switch_machine
from services.runtime.control import EvaluationPointReport


@dataclass(frozen=True)
class StartTrainingAction:
    """Action of the coordinator: let all nodes start training."""


@dataclass(frozen=True)
class EvaluateParametersAction:
    """Action of the coordinator: evaluate the parameters that a worker has reported.

    Afterwards, `RunStateMachine.handle_evaluation` is called.
    """

    report: EvaluationPointReport


@dataclass(frozen=True)
class LogTrainLossAction:
    """Action of the coordinator: log the mean training loss since the previous evaluation point.

    The mean is taken over all workers.
    """

    report: EvaluationPointReport
    mean_loss: float


@dataclass(frozen=True)
class ReplyToEvaluationPointAction:
    """Action of the coordinator: reply to a worker's report at an evaluation point.

    A reply with a stop reason stops the worker.
    """

    node_name: str
    evaluation_number: int
    stop_reason: str


@dataclass(frozen=True)
class RequestStrategySwitchAction:
    """Action of the coordinator: request a strategy switch from a worker.

    The request is part of the reply to the worker's report at an evaluation point. The switch takes place before the
    next step.
    """

    node_name: str
    evaluation_number: int


@dataclass(frozen=True)
class AnnounceRunStopAction:
    """Action of the coordinator: send the stop reason to all nodes that wait for the end of the run."""

    stop_reason: str


@dataclass(frozen=True)
class FinishRunAction:
    """Action of the coordinator: log the end of the run.

    All nodes have left the run.
    """


@dataclass(frozen=True)
class EndSwitchWaitAction:
    """Action of the coordinator: end the wait of nodes for a strategy switch.

    All workers have left the run.
    """


RunAction: TypeAlias = (
    StartTrainingAction
    | EvaluateParametersAction
    | LogTrainLossAction
    | ReplyToEvaluationPointAction
    | RequestStrategySwitchAction
    | AnnounceRunStopAction
    | FinishRunAction
    | EndSwitchWaitAction
    | switch_machine.SwitchAction
)
