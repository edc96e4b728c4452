"""Contracts of strategies, and the records that they exchange with planner and nodes.

strategy              the strategy that a scenario declares, and its training phases
exchange_planning     what a plan needs to know of a training phase: pattern, bytes, step time, quality
node_algorithms       what nodes run in a training phase
worker_algorithm      the algorithm of a worker, called by its training loop
worker_context        resources of a worker, and the gradient and the result of a step
exchange_pattern      how often and with whom workers exchange vectors
scenario_sizes        sizes of a scenario, which decide whether a strategy can be used
sent_bytes            bytes that each node sends in a step
partner_byte_bounds   bounds of these bytes, where workers choose their partners during the run
training_quality      how close training is to synchronous training without compression

A strategy is a component that a scenario declares. It has one training phase, or two with a strategy switch between
them. Workers run a `WorkerAlgorithm`: coroutines over the interfaces Transport and Clock. Servers run a
`ServerAlgorithm`.
"""

from services.strategies.base.exchange_pattern import IDENTITY_COMPRESSOR, ExchangePattern
from services.strategies.base.exchange_planning import ExchangePlanning, StrategyFormatStage
from services.strategies.base.node_algorithms import NodeAlgorithms
from services.strategies.base.scenario_sizes import ScenarioSizes, WholeVectorNeed
from services.strategies.base.sent_bytes import BytesPerStep, average_bytes_per_step
from services.strategies.base.strategy import PhasesAndSwitch, SinglePhaseStrategy, Strategy
from services.strategies.base.worker_algorithm import WorkerAlgorithm
from services.strategies.base.worker_context import Gradient, StepResult, WorkerContext, WorkerState

__all__ = [
    "IDENTITY_COMPRESSOR",
    "BytesPerStep",
    "ExchangePattern",
    "ExchangePlanning",
    "Gradient",
    "NodeAlgorithms",
    "PhasesAndSwitch",
    "ScenarioSizes",
    "SinglePhaseStrategy",
    "StepResult",
    "Strategy",
    "StrategyFormatStage",
    "WholeVectorNeed",
    "WorkerAlgorithm",
    "WorkerContext",
    "WorkerState",
    "average_bytes_per_step",
]
