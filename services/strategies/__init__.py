"""Strategies: how workers agree on an update.

`base` has the contracts, `cost_model` what closed forms of the step time read. `none`, `all_reduce` and `local_sgd`
have no servers; `parameter_server` and `easgd` do, on the common parts `served`, `served_prediction`, `saturation` and
`push_pull`. `switching` has the strategies with two phases. `AnyStrategy` is the registry: the kinds that a scenario may
name.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.strategies.all_reduce import AllReduce
from services.strategies.base import (
    Gradient,
    Phases,
    PhaseStrategy,
    StepResult,
    Strategy,
    StrategyContext,
    WorkerAlgorithm,
    WorkerContext,
)
from services.strategies.easgd import Easgd
from services.strategies.local_sgd import LocalSgd
from services.strategies.none import SingleWorker
from services.strategies.parameter_server import ParameterServer
from services.strategies.switching.strategy_switch import StrategySwitch
from services.strategies.switching.sync_switch import SyncSwitch

AnyStrategy: TypeAlias = Annotated[
    SingleWorker | AllReduce | LocalSgd | ParameterServer | Easgd | StrategySwitch | SyncSwitch,
    Field(discriminator="kind"),
]

__all__ = [
    "AllReduce",
    "AnyStrategy",
    "Easgd",
    "Gradient",
    "LocalSgd",
    "ParameterServer",
    "PhaseStrategy",
    "Phases",
    "SingleWorker",
    "StepResult",
    "Strategy",
    "StrategyContext",
    "StrategySwitch",
    "SyncSwitch",
    "WorkerAlgorithm",
    "WorkerContext",
]
