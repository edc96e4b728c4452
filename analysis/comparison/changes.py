"""What changed between two runs? One row per strategy, condition and number of workers that both have."""

from collections.abc import Sequence
from pathlib import Path

from analysis.checks.verdict import worst_level
from analysis.reading.run_folder import RunFolder
from analysis.report.wording import NO_VALUE, format_count, format_number, format_worker_count
from analysis.results.examine import analyse_run
from analysis.results.excluded_trials import count_unreadable_trials
from analysis.results.result import TrialGroup, restrict_to_shared_seeds
from analysis.results.summary import RunSummary

HEADER = (
    "strategy",
    "workers",
    "step ms",
    "step ms",
    "ratio",
    "to target s",
    "to target s",
    "ratio",
    "repeats",
    "verdicts",
)
NOTHING = "nothing in common: no strategy ran on as many workers under the same condition in both"


def compare(before: Path, after: Path) -> str:
    """A text table; a ratio is after / before, so below 1 is faster."""
    return text(read(before), read(after))


def read(run_folder: Path) -> RunSummary:
    """The numbers of a run, from its logs; raises UserError when the folder is not a run's."""
    return analyse_run(RunFolder(run_folder))[1]


def text(old: RunSummary, new: RunSummary) -> str:
    """The table of two runs that have been read."""
    heading = f"before: {old.scenario} {old.run} ({old.verdict})\nafter:  {new.scenario} {new.run} ({new.verdict})\n"
    footer = "".join([_alone("before", old, new), _alone("after", new, old)])
    shared = rows(old, new)
    return f"{heading}\n{text_table([HEADER, *shared]) if shared else NOTHING}{footer}"


def _alone(name: str, run: RunSummary, other: RunSummary) -> str:
    """What only one of them can compare, and what it can't read and might have in common with the other."""
    theirs = {_kind(group) for group in other.groups}
    kinds = [_kind(group) for group in run.groups if _kind(group) not in theirs]
    told = ", ".join(f"{' '.join(filter(None, kind[:2]))} on {format_worker_count(kind[2])}" for kind in kinds)
    lost = count_unreadable_trials(other)
    unread = f"; of the other {format_count(lost, 'trial')} can't be read" if lost else ""
    return f"\nin the run {name} alone: {told}{unread}" if told else ""


def rows(old: RunSummary, new: RunSummary) -> list[tuple[str, ...]]:
    """What both runs have, in the order of the second; of repeats those whose seeds both have, where any are."""
    then = {_kind(group): group for group in old.groups}
    return [_row(then[_kind(group)], group) for group in new.groups if _kind(group) in then]


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) if not place else cell.rjust(width) for place, (cell, width) in enumerate(cells))
        for cells in ([*zip(row, widths, strict=True)] for row in rows)
    )


def _kind(group: TrialGroup) -> tuple[str, str, int]:
    return group.strategy, group.condition, group.workers


def _row(before: TrialGroup, after: TrialGroup) -> tuple[str, ...]:
    before, after, repeats = _paired(before, after)
    name = f"{after.strategy} {after.condition}".strip()
    steps = [1000 * group.median_step_s if group.median_step_s else None for group in (before, after)]
    times = [group.time_to_target_s if group.has_reached_target else None for group in (before, after)]
    verdicts = "/".join(worst_level(trial.verdict for trial in group.trials) for group in (before, after))
    return name, str(after.workers), *_pair(*steps), *_pair(*times), repeats, verdicts


def _paired(before: TrialGroup, after: TrialGroup) -> tuple[TrialGroup, TrialGroup, str]:
    """The repeats that are compared, and how many they are."""
    counts = f"{len(before.trials)}, {len(after.trials)}"
    shared = before.seeds & after.seeds
    if not shared:
        return before, after, f"{counts}: other seeds"
    if before.seeds == after.seeds:
        return before, after, str(len(shared)) if len(before.trials) == len(after.trials) else counts
    return *restrict_to_shared_seeds(before, after), f"{len(shared)} shared of {counts}"


def _pair(before: float | None, after: float | None) -> tuple[str, str, str]:
    return format_number(before), format_number(after), f"{after / before:.2f}" if before and after else NO_VALUE
