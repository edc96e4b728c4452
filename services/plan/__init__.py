"""What is decided before a trial starts: nodes, addresses, shard ranges, expected bytes, predicted times.

`make_plan` makes a `Plan` of one trial of a scenario. After it, nobody decides anything of this kind again.
"""

from services.plan.make_plan import horizon_s, make_plan
from services.plan.node_plan import COORDINATOR, NodePlan, Role
from services.plan.plan import AfterSwitch, Plan

__all__ = ["COORDINATOR", "AfterSwitch", "NodePlan", "Plan", "Role", "horizon_s", "make_plan"]
