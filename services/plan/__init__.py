"""Planning of a trial: nodes, network addresses, shards and predicted times.

The plan also contains the expected numbers of bytes. `make_plan` returns the `Plan` of one trial: a `TrainingPlan` or a
`CommandPlan`. It contains all decisions that are possible before a trial starts; later code only reads them.
"""

from services.cluster.node_faults import COORDINATOR
from services.plan.candidates.candidate_plans import make_probe_plan
from services.plan.candidates.strategy_choice import StrategyChoice
from services.plan.commands.command_plan import CommandPlan
from services.plan.make_plan import make_plan
from services.plan.node_plan import NodePlan, NodeRole
from services.plan.plan import Plan
from services.plan.plan_decoding import decode_plan
from services.plan.training.make_training_plan import random_event_horizon_s
from services.plan.training.phase_plans import PostSwitchPhasePlan
from services.plan.training.training_plan import TrainingPlan

__all__ = [
    "COORDINATOR",
    "CommandPlan",
    "NodePlan",
    "NodeRole",
    "Plan",
    "PostSwitchPhasePlan",
    "StrategyChoice",
    "TrainingPlan",
    "decode_plan",
    "make_plan",
    "make_probe_plan",
    "random_event_horizon_s",
]
