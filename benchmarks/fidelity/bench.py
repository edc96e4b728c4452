"""Runner of the fidelity benchmark: measures rows, saves their results and prints the table (`make bench-fidelity`).

ROWS=uplinks,incast selects rows; default: all. Results of this host are kept between calls. A row that failed is
measured again. A row that missed its gate, or that was measured by other code, is measured again only if it is selected
or with --again. The written page keeps results of another host until this host has measured the same row.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.fidelity import collectives, devices, links, paced_devices, runs, scenarios
from benchmarks.fidelity.provenance import MeasurementOrigin, current_origin
from benchmarks.fidelity.row import FidelityMeasurement, RowOutcome
from benchmarks.fidelity.training import VerdictReader
from benchmarks.markdown import markdown_table
from compose.calibration.capacity import HostFingerprint
from compose.engines.containers.engine import DockerEngine
from compose.runs.interrupt import raise_on_first_stop_signal

DEFAULT_ROUNDS, MIN_ROUNDS = 5, 5
RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results" / "fidelity.md"
STATE_FILE = Path("runs") / "fidelity.json"
BENCH_ROWS: Mapping[str, links.RowFunction] = {  # row name -> function that measures the row
    "uplinks": links.measure_uplinks,
    "downlinks": links.measure_downlinks,
    "messages": links.measure_messages,
    "incast": links.measure_incast,
    "racks": links.measure_rack_uplink,
    "pairs": links.measure_pair_limit,
    "round_trips": links.measure_round_trips,
    "loss": links.measure_packet_loss,
    "quotas": devices.measure_cpu_quotas,
    "paced": paced_devices.measure_paced_workers,
    "events": runs.measure_event_lateness,
    "start": runs.measure_start,
    "dilation": runs.measure_dilation,
    "staleness": runs.measure_staleness,
    "engines_racks": scenarios.compare_engines_racks,
    "engines_incast": scenarios.compare_engines_incast,
    "engines_wan": scenarios.compare_engines_wan,
    "fast_ring": scenarios.measure_fast_ring,
}
VERDICT_ROWS: Mapping[str, collectives.VerdictRowFunction] = {  # rows that also check the verdicts of their trials
    "collectives_100mbit": collectives.measure_collectives_100mbit,
    "collectives_1gbit": collectives.measure_collectives_1gbit,
}
TABLE_HEADER = ("", "what", "declared", "achieved, median (range)", "error", "gate", "measured")


def main(read_verdict_reasons: VerdictReader) -> int:
    """Measure the selected rows, print the table and write the page if --write is given. Return the exit code.

    Args:
        read_verdict_reasons: returns the reasons why the verdict of a trial is not valid, from its folder.

    Returns:
        0 if all selected rows are within their gates, 1 if not, 2 if a row name is unknown.
    """
    arguments = _parse_arguments()
    verdict_rows = {name: partial(row, read_verdict_reasons) for name, row in VERDICT_ROWS.items()}
    rows: dict[str, links.RowFunction] = {**BENCH_ROWS, **verdict_rows}
    selected = [name for name in arguments.rows.split(",") if name]
    row_names = selected or list(rows)
    if unknown := [name for name in row_names if name not in rows]:
        sys.stderr.write(f"unknown row {unknown[0]}; rows are {', '.join(rows)}\n")
        return 2
    engine = DockerEngine()
    with raise_on_first_stop_signal():
        engine.prepare(PreparationReporter())
        current = current_origin(engine)
        saved_outcomes = _read_outcomes(arguments.state)
        outcomes = {row: outcome for row, outcome in saved_outcomes.items() if outcome.origin.host == current.host}
        for name in row_names:
            if arguments.again or _needs_measurement(outcomes.get(name), current, is_selected=bool(selected)):
                outcomes[name] = _measure_row(name, rows[name], engine, max(arguments.rounds, MIN_ROUNDS))
                merged_outcomes = _merge_outcomes(_read_outcomes(arguments.state), [outcomes[name]])
                _save_outcomes(arguments.state, merged_outcomes.values())
    measured = [outcomes[name] for name in rows if name in outcomes]
    sys.stdout.write(f"{_page_text(measured, current)}\n")
    if arguments.write:
        write_page(RESULTS_PAGE, arguments.write, measured, current)
    return int(not all(outcomes[name].is_within_gates for name in row_names))


def _needs_measurement(known_outcome: RowOutcome | None, current: MeasurementOrigin, *, is_selected: bool) -> bool:
    """Return whether a row has to be measured, from its saved outcome and from whether it was selected by name."""
    if known_outcome is None or known_outcome.failed:
        return True
    return is_selected and not (known_outcome.is_within_gates and known_outcome.origin.has_same_code(current))


class PreparationReporter:
    """Observer that prints what the engine prepares."""

    def engine_preparation_started(self, description: str) -> None:
        """Print what the engine prepares, for example the image that it builds."""
        sys.stderr.write(f"{description}\n")


def write_page(
    page_path: Path, machine_name: str, new_outcomes: Sequence[RowOutcome], current: MeasurementOrigin
) -> None:
    """Write the results page: new outcomes, and those that the page already has of other rows."""
    rows = _merge_outcomes(_read_outcomes(page_path.with_suffix(".json")), new_outcomes)
    outcomes = [rows[name] for name in (*BENCH_ROWS, *VERDICT_ROWS) if name in rows]
    head = _machine_sentence(machine_name, outcomes, current)
    page_path.parent.mkdir(parents=True, exist_ok=True)
    page_path.write_text(f"# What `make bench-fidelity` printed\n\n{head}\n\n{_page_text(outcomes, current)}\n")
    _save_outcomes(page_path.with_suffix(".json"), outcomes)


def _page_text(outcomes: Sequence[RowOutcome], current: MeasurementOrigin) -> str:
    return "\n".join((*markdown_table(TABLE_HEADER, _table_rows(outcomes)), *origin_remarks(outcomes, current)))


def _table_rows(outcomes: Iterable[RowOutcome]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row of the table of all outcomes."""
    for outcome in outcomes:
        if outcome.failed:
            yield ("FAILED", outcome.row, "", outcome.failed, "", "", str(outcome.origin))
        for measurement in outcome.lines:
            yield (*_measurement_cells(measurement), str(outcome.origin))


