"""Planning of a trial: nodes, network addresses, shards and predicted times.

The plan also contains the expected numbers of bytes. `make_plan` returns the `Plan` of one trial. It contains all
decisions that are possible before a trial starts; later code only reads them.
"""

from services.plan.make_plan import make_plan, random_event_horizon_s
from services.plan.node_plan import COORDINATOR, NodePlan, NodeRole
from services.plan.plan import Plan, PostSwitchPhasePlan

__all__ = ["COORDINATOR", "NodePlan", "NodeRole", "Plan", "PostSwitchPhasePlan", "make_plan", "random_event_horizon_s"]
