"""Which trials of a run are in no comparison, and why not?"""

from collections import Counter

from analysis.results.summary import Summary

INTERRUPTED = "interrupted"  # as engines give the reason


def missing(summary: Summary) -> list[str]:
    """How many trials have not run, and how many ran for nothing; nothing where all of them count."""
    return [each for each in (_not_run(summary), _lost(summary)) if each]


def total(summary: Summary) -> int:
    """How many trials were planned."""
    return len(summary.trials) + len(_unread(summary)) + len(summary.not_run)


def unreadable(summary: Summary) -> int:
    """How many trials have records that can't be trusted to tell all."""
    return _reasons(summary)["unreadable"]


def _not_run(summary: Summary) -> str:
    count = len(summary.not_run)
    if not count:
        return ""
    why = "the run was interrupted" if _interrupted(summary) else "the run broke off, or still goes on"
    return f"{_of(count, summary)} {'has' if count == 1 else 'have'} not run: {why}"


def _lost(summary: Summary) -> str:
    reasons = _reasons(summary)
    count = sum(reasons.values())
    if not count:
        return ""
    told = ", ".join(f"{each} {reason}" for reason, each in reasons.items() if each)
    return f"{_of(count, summary)} {'is' if count == 1 else 'are'} in no comparison: {told}"


def _reasons(summary: Summary) -> Counter[str]:
    """How many trials each reason keeps out; who can't be read is not asked how it ended."""
    unread = _unread(summary)
    lost = [trial for trial in summary.trials if not trial.finished]
    damaged = {trial.id for trial in lost} & _damaged(summary)
    stopped = {trial.id for trial in lost if trial.status == "aborted"} - damaged
    interrupted = stopped & _interrupted(summary)
    return Counter(
        {
            "failed": len(lost) - len(damaged) - len(stopped),
            "interrupted": len(interrupted),
            "without an end": len(stopped - interrupted),
            "unreadable": len(damaged) + len(unread),
        }
    )


def _interrupted(summary: Summary) -> set[str]:
    return {trial.id for trial in summary.trials if trial.status_reason == INTERRUPTED}


def _damaged(summary: Summary) -> set[str]:
    """Trials of which some file is damaged."""
    return {told.split("/")[1] for told in summary.damage if told.startswith("trials/")}


def _unread(summary: Summary) -> set[str]:
    """Trials that have no row, since nothing of them can be understood."""
    return _damaged(summary) - {trial.id for trial in summary.trials}


def _of(count: int, summary: Summary) -> str:
    return f"{count} of {total(summary)} trials"
