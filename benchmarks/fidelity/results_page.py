"""Table, results page and saved outcomes of the fidelity benchmark."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.fidelity.provenance import MeasurementOrigin
from benchmarks.fidelity.row import FidelityMeasurement, RowOutcome, append_unit
from benchmarks.markdown import markdown_table

RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results" / "fidelity.md"
TABLE_HEADER = ("", "what", "declared", "achieved, median (range)", "error", "limit", "samples", "trials")
MIN_DIGITS, MAX_DIGITS = 4, 9  # significant digits of samples
RULES = (
    "Every measurement has a fixed number of samples, and every sample counts. The last column states how many trials "
    "have a valid verdict, and why the others do not. No trial was repeated: the benchmark does not use the key "
    "`attempts`. Trials run at the dilation that `dilation: auto` chose on this host, except where two dilations are "
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
        f"Machine: {machine_name} ({host}). All rows were measured by commit {origin.commit}. The rows started from "
        f"{min(dates)} to {max(dates)} (UTC); measuring took {wall_s / 60:.0f} minutes."
    )


def _table_rows(outcomes: Iterable[RowOutcome]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row of the table of all outcomes."""
    for outcome in outcomes:
        if outcome.failed:
            yield ("FAILED", outcome.row, "", outcome.failed, "", "", "", "")
        yield from map(_measurement_cells, outcome.lines)


def _measurement_cells(measurement: FidelityMeasurement) -> tuple[str, ...]:
    unit, digits = measurement.unit, _choose_digits(measurement)
    declared = append_unit(f"{measurement.declared:.4g}", unit) if measurement.declared else "–"
    error = "–" if measurement.relative_error is None else f"{measurement.relative_error:+.{digits - 2}%}"
    passed_mark = "ok" if measurement.gate.has_limits else ""
    mark = passed_mark if measurement.is_within_gate else "NOT OK"
    trial_text = measurement.trial_text.replace("|", "/").replace("\n", " ")
    return (
        *(mark, measurement.what, declared, _format_spread(measurement, digits), error),
        *(measurement.gate.format_limits(unit), str(len(measurement.samples)), trial_text),
    )


def _format_spread(measurement: FidelityMeasurement, digits: int) -> str:
    """Return the median and the range of the samples with their unit: `100 (99 - 101) Mbit/s`."""
    if not measurement.samples:
        return "–"
    values = measurement.median_achieved, min(measurement.samples), max(measurement.samples)
    return append_unit("{} ({} - {})".format(*(f"{value:.{digits}g}" for value in values)), measurement.unit)


def _choose_digits(measurement: FidelityMeasurement) -> int:
    """Return the number of significant digits that the table shows of each sample.

    There are as many that the rounded samples miss a limit of the gate where the exact samples do.
    """
    return next(
        (
            digits
            for digits in range(MIN_DIGITS, MAX_DIGITS)
            if measurement.round_samples(digits).is_within_gate == measurement.is_within_gate
        ),
        MAX_DIGITS,
    )
