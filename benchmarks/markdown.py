"""Lines of Markdown tables, for the results pages of all benchmarks."""

from collections.abc import Iterable, Iterator, Sequence


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table with a header."""
    yield markdown_row(header)
    yield f"|{'---|' * len(header)}"
    yield from map(markdown_row, rows)


def markdown_row(cells: Iterable[str]) -> str:
    """Return one line of a Markdown table."""
    return f"| {' | '.join(cells)} |"