def origin_remarks(outcomes: Iterable[RowOutcome], current: MeasurementOrigin) -> Iterator[str]:
    """Yield remarks that list the rows measured by another commit or on another host."""
    if other_rows := [outcome.row for outcome in outcomes if not outcome.origin.has_same_code(current)]:
        yield ""
        yield (
            f"Not measured by the code of {current.commit}: {', '.join(other_rows)}; "
            "`ROWS=...` or `--again` measures them again."
        )
    for host in sorted({outcome.origin.host for outcome in outcomes} - {current.host}, key=str):
        rows = ", ".join(outcome.row for outcome in outcomes if outcome.origin.host == host)
        yield ""
        yield f"Measured on another host ({_format_host(host)}): {rows}."


def _machine_sentence(machine_name: str, outcomes: Sequence[RowOutcome], current: MeasurementOrigin) -> str:
    """Return the sentence of a page that states the machine, the dates and the commits of its outcomes."""
    dates = sorted({outcome.origin.date[:10] for outcome in outcomes})
    commits = ", ".join(dict.fromkeys(outcome.origin.commit for outcome in outcomes))
    machine = f"{machine_name} ({_format_host(current.host)})"
    return f"Machine: {machine}. Measured from {dates[0]} to {dates[-1]}; commits: {commits}."


def _format_host(host: HostFingerprint) -> str:
    return f"{host.cpu}, {host.cores} cores, Linux {host.kernel}, Docker {host.engine}"


def _measurement_cells(measurement: FidelityMeasurement) -> tuple[str, ...]:
    samples, unit = measurement.samples, measurement.unit
    spread = f"{measurement.median_achieved:.4g} ({min(samples):.4g} - {max(samples):.4g}) {unit}"
    declared = f"{measurement.declared:.4g} {measurement.unit}" if measurement.declared else "–"
    error = "–" if measurement.relative_error is None else f"{measurement.relative_error:+.2%}"
    mark = ("ok" if measurement.is_within_gate else "NOT OK") if measurement.gate.has_limits else ""
    return mark, measurement.what, declared, spread, error, str(measurement.gate)


def _measure_row(row_name: str, row: links.RowFunction, engine: DockerEngine, rounds: int) -> RowOutcome:
    """Measure a row. Return its measurements, or its error, so that the rows after it are measured all the same."""
    started, measured_by = time.monotonic(), current_origin(engine)
    try:
        measurements = tuple(row(engine, rounds))
    except Exception as error:  # noqa: BLE001 - a failed row must not stop the others; the table shows the error
        reason = " ".join(str(error).split()) or "no message"
        outcome = RowOutcome(row=row_name, origin=measured_by, failed=f"{type(error).__name__}: {reason}")
    else:
        outcome = RowOutcome(row=row_name, origin=measured_by, lines=measurements)
    outcome = outcome.model_copy(update={"wall_s": round(time.monotonic() - started, 1)})
    result = outcome.failed or ("ok" if outcome.is_within_gates else "not ok")
    sys.stderr.write(f"{row_name}: {result} after {outcome.wall_s:g} s\n")
    return outcome


def _read_outcomes(path: Path) -> dict[str, RowOutcome]:
    """Return the saved outcomes by row name; empty if the file is missing or not valid, for example without origins."""
    try:
        outcomes = [RowOutcome.model_validate(document) for document in json.loads(path.read_text())]
    except (OSError, ValueError):
        return {}
    return {outcome.row: outcome for outcome in outcomes}


def _merge_outcomes(
    known_outcomes: Mapping[str, RowOutcome], new_outcomes: Iterable[RowOutcome]
) -> dict[str, RowOutcome]:
    """Return the known outcomes updated by the new ones. A failed row does not replace a measured one."""
    measured_rows = {row for row, outcome in known_outcomes.items() if not outcome.failed}
    updates = {new.row: new for new in new_outcomes if not (new.failed and new.row in measured_rows)}
    return {**known_outcomes, **updates}


def _save_outcomes(path: Path, outcomes: Iterable[RowOutcome]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([outcome.model_dump(mode="json") for outcome in outcomes], indent=1) + "\n")


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-fidelity", description=__doc__)
    parser.add_argument(
        "--rows", default=os.environ.get("ROWS", ""), help="names of rows, separated by commas; default: all"
    )
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help=f"samples per row; at least {MIN_ROUNDS}")
    parser.add_argument("--state", type=Path, default=STATE_FILE, help="file in which outcomes are saved between calls")
    parser.add_argument("--again", action="store_true", help="measure rows again that are saved already")
    parser.add_argument("--write", metavar="MACHINE", help=f"also write {RESULTS_PAGE.name}, with this machine name")
    return parser.parse_args()
