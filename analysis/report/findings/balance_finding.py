"""Finding on load balancing: how much faster unequal shares of a batch are than equal shares."""

from collections.abc import Sequence

from analysis.metrics.batch_shares import BatchBalanceResult
from analysis.report.wording import format_number, format_worker_count, join_names
from analysis.results.summary import RunSummary
from analysis.results.trial_group import TrialGroup


def load_balancing_finding(summary: RunSummary) -> str:
    """Return a sentence on the speed of strategies with unequal shares, compared with the one with equal shares.

    Applies to one strategy with equal shares and at least one with unequal shares, on one number of workers and with
    one combination of swept values. All samples of the run are counted, also those before the shares have changed.
    """
    groups = [group for group in summary.trial_groups if not group.is_baseline]
    balanced = [group for group in groups if _balance_of(group)]
    equal = [group for group in groups if not _balance_of(group)]
    if not balanced or len(equal) != 1 or len({(group.workers, group.condition) for group in groups}) > 1:
        return ""
    equal_s = equal[0].mean_time_s("time_to_samples")
    if not equal_s:
        return ""  # training that took no time has no ratio
    ratios = [
        f"{format_number(equal_s / group.mean_time_s('time_to_samples'))} times as high with "
        f"{group.strategy}{_describe_changes(group)}"
        for group in balanced
    ]
    return (
        f"compared with equal shares ({equal[0].strategy}), the samples per second on "
        f"{format_worker_count(equal[0].workers)} are {join_names(ratios)}{_describe_bound(balanced)}"
    )


def _balance_of(group: TrialGroup) -> BatchBalanceResult | None:
    return next((trial.batch_balance for trial in group.trials if trial.batch_balance), None)


def _describe_changes(group: TrialGroup) -> str:
    """Return how often the first repeat changed its shares; empty if it did not."""
    balance = _balance_of(group)
    count = balance.adjustment_count if balance else 0
    return f" ({count} change{'s' * (count > 1)} of the shares)" if count else ""


def _describe_bound(groups: Sequence[TrialGroup]) -> str:
    """Return the largest gain of compute that the speeds allow; empty where speeds vary or are not declared."""
    balances = [balance for group in groups if (balance := _balance_of(group))]
    bounds = {balance.speedup_bound for balance in balances if balance.equal_compute_s is not None}
    return f"; the speeds allow at most {format_number(bounds.pop())} times" if len(bounds) == 1 else ""
