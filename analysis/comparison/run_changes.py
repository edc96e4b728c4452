"""Text table that compares two runs.

The table has a row for each combination of strategy, swept values and number of workers that both runs have.
"""

from collections.abc import Sequence
from pathlib import Path

from analysis.checks.verdict import worst_level
from analysis.reading.run_folder import RunFolder
from analysis.report.wording import NO_VALUE, format_count, format_number, format_worker_count
from analysis.results.analyse_run import analyse_run
from analysis.results.comparable_groups import restrict_to_shared_seeds
from analysis.results.excluded_trials import count_unreadable_trials
from analysis.results.summary import RunSummary
from analysis.results.trial_group import TrialGroup

TABLE_HEADER = (
    *("strategy", "workers", "step ms", "step ms", "ratio"),
    *("to target s", "to target s", "ratio", "repeats", "verdicts"),
)
NO_SHARED_GROUPS_TEXT = "nothing in common: no strategy ran under the same condition on as many workers in both runs"


def compare_runs(before_folder: str | Path, after_folder: str | Path) -> str:
    """Return a text table that compares the times of two runs.

    Ratios are after / before: below 1 means faster.
    """
    return format_run_changes(summarise_run_logs(Path(before_folder)), summarise_run_logs(Path(after_folder)))


def summarise_run_logs(run_folder: Path) -> RunSummary:
    """Compute the summary of a run from its logs.

    Raises:
        UserError: `run_folder` is not the folder of a run.
    """
    return analyse_run(RunFolder(run_folder))[1]


def format_run_changes(old_run: RunSummary, new_run: RunSummary) -> str:
    """Return a text table that compares two runs.

    The table is followed by the strategies that only one of the runs has.
    """
    heading = "".join(
        f"{label:<8}{summary.scenario} {summary.run} ({summary.verdict})\n"
        for label, summary in (("before:", old_run), ("after:", new_run))
    )
    footer = _list_unshared_trials("before", old_run, new_run) + _list_unshared_trials("after", new_run, old_run)
    shared_rows = trial_group_change_rows(old_run, new_run)
    table = format_text_table([TABLE_HEADER, *shared_rows]) if shared_rows else NO_SHARED_GROUPS_TEXT
    return f"{heading}\n{table}{footer}"


def _list_unshared_trials(run_label: str, summary: RunSummary, other_summary: RunSummary) -> str:
    """Return as text the strategies and numbers of workers that only one of two runs has.

    The result is empty if there are none. The text also gives the number of unreadable trials of the other run, because
    these may have the missing strategies.
    """
    other_keys = {_trial_group_key(group) for group in other_summary.trial_groups}
    unshared_keys = [key for group in summary.trial_groups if (key := _trial_group_key(group)) not in other_keys]
    if not unshared_keys:
        return ""
    groups = ", ".join(
        f"{' '.join(filter(None, (strategy, condition)))} on {format_worker_count(worker_count)}"
        for strategy, condition, worker_count in unshared_keys
    )
    unreadable = count_unreadable_trials(other_summary)
    note = f"; {format_count(unreadable, 'trial')} of the other run can't be read" if unreadable else ""
    return f'\nonly in "{run_label}": {groups}{note}'


def trial_group_change_rows(old_run: RunSummary, new_run: RunSummary) -> list[tuple[str, ...]]:
    """Return the table rows that compare two runs.

    There is a row for each strategy, swept values and number of workers that both runs have.

    Rows are in the order of the later run. If both runs have repeats with the same seeds, only these are compared.
    """
    old_groups = {_trial_group_key(group): group for group in old_run.trial_groups}
    return [
        _trial_group_change_row(old_groups[key], group)
        for group in new_run.trial_groups
        if (key := _trial_group_key(group)) in old_groups
    ]


def format_text_table(rows: Sequence[Sequence[str]]) -> str:
    """Format table rows as text.

    Each column is as wide as its widest cell. Only the first column is left-aligned.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) if index else cell.ljust(width) for index, (cell, width) in enumerate(cells))
        for cells in ([*zip(row, widths, strict=True)] for row in rows)
    )


def _trial_group_key(trial_group: TrialGroup) -> tuple[str, str, int]:
    return trial_group.strategy, trial_group.condition, trial_group.workers


def _trial_group_change_row(old_group: TrialGroup, new_group: TrialGroup) -> tuple[str, ...]:
    old_group, new_group, repeats = _keep_shared_seed_trials(old_group, new_group)
    name = f"{new_group.strategy} {new_group.condition}".strip()
    step_ms = [1000 * group.median_step_s if group.median_step_s else None for group in (old_group, new_group)]
    target_s = [group.time_to_target_s if group.has_reached_target else None for group in (old_group, new_group)]
    verdicts = "/".join(worst_level(trial.verdict for trial in group.trials) for group in (old_group, new_group))
    return (name, str(new_group.workers), *_format_times(*step_ms), *_format_times(*target_s), repeats, verdicts)


def _keep_shared_seed_trials(old_group: TrialGroup, new_group: TrialGroup) -> tuple[TrialGroup, TrialGroup, str]:
    """Return two groups of trials limited to shared seeds, and a text on their repeats.

    Groups without shared seeds are returned unchanged. The text is the value of the comparison column `repeats`.
    """
    counts = f"{len(old_group.trials)}, {len(new_group.trials)}"
    shared_seeds = old_group.seeds & new_group.seeds
    if not shared_seeds:
        return old_group, new_group, f"{counts}: other seeds"
    if old_group.seeds == new_group.seeds:
        return (
            old_group,
            new_group,
            str(len(shared_seeds)) if len(old_group.trials) == len(new_group.trials) else counts,
        )
    return *restrict_to_shared_seeds(old_group, new_group), f"{len(shared_seeds)} shared of {counts}"


def _format_times(old_time: float | None, new_time: float | None) -> tuple[str, str, str]:
    return (
        format_number(old_time),
        format_number(new_time),
        f"{new_time / old_time:.2f}" if old_time and new_time else NO_VALUE,
    )
