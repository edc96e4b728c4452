"""Table and page of the benchmark of the overlap of exchange and compute."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.commands.measurements import RowResult
from benchmarks.commands.results_page import format_row
from benchmarks.markdown import markdown_table
from benchmarks.overlap.cases import (
    DDP_DILATION,
    HIDDEN_LAYERS,
    SAMPLES_PER_WORKER,
    STEPS,
    VIRTUAL_TIME_ENGINE,
    WORKER,
    WORKERS,
    all_rows,
)

RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results" / "overlap.md"
HEADER = ("measurement", "engine", "median (range)", "limit", "rounds", "status", "defects")
MEASURED, NOT_MEASURED = "measured", "not measured"


def format_table(results: Sequence[RowResult]) -> str:
    """Return the table of all rows in Markdown; a limit that is not met is marked."""
    return "\n".join(markdown_table(HEADER, map(_row_cells, results)))


def format_page(results: Sequence[RowResult], missing_engine: str, origin: str) -> str:
    """Return the page of results.

    Args:
        results: rows that were measured.
        missing_engine: engine whose rows were not measured; empty if all were.
        origin: machine and commit of rows that were measured in containers; empty if none were.
    """
    rows = [*map(_row_cells, results), *_missing_rows(missing_engine)]
    return f"{_introduction(origin)}\n\n" + "\n".join(markdown_table(HEADER, rows)) + f"\n\n{_rules()}\n"


def _introduction(origin: str) -> str:
    measured = f"`make bench-overlap` on {origin}." if origin else "Rows in containers have not been measured yet."
    return (
        "# Overlap of exchange and compute\n\n"
        f"{measured} Rows on `{VIRTUAL_TIME_ENGINE}` are in virtual time, the same on every host, and a test compares "
        "them with the current code."
    )


def _rules() -> str:
    return f"""\
- **Model.** {WORKERS} workers train a perceptron of {HIDDEN_LAYERS} equal hidden layers (2.1 MB). A step of \
{SAMPLES_PER_WORKER} samples per worker computes for 200 ms ({WORKER["throughput"]}), and the exchange over links of \
{WORKER["uplink"]} takes as long as the backward pass.
- **Bound.** t_f and t_b are the times of the forward and the backward pass, T is that of an exchange of the whole \
gradient after the backward pass, by the closed form. At best, T is hidden behind t_b except for the last bucket. With \
layers of unequal size, a step can take longer than this bound: the first bucket is ready later.
- **PyTorch DDP.** Both sides have the same model, batch, size of buckets, link rates and compute time of a step, and \
a dilation of {DDP_DILATION}. When a bucket of DDP is ready within this time follows from a dry run on the host; for \
Ensayo it follows from the operations of each layer. DDP's compute time contains the update. DDP exchanges several \
buckets at once, Ensayo one after another.
- **Rounds.** A round runs all trials of all rows once, {STEPS} to 18 steps each, and both sides of a ratio directly \
after each other. No trial is repeated. A step time is the median over steps and workers. Defects are reasons for \
which a trial is degraded, invalid or failed."""


def _row_cells(result: RowResult) -> tuple[str, ...]:
    description, *others, defects = format_row(result)
    return (description, result.row.engine, *others, MEASURED, defects)


def _missing_rows(engine: str) -> Iterator[tuple[str, ...]]:
    rows: Iterable[str] = (row.description for row in all_rows(engine)) if engine else ()
    return ((description, engine, "–", "–", "0", NOT_MEASURED, "") for description in rows)
