"""Lines of text on strategies that a plan chooses among candidates, for the terminal."""

from collections.abc import Iterator, Sequence

from ensayo.terminal.terminal_text import format_step_time, trial_title
from services.plan import Plan, StrategyChoice
from services.plan.candidates.strategy_choice import NEGLIGIBLE_SHARE

MAX_LISTED = 5


def strategy_choice_lines(plans: Sequence[Plan]) -> Iterator[str]:
    """Yield lines on each choice among candidates: the choice by prediction, and what probes will compare."""
    for plan in plans:
        if plan.strategy_choice is None or plan.repeat:
            continue
        choice, title = plan.strategy_choice, f"#{plan.trial[:3]} {trial_title(plan)}"
        yield (
            f"{title}: quality {choice.guard}, {len(choice.candidates)} candidates; chosen by prediction: "
            f"{choice.chosen_candidate.name}, the first in the list whose step is at most {NEGLIGIBLE_SHARE:.0%} "
            f"longer than the shortest{_describe_probes(choice)}"
        )
        yield from _list_candidates(choice)


def _describe_probes(choice: StrategyChoice) -> str:
    """Return what probes will compare before the trial."""
    count = len(choice.numbers_to_probe)
    return f"; {count} candidates will be probed before the trial" if count else "; no candidate will be probed"


def _list_candidates(choice: StrategyChoice) -> Iterator[str]:
    """Yield a line for each of the fastest candidates, and a line for the others."""
    probed, seconds = choice.numbers_to_probe, choice.predicted_s_by_number
    listed = list(dict.fromkeys((*(probed or [choice.chosen]), *seconds)))[: max(MAX_LISTED, len(probed))]
    for number in listed:
        candidate = choice.candidates[number]
        estimate = f", an estimate: {candidate.estimate_reason}" if candidate.estimate_reason else ""
        probe = ", will be probed" if number in probed else ""
        yield f"  {format_step_time(seconds[number])} {candidate.name} ({candidate.quality}{probe}{estimate})"
    slower, impossible = len(seconds) - len(listed), len(choice.candidates) - len(seconds)
    if slower or impossible:
        yield f"  {slower} more candidates are possible, {impossible} are not"
