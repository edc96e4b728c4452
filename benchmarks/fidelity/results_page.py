"""Table, results page and saved outcomes of the fidelity benchmark."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.fidelity.provenance import MeasurementOrigin
from benchmarks.fidelity.row import FidelityMeasurement, RowOutcome
from benchmarks.markdown import markdown_table

RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results" / "fidelity.md"
TABLE_HEADER = ("", "what", "declared", "achieved, median (range)", "error", "gate", "samples", "trials")
RULES = (
    "Every measurement has a fixed number of samples, and every sample counts. A trial that failed or whose verdict is "
    "not valid is counted in the last column and was not run again: the repeats of disturbed trials (`attempts`) take "
    "no part. Trials run at the dilation that `dilation: auto` chose on this host, except where two dilations are "
    "compared."
)


def read_outcomes(path: Path, current: MeasurementOrigin) -> dict[str, RowOutcome]:
    """Return the saved outcomes that the current commit measured on this host, by row name.

    Outcomes of another commit or host are dropped. The result is empty if the file is missing or not valid.
    """
    try:
        outcomes = [RowOutcome.model_validate(document) for document in json.loads(path.read_text())]
    except (OSError, ValueError):
        return {}
    return {outcome.row: outcome for outcome in outcomes if outcome.origin.is_comparable(current)}


def save_outcomes(path: Path, outcomes: Iterable[RowOutcome]) -> None:
    """Write outcomes to a file, which replaces the outcomes that the file contained."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([outcome.model_dump(mode="json") for outcome in outcomes], indent=1) + "\n")


def write_page(
    page_path: Path, machine_name: str, outcomes_by_row: Mapping[str, RowOutcome], row_names: Collection[str]
) -> None:
    """Write the results page and, beside it, all samples as JSON.

    Args:
        page_path: path of the page.
        machine_name: name of this host, for the page.
        outcomes_by_row: outcomes of one commit on one host; at least one.
        row_names: names of all rows, in the order of the page.
    """
    outcomes = [outcomes_by_row[name] for name in row_names if name in outcomes_by_row]
    not_measured = [name for name in row_names if name not in outcomes_by_row]
    head = f"# What `make bench-fidelity` printed\n\n{_origin_sentences(machine_name, outcomes)}\n\n{RULES}"
    page_path.parent.mkdir(parents=True, exist_ok=True)
    page_path.write_text(f"{head}\n\n{format_outcomes(outcomes, not_measured)}\n")
    save_outcomes(page_path.with_suffix(".json"), outcomes)


def format_outcomes(outcomes: Iterable[RowOutcome], not_measured: Sequence[str] = ()) -> str:
    """Return the table of outcomes, and the names of the rows that were not measured."""
    remarks = ("", f"Not measured: {', '.join(not_measured)}.") if not_measured else ()
    return "\n".join((*markdown_table(TABLE_HEADER, _table_rows(outcomes)), *remarks))


def _origin_sentences(machine_name: str, outcomes: Sequence[RowOutcome]) -> str:
    """Return the sentences of a page that state the machine, the commit, the dates and the duration."""
    origin, wall_s = outcomes[0].origin, sum(outcome.wall_s for outcome in outcomes)
    dates = [outcome.origin.date for outcome in outcomes]
    host = f"{origin.host.cpu}, {origin.host.cores} cores, Linux {origin.host.kernel}, Docker {origin.host.engine}"
    return (
        f"Machine: {machine_name} ({host}). All rows were measured by commit {origin.commit}, from {min(dates)} to "
        f"{max(dates)} (UTC), in {wall_s / 60:.0f} minutes."
    )


def _table_rows(outcomes: Iterable[RowOutcome]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row of the table of all outcomes."""
    for outcome in outcomes:
        if outcome.failed:
            yield ("FAILED", outcome.row, "", outcome.failed, "", "", "", "")
        yield from map(_measurement_cells, outcome.lines)


def _measurement_cells(measurement: FidelityMeasurement) -> tuple[str, ...]:
    samples, unit = measurement.samples, measurement.unit
    spread = f"{measurement.median_achieved:.4g} ({min(samples):.4g} - {max(samples):.4g}) {unit}" if samples else "–"
    declared = f"{measurement.declared:.4g} {unit}" if measurement.declared else "–"
    error = "–" if measurement.relative_error is None else f"{measurement.relative_error:+.2%}"
    passed_mark = "ok" if measurement.gate.has_limits else ""
    mark = passed_mark if measurement.is_within_gate else "NOT OK"
    trial_text = measurement.trial_text.replace("|", "/").replace("\n", " ")
    return mark, measurement.what, declared, spread, error, str(measurement.gate), str(len(samples)), trial_text
