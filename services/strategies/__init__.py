"""Strategies: algorithms by which workers combine their gradients or parameters.

base              contracts of strategies and of worker algorithms
all_reduce        workers sum their gradients in every step
local_training    workers train alone for several steps, and then exchange with all others
gossip            workers exchange with a few others, all at the same step
async_averaging   workers average their parameters without waiting for all others
server_based      workers exchange with servers
switching         strategies with two training phases
auto              the plan chooses a strategy among candidates
cost_model        cost model of a cluster, from which the closed forms predict the step time
vector_sums       ways in which workers sum one vector each
overlap           exchange of a gradient during the backward pass
single_phase      registry of the strategies with one training phase

`SingleWorker` is the baseline without an exchange, `CommandStrategy` is for training commands of the user.
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
from services.strategies.gossip import DPsgd, NoLoCo
from services.strategies.local_training import DiLoCo, LocalSgd
from services.strategies.server_based import Easgd, ParameterServer
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
