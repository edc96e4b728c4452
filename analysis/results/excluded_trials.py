"""Trials of a run that are excluded from comparisons of strategies, and the reasons."""

from collections import Counter
from collections.abc import Iterator

from analysis.results.summary import RunSummary

INTERRUPTED_REASON = "interrupted"  # reason that engines record for an interrupted trial


def describe_excluded_trials(summary: RunSummary) -> list[str]:
    """Return sentences on trials that have not run, were skipped, have diverged, or are excluded from comparisons.

    The sentences give the numbers of these trials, and the reasons for exclusion.
    """
    texts = (
        _describe_trials_not_run(summary),
        *_describe_skipped_trials(summary),
        _describe_diverged_trials(summary),
        _describe_unusable_trials(summary),
    )
    return [text for text in texts if text]


def count_planned_trials(summary: RunSummary) -> int:
    """Return the number of planned trials of a run.

    Trials that have not run, were skipped or cannot be read are included.
    """
    not_measured = len(_unreadable_trial_ids(summary)) + len(summary.not_run) + len(summary.skipped)
    return len(summary.trials) + not_measured


def count_unreadable_trials(summary: RunSummary) -> int:
    """Return the number of trials that are excluded because their files are damaged."""
    return _count_exclusion_reasons(summary)["unreadable"]


def _describe_trials_not_run(summary: RunSummary) -> str:
    count = len(summary.not_run)
    if not count:
        return ""
    reason = "the run was interrupted" if _interrupted_trial_ids(summary) else "the run ended early or is still running"
    return f"{_format_count_of_planned(count, summary)} {'has' if count == 1 else 'have'} not run: {reason}"


def _describe_skipped_trials(summary: RunSummary) -> Iterator[str]:
    for reason, count in Counter(skipped.reason for skipped in summary.skipped).items():
        verb = "was" if count == 1 else "were"
        yield f"{_format_count_of_planned(count, summary)} {verb} skipped: {reason}"


def _describe_diverged_trials(summary: RunSummary) -> str:
    count = sum(trial.diverged for trial in summary.trials)
    return f"{_format_count_of_planned(count, summary)} diverged: a loss was NaN or infinite" if count else ""


def _describe_unusable_trials(summary: RunSummary) -> str:
    reasons = _count_exclusion_reasons(summary)
    count = sum(reasons.values())
    if not count:
        return ""
    counts = ", ".join(f"{reason_count} {reason}" for reason, reason_count in reasons.items() if reason_count)
    subject = f"{_format_count_of_planned(count, summary)} {'is' if count == 1 else 'are'}"
    return f"{subject} excluded from comparisons: {counts}"


def _count_exclusion_reasons(summary: RunSummary) -> Counter[str]:
    """Return the number of excluded trials by reason.

    The reasons are failed, diverged, interrupted, aborted and unreadable (damaged files).
    """
    unfinished = [trial for trial in summary.trials if not trial.is_finished]
    diverged = {trial.id for trial in unfinished if trial.diverged}
    damaged = ({trial.id for trial in unfinished} & _damaged_trial_ids(summary)) - diverged
    aborted = {trial.id for trial in unfinished if trial.status == "aborted"} - damaged - diverged
    interrupted = aborted & _interrupted_trial_ids(summary)
    return Counter(
        failed=len(unfinished) - len(damaged) - len(aborted) - len(diverged),
        diverged=len(diverged),
        interrupted=len(interrupted),
        aborted=len(aborted - interrupted),
        unreadable=len(damaged) + len(_unreadable_trial_ids(summary)),
    )


def _interrupted_trial_ids(summary: RunSummary) -> set[str]:
    return {trial.id for trial in summary.trials if trial.status_reason == INTERRUPTED_REASON}


def _damaged_trial_ids(summary: RunSummary) -> set[str]:
    """Return the ids of the trials with at least one damaged file."""
    return {damage.split("/")[1] for damage in summary.damage if damage.startswith("trials/")}


def _unreadable_trial_ids(summary: RunSummary) -> set[str]:
    """Return the ids of the damaged trials that are not in the summary.

    The files of these trials cannot be read at all.
    """
    return _damaged_trial_ids(summary) - {trial.id for trial in summary.trials}


def _format_count_of_planned(trial_count: int, summary: RunSummary) -> str:
    return f"{trial_count} of {count_planned_trials(summary)} trials"
