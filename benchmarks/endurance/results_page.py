"""The page docs/results/endurance.md."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.endurance.catalogue import ROWS
from benchmarks.endurance.row import RowOutcome
from benchmarks.markdown import markdown_table
from compose.calibration.capacity import HostFingerprint

RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results" / "endurance.md"
INTRODUCTION = """Rows with containers use a Docker engine of their own, which has nothing else. "Left" are processes,
temporary files, locked run folders, containers, networks and volumes."""


def format_page(outcomes: Iterable[RowOutcome], host: HostFingerprint, machine: str) -> str:
    """Return the page with the given rows."""
    place = f"Machine: {machine} ({host.cpu}, {host.cores} cores, Linux {host.kernel})."
    lines = ["# What `make bench-endurance` printed", "", place, "", INTRODUCTION, ""]
    for outcome in outcomes:
        lines += format_row(outcome)
    return "\n".join(lines)


def format_row(outcome: RowOutcome) -> Iterator[str]:
    """Yield the lines of a row: its title, and a table or the reason why it failed."""
    yield f"## `{outcome.row}`: {ROWS[outcome.row].title}"
    yield ""
    if outcome.failed:
        yield f"failed: {outcome.failed}"
    else:
        header = ("", "result", "limit", "met")
        cells = ((line.what, line.result, line.limit, _format_met(line.limit, line.is_met)) for line in outcome.lines)
        yield from markdown_table(header, cells)
    yield ""
    yield f"Measured in {outcome.wall_s} s. Commit {outcome.commit}, {outcome.date}."
    yield ""


def _format_met(limit: str, is_met: bool) -> str:
    if limit == "–":
        return "–"
    return "yes" if is_met else "**no**"
