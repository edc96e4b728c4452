"""Calls from a node to the coordinator, and the records that the calls transfer.

Nodes and coordinator send the records to each other.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from signal import SIGUSR1
from typing import Literal, TypeAlias, get_args

# Sent by the engine to the coordinator's process when the network is set up as planned: the run may start.
OPEN_START_GATE_SIGNAL = SIGUSR1


@dataclass(frozen=True)
class EvaluationPointReport:
    """Report that a worker sends to the coordinator at an evaluation point.

    An evaluation point follows a step after which quality is evaluated: by default, the last step of an epoch.
    """

    node_name: str
    number: int  # of the evaluation point, counted from 1
    steps: int  # finished by this worker since the start of the run
    samples: int  # that have contributed to the parameters so far, of all workers together
    loss_sum: float  # over the worker's samples since the previous evaluation point
    loss_samples: int  # number of these samples
    parameters: bytes = b""  # at this point, from the evaluation worker (rank 0); else empty
    parameters_sha256: str = ""


@dataclass(frozen=True)
class FinalNodeReport:
    """Final state that a node sends to the coordinator.

    For a server, it contains the parameters of its shard.
    """

    parameters: bytes = b""  # a server's shard of the parameters; empty from a worker
    version: int = 0
    samples: int = 0


@dataclass(frozen=True)
class StopOrSwitchDecision:
    """Decision of the coordinator after an evaluation point: continue, stop or switch strategy.

    The decision applies to the worker that has reported the point.
    """

    stop_reason: str = ""  # empty when the worker goes on
    must_switch_strategy: bool = False  # another strategy takes over before the worker's next step


ReportStage: TypeAlias = Literal["stopped", "loaded"]
REPORT_STAGES: tuple[ReportStage, ...] = get_args(ReportStage)  # in their order


@dataclass(frozen=True)
class SwitchStageReport:
    """State of a node at one stage of a strategy switch, as reported to the coordinator.

    The stage is `stopped` when the node has stopped between two steps, and `loaded` when it has taken over the vectors
    that were sent to it. Digests are SHA-256 values, one per shard range of the parameter vector.
    """

    node_name: str
    stage: ReportStage
    next_step: int = 0  # of a worker
    version: int = 0  # number of updates of its parameters
    samples: int = 0  # that have contributed to the parameters, of all workers together
    updates: int = 0  # update count of the optimiser's state
    params_digests: tuple[str, ...] = ()  # all ranges from a worker, one from a server; empty: it has no parameters
    state_digests: tuple[str, ...] = ()  # of the optimiser's state, likewise
    failure: str = ""  # why the node can't continue the switch; empty when it can
    is_server: bool = False  # reported as a server; a node that is also a worker reports once in each role
    epoch: int = 0  # membership epoch of the node


@dataclass(frozen=True)
class StrategySwitchDecision:
    """Decision of the coordinator in a strategy switch: load, commit or abort.

    `load`: send and receive the planned vectors, then report again. `commit`: continue with the second strategy.
    `abort`: continue with the first strategy.
    """

    action: Literal["load", "commit", "abort"]
    abort_reason: str = ""
    first_step: int = 0  # of the second strategy
    version: int = 0
    samples: int = 0
    updates: int = 0


class RunEventClient(ABC):
    """Base class of clients with which a node joins a run, and starts the scenario's events that wait for a step."""

    @abstractmethod
    async def join(self) -> float:
        """Join the run, wait until it starts, and return its start time in virtual seconds."""

    @abstractmethod
    async def report_step_start(self, step: int) -> None:
        """Report that a worker begins a step for which the scenario declares an event that no worker applies itself.

        The report is also sent if the worker has skipped the step.
        """

    @abstractmethod
    async def await_event_start(self, event_number: int) -> float:
        """Wait until an event of links or of messages begins that is declared for a training step.

        Return the event's start time in virtual seconds.
        """


class CoordinatorClient(RunEventClient):
    """Base class of clients with which a node of a training calls the coordinator.

    Some calls return only when the run ends.
    """

    @abstractmethod
    async def report_evaluation_point(self, point_report: EvaluationPointReport) -> StopOrSwitchDecision:
        """Report an evaluation point to the coordinator.

        The reply is the coordinator's decision to continue, stop or switch strategy.

        Raises:
            EvictedError: the coordinator considers this node lost, and training goes on without it.
        """

    @abstractmethod
    async def await_strategy_switch_start(self) -> bool:
        """Wait until the coordinator starts a strategy switch.

        Return false if the run ends without one.
        """

    @abstractmethod
    async def report_strategy_switch(self, node_report: SwitchStageReport) -> StrategySwitchDecision:
        """Report the state of a node in a strategy switch to the coordinator.

        Return the coordinator's decision once all nodes have reported their state. If another membership epoch begins
        before the decision, the call does not return: the node learns of the new membership, and cancels the call.
        """

    @abstractmethod
    async def await_run_stop(self) -> str:
        """Wait until the coordinator stops the run, and return the reason."""

    @abstractmethod
    async def leave(self, final_report: FinalNodeReport) -> None:
        """Report that this node has finished its work, and send its final state."""
