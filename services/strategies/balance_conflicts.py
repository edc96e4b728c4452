"""Conflicts between the load balancing of a strategy and other keys of the scenario."""

from collections.abc import Iterator

from services.learning.batch_balance import BatchBalance
from services.schema.conflicts import KeyConflict, prepend_parent_key
from services.strategies.base import ScenarioSizes

BALANCE_DESCRIPTION = (
    "load balancing: the share of each batch that a worker processes. uniform: equal shares; proportional: by declared "
    "speeds or given weights; dynamic: by measured speeds"
)


def find_balance_conflicts(
    balance: BatchBalance, scenario_sizes: ScenarioSizes, exchange_period: int = 1, unsupported_reason: str = ""
) -> Iterator[KeyConflict]:
    """Yield the conflicts between the key `balance` of a strategy and other keys.

    Key paths are relative to the strategy.

    Args:
        balance: division of a batch over the workers.
        scenario_sizes: sizes of the scenario.
        exchange_period: steps from one exchange of the strategy to the next. Shares change only after an exchange.
        unsupported_reason: why the strategy needs equal shares; empty if it does not.
    """
    if balance.has_equal_shares:
        return
    if reason := unsupported_reason or scenario_sizes.equal_shares_need:
        yield KeyConflict(("balance",), reason)
        return
    if balance.resize_period % exchange_period:
        message = (
            f"period ({balance.resize_period}) is not a multiple of the {exchange_period} steps between two exchanges "
            f"of the strategy; shares change only after an exchange; use {exchange_period} or a multiple of it"
        )
        yield KeyConflict(("balance", "period"), message)
    speeds, steps = scenario_sizes.declared_speeds, scenario_sizes.steps
    yield from prepend_parent_key("balance", balance.find_scenario_conflicts(scenario_sizes.batch, speeds, steps))


def find_switch_balance_conflicts(phase_key: str, balance: BatchBalance) -> Iterator[KeyConflict]:
    """Yield a conflict if a training phase before or after a strategy switch has unequal shares.

    The second phase may have fewer workers that compute, and asynchronous workers.
    """
    if not balance.has_equal_shares:
        message = f"balance {balance.kind} can't be combined with a switch of the strategy; use balance uniform"
        yield KeyConflict((phase_key, "balance"), message)
