"""Planned shares of a batch, and the step time that load balancing can reach."""

from collections.abc import Sequence

from services.collectives.data_exchange.gather_numbers import gather_rounds
from services.learning.batch_balance import BatchBalance
from services.learning.batch_balance.base import BatchShares
from services.learning.data_order import split_proportionally
from services.plan.node_plan import NodePlan
from services.schema.component import FrozenRecord
from services.strategies.base import SinglePhaseStrategy


class BalancePlan(FrozenRecord):
    """Load balancing of a trial, as far as it is known before the trial. Times are virtual seconds.

    The compute time of a step is that of the slowest worker, without variation of speeds. It is None if a worker has no
    declared speed.
    """

    resize_period: int  # steps after which workers exchange measured speeds; 0: the shares never change
    messages_per_resize: int = 0  # that each worker sends to exchange speeds
    shares: tuple[int, ...] | None  # of a whole batch, by rank, at the declared speeds; None: a speed is not declared
    equal_compute_s: float | None = None  # of a step with equal shares
    balanced_compute_s: float | None = None  # of a step with `shares`
    # Ratio of the compute times with equal shares and with shares that are proportional to the speeds, not rounded.
    speedup_bound: float | None = None


def plan_initial_shares(strategy: SinglePhaseStrategy, worker_nodes: Sequence[NodePlan], batch: int) -> BatchShares:
    """Return the workers' shares of a batch at the first step of a training phase, by rank."""
    balance = strategy.describe_worker_exchange().balance
    return balance.initial_shares(batch, [node.throughput for node in worker_nodes])


def plan_balance(balance: BatchBalance, worker_nodes: Sequence[NodePlan], batch: int) -> BalancePlan | None:
    """Return the plan of the load balancing of a training phase; None with equal shares."""
    if balance.has_equal_shares:
        return None
    workers = len(worker_nodes)
    messages = len(gather_rounds(workers)) if balance.resize_period else 0
    speeds = [node.throughput for node in worker_nodes if node.throughput]
    if len(speeds) < workers:
        return BalancePlan(resize_period=balance.resize_period, messages_per_resize=messages, shares=None)
    shares = _shares_at_declared_speeds(balance, batch, speeds)
    equal = split_proportionally(batch, (1,) * workers)
    return BalancePlan(
        resize_period=balance.resize_period,
        messages_per_resize=messages,
        shares=shares,
        equal_compute_s=_slowest_s(equal, speeds),
        balanced_compute_s=_slowest_s(shares, speeds),
        speedup_bound=_slowest_s(equal, speeds) * sum(speeds) / batch,
    )


def _shares_at_declared_speeds(balance: BatchBalance, batch: int, speeds: Sequence[float]) -> BatchShares:
    """Return the shares of a whole batch after measurements of exactly the declared speeds."""
    initial = balance.initial_shares(batch, speeds)
    return balance.resize_shares(initial, tuple(speeds))


def _slowest_s(shares: Sequence[int], speeds: Sequence[float]) -> float:
    return max(share / speed for share, speed in zip(shares, speeds, strict=True))
