"""Strategies: algorithms by which workers combine their gradients or parameters.

`base` has the contracts, `cost_model` the input of the closed forms of the step time. `SingleWorker`, `AllReduce`,
`LocalSgd` and `DiLoCo` have no servers; workers of the last two exchange every few steps (`periodic_exchange`).
`DPsgd` and `NoLoCo` (`gossip`) exchange with a few other workers instead of all.
`async_averaging` has the strategies whose workers average their parameters without waiting for all other workers.
`ParameterServer` and `Easgd` have servers; both are a `ServerBasedStrategy`, and their workers use `push_pull`.
`switching` has the strategies with two training phases. `CommandStrategy` is for training commands of the user.
`auto` has the strategy that a plan chooses among candidates.
`AnyStrategy` is the registry: the kinds that a scenario may name.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.strategies.all_reduce import AllReduce
from services.strategies.async_averaging import AdPsgd, PartialAllReduce
from services.strategies.auto import AnyCandidate, AutoStrategy
from services.strategies.base import (
    Gradient,
    PhasesAndSwitch,
    ScenarioSizes,
    SinglePhaseStrategy,
    StepResult,
    Strategy,
    WorkerAlgorithm,
    WorkerContext,
)
from services.strategies.command import CommandStrategy
from services.strategies.diloco import DiLoCo
from services.strategies.easgd import Easgd
from services.strategies.gossip import DPsgd, NoLoCo
from services.strategies.local_sgd import LocalSgd
from services.strategies.parameter_server import ParameterServer
from services.strategies.single_phase import AnySinglePhaseStrategy
from services.strategies.single_worker import SingleWorker
from services.strategies.switching.post_local_sgd import PostLocalSgd
from services.strategies.switching.strategy_switch import StrategySwitch
from services.strategies.switching.sync_switch import SyncSwitch

TrainingStrategy: TypeAlias = AnySinglePhaseStrategy | StrategySwitch | SyncSwitch | PostLocalSgd
# A plan never has the strategy `auto`, but the one that it chooses.
AnyStrategy: TypeAlias = Annotated[TrainingStrategy | CommandStrategy | AutoStrategy, Field(discriminator="kind")]

__all__ = [
    "AdPsgd",
    "AllReduce",
    "AnyCandidate",
    "AnyStrategy",
    "AutoStrategy",
    "CommandStrategy",
    "DPsgd",
    "DiLoCo",
    "Easgd",
    "Gradient",
    "LocalSgd",
    "NoLoCo",
    "ParameterServer",
    "PartialAllReduce",
    "PhasesAndSwitch",
    "PostLocalSgd",
    "ScenarioSizes",
    "SinglePhaseStrategy",
    "SingleWorker",
    "StepResult",
    "Strategy",
    "StrategySwitch",
    "SyncSwitch",
    "TrainingStrategy",
    "WorkerAlgorithm",
    "WorkerContext",
]
