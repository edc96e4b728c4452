"""Strategies: how workers agree on an update.

`none` trains on one worker, `all_reduce` sums gradients along a collective's schedule, `local_sgd` takes the mean of
parameters every so many steps, `parameter_server` lets servers hold the parameters, `easgd` ties workers to a centre
that servers hold. `servers` is what the last two have in common, `update_rules` what a server does with what it gets.
`strategy_switch` and `sync_switch` begin with one way and go on with another; `switching` is what these have in common.
`AnyStrategy` is the registry: the kinds that a scenario may name.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.strategies.all_reduce import AllReduce
from services.strategies.base import Gradient, Outcome, Peer, Strategy
from services.strategies.easgd import Easgd
from services.strategies.local_sgd import LocalSgd
from services.strategies.none import Alone
from services.strategies.parameter_server import ParameterServer
from services.strategies.servers import ServedStrategy
from services.strategies.strategy_switch import StrategySwitch
from services.strategies.switching import Switching
from services.strategies.sync_switch import SyncSwitch

AnyStrategy: TypeAlias = Annotated[
    Alone | AllReduce | LocalSgd | ParameterServer | Easgd | StrategySwitch | SyncSwitch, Field(discriminator="kind")
]

__all__ = [
    "AllReduce",
    "Alone",
    "AnyStrategy",
    "Easgd",
    "Gradient",
    "LocalSgd",
    "Outcome",
    "ParameterServer",
    "Peer",
    "ServedStrategy",
    "Strategy",
    "StrategySwitch",
    "Switching",
    "SyncSwitch",
]
