"""Sentences on the goodput of a run whose scenario declares failures."""

from collections.abc import Sequence
from itertools import groupby

from analysis.report.wording import (
    describe_free_recovery,
    format_count,
    format_failure_count,
    format_number,
    format_quantity,
    join_names,
)
from analysis.results.summary import RunSummary
from analysis.results.trial_group import TrialGroup

PARTS = {  # field of Goodput -> name in a sentence
    "lost_steps": "lost steps",
    "detection": "the detection of failures",
    "recovery": "recovery",
    "checkpoints": "checkpoints",
    "absence": "the absence of lost workers",
    "other": "gaps that are not explained",
}
MIN_NAMED_SHARE = 0.01  # smaller parts of the time are not named
MAX_NAMED = 4  # groups whose goodput a sentence states


def goodput_finding(summary: RunSummary) -> str:
    """Return a sentence on the goodput of all groups for each declared failure rate, the highest rate first.

    Applies if nodes were lost and the goodput of every group is known. Values that are not significantly different are
    stated, too: the table of strategies has their intervals.
    """
    groups = [group for group in summary.trial_groups if not group.is_baseline]
    is_known = all(group.declares_failures and group.goodput is not None for group in groups)
    if not is_known or not any(group.failure_count for group in groups):
        return ""
    by_interval: dict[float, list[TrialGroup]] = {}
    for group in sorted(groups, key=_declared_interval_s):
        by_interval.setdefault(_declared_interval_s(group), []).append(group)
    return "; ".join(_describe_rate(interval_s, members) for interval_s, members in by_interval.items())


def _declared_interval_s(group: TrialGroup) -> float:
    """Return the declared mean time between failures of all nodes; 0 if failures are declared at steps or times."""
    return group.trials[0].failure_interval_s or 0.0


def _describe_rate(interval_s: float, groups: Sequence[TrialGroup]) -> str:
    """Return the goodput of groups with the same failure rate from the highest to the lowest."""
    ranked = sorted(groups, key=lambda group: -(group.goodput or 0.0))
    shown = ranked if len(ranked) <= MAX_NAMED else [ranked[0], ranked[-1]]
    policies = [str(group.trials[0].failure_policy) for group in shown]
    has_one_setting = len({(group.strategy, group.workers) for group in groups}) == 1
    names = policies if has_one_setting and len({*policies}) == len(groups) else [group.description for group in shown]
    texts = [f"{format_quantity(group.goodput, '%')} with {name}" for group, name in zip(shown, names, strict=True)]
    rate = f"with a failure every {format_number(interval_s)} s on average, " if interval_s else ""
    between = "" if len(shown) == len(ranked) else " and between these with the others"
    return f"{rate}goodput is {join_names(texts)}{between}"


def describe_goodput(summary: RunSummary) -> list[str]:
    """Return sentences on the goodput, and on trials whose goodput is not measured.

    Return no sentence if the scenario declares no failures: the goodput then says nothing about failures.
    """
    groups = [group for group in summary.trial_groups if group.declares_failures and not group.is_baseline]
    known = sorted((group for group in groups if group.goodput is not None), key=lambda each: -(each.goodput or 0.0))
    measured = filter(None, [_describe_groups(known), describe_free_recovery(summary.engine)]) if known else ()
    return [*measured, *_describe_unmeasured(summary)]


def _describe_groups(groups: Sequence[TrialGroup]) -> str:
    """Return the goodput of groups from the highest to the lowest, and what the lowest loses most time to."""
    shown = groups if len(groups) <= MAX_NAMED else [groups[0], groups[-1]]
    texts = [
        f"{format_quantity(group.goodput, '%')} ({format_failure_count(group.failure_count)}) with {group.description}"
        for group in shown
    ]
    between = "" if len(shown) == len(groups) else "; the other goodputs lie between these"
    lost_count = sum(group.failure_count for group in groups)
    trial_count = sum(len(group.trials) for group in groups)
    lost = f"nodes were lost {format_count(lost_count, 'time')} in {format_count(trial_count, 'trial')}"
    losses = lost if lost_count else "no node was lost"
    return f"goodput is {join_names(texts)}{between} ({losses}){_describe_largest_part(groups[-1], len(groups))}"


def _describe_largest_part(group: TrialGroup, group_count: int) -> str:
    """Return the largest part of the time of a group that is not goodput; empty if it is small."""
    shares = {
        part: sum(getattr(trial.goodput, part) or 0.0 for trial in group.trials) / len(group.trials) for part in PARTS
    }
    part = max(shares, key=lambda name: shares[name])
    if shares[part] < MIN_NAMED_SHARE:
        return ""
    subject = f"of {group.strategy}" if group_count == 1 else "of the last"
    return f"; the largest other part {subject} is {PARTS[part]} ({format_quantity(shares[part], '%')})"


def _describe_unmeasured(summary: RunSummary) -> list[str]:
    """Return one sentence per reason why the goodput of trials with declared failures is not measured."""
    trials = [trial for trial in summary.trials if trial.failure_policy is not None and not trial.baseline]
    unmeasured = sorted((t for t in trials if t.goodput.share is None), key=lambda trial: trial.goodput.reason)
    return [
        f"goodput is not measured in {len([*members])} of {format_count(len(trials), 'trial')}: {reason}"
        for reason, members in groupby(unmeasured, key=lambda trial: trial.goodput.reason)
    ]
