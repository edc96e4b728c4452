"""Cost model of a cluster, from which the closed forms of strategies predict the step time.

cluster_costs           link speeds and compute times of a cluster
compute_times           compute times of all workers in the steps of a training phase
exchange_schedule       steps after which workers exchange vectors
step_time_prediction    the predicted step time
"""

from services.strategies.cost_model.cluster_costs import CostModel, Flow, FlowBytes, LinkId
from services.strategies.cost_model.compute_times import ComputeTimes
from services.strategies.cost_model.exchange_schedule import ExchangeSchedule
from services.strategies.cost_model.step_time_prediction import (
    EARLY_EXCHANGE_REASON,
    MAX_NEGLECTED_SHARE,
    StepTimePrediction,
)

__all__ = [
    "EARLY_EXCHANGE_REASON",
    "MAX_NEGLECTED_SHARE",
    "ComputeTimes",
    "CostModel",
    "ExchangeSchedule",
    "Flow",
    "FlowBytes",
    "LinkId",
    "StepTimePrediction",
]
