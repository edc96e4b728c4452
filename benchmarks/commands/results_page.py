"""Table of the benchmark of users' commands."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.commands.measurements import RowResult
from benchmarks.markdown import markdown_table

RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results" / "commands.md"
HEADER = ("measurement", "median (range)", "limit", "rounds", "defects")


def format_table(results: Sequence[RowResult]) -> str:
    """Return the table of all rows in Markdown; a limit that is not met is marked."""
    return "\n".join(markdown_table(HEADER, [format_row(result) for result in results]))


def format_page(results: Sequence[RowResult], origin: str) -> str:
    """Return the page of results, with the machine and commit of the measurement."""
    return (
        "# Users' training commands on shaped links\n\n"
        f"`make bench-commands` on {origin}.\n\n"
        "Each row is the median over rounds; a round runs all trials of all rows once, in containers, unchanged "
        "scripts with PyTorch's gloo or Ensayo's process group. No trial is repeated. Step and collective times are "
        "medians from the third step on. Defects are reasons for which a trial is degraded, invalid or failed.\n\n"
        f"{format_table(results)}\n"
    )


def format_row(result: RowResult) -> tuple[str, ...]:
    """Return the cells of a row; a limit that is not met is marked."""
    row = result.row
    limit = f"≤ {row.at_most:g}" if row.at_most is not None else f"≥ {row.at_least:g}"
    mark = "" if result.meets_limit else " (not met)"
    values = "–"
    if result.values:
        values = f"{median(result.values):.3f}"
    if len(result.values) > 1:
        values += f" ({min(result.values):.3f} to {max(result.values):.3f})"
    defects = "; ".join(f"{count} × {reason}" for reason, count in Counter(result.defects).items())
    return (row.description, values, limit + mark, str(len(result.values)), defects)
