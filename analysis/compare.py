"""What changed between two runs? One row per strategy, condition and number of workers that both have."""

from collections.abc import Sequence
from pathlib import Path

from analysis.checks.verdict import worst_level
from analysis.folder import RunFolder
from analysis.result import Group
from analysis.summary import Summary, judge, summarise
from analysis.table import read_run
from analysis.wording import NONE, number

HEADER = ("strategy", "workers", "step ms", "step ms", "ratio", "to target s", "to target s", "ratio", "verdicts")


def compare(before: Path, after: Path) -> str:
    """A text table; a ratio is after / before, so below 1 is faster."""
    old, new = read(before), read(after)
    then = {_kind(group): group for group in old.groups}
    rows = [_row(then[_kind(group)], group) for group in new.groups if _kind(group) in then]
    alone = {_kind(group) for group in new.groups} ^ set(then)
    heading = f"before: {old.scenario} {old.run} ({old.verdict})\nafter:  {new.scenario} {new.run} ({new.verdict})\n"
    footer = f"\nonly in one of them: {', '.join(sorted(' '.join(map(str, kind)) for kind in alone))}" if alone else ""
    return f"{heading}\n{text_table([HEADER, *rows])}{footer}"


def read(run_folder: Path) -> Summary:
    """The numbers of a run, from its logs; raises UserError when the folder is not a run's."""
    folder = RunFolder(run_folder)
    folder.check()
    table = read_run(folder)
    return summarise(table, judge(table))


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) if not place else cell.rjust(width) for place, (cell, width) in enumerate(cells))
        for cells in ([*zip(row, widths, strict=True)] for row in rows)
    )


def _kind(group: Group) -> tuple[str, str, int]:
    return group.strategy, group.condition, group.workers


def _row(before: Group, after: Group) -> tuple[str, ...]:
    name = f"{after.strategy} {after.condition}".strip()
    steps = [1000 * group.step_s if group.step_s else None for group in (before, after)]
    times = [group.time_to_target_s if group.reached else None for group in (before, after)]
    verdicts = "/".join(worst_level(trial.verdict for trial in group.trials) for group in (before, after))
    return name, str(after.workers), *_pair(*steps), *_pair(*times), verdicts


def _pair(before: float | None, after: float | None) -> tuple[str, str, str]:
    return number(before), number(after), f"{after / before:.2f}" if before and after else NONE
