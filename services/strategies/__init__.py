"""Strategies: how workers agree on an update.

`none` trains on one worker, `all_reduce` sums gradients along a collective's routes, `parameter_server` lets servers
hold the parameters. `strategy_switch` and `sync_switch` begin with one way and go on with another. `AnyStrategy` is the
registry: the kinds that a scenario may name.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.strategies.all_reduce import AllReduce
from services.strategies.base import Gradient, Outcome, Peer, Strategy
from services.strategies.none import Alone
from services.strategies.parameter_server import ParameterServer
from services.strategies.strategy_switch import StrategySwitch
from services.strategies.switching import Switching
from services.strategies.sync_switch import SyncSwitch

AnyStrategy: TypeAlias = Annotated[
    Alone | AllReduce | ParameterServer | StrategySwitch | SyncSwitch, Field(discriminator="kind")
]

__all__ = [
    "AllReduce",
    "Alone",
    "AnyStrategy",
    "Gradient",
    "Outcome",
    "ParameterServer",
    "Peer",
    "Strategy",
    "StrategySwitch",
    "Switching",
    "SyncSwitch",
]
