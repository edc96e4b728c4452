"""`make bench-fidelity`: measure the rows, keep what was measured, print the table.

ROWS=uplinks,incast names some rows; all when absent. What was measured on this host is kept. A row that raised is
measured again; one that missed its gate, or that other code has measured, when it is named or with --again. A page that
is written keeps the rows that another host has measured until this one has.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.fidelity import collectives, devices, links, runs, scenarios
from benchmarks.fidelity import paced_devices as paced
from benchmarks.fidelity.provenance import Origin, origin
from benchmarks.fidelity.row import Line, Outcome
from benchmarks.fidelity.training import Doubts
from compose.calibration.capacity import HostFingerprint
from compose.engines.containers.engine import DockerEngine
from compose.runs.interrupt import raise_on_first_stop_signal

ROUNDS, FEWEST_ROUNDS = 5, 5
RESULTS = Path(__file__).parents[2] / "docs" / "results" / "fidelity.md"
STATE = Path("runs") / "fidelity.json"
ROWS: Mapping[str, links.Row] = {
    each.__name__: each
    for each in (
        *(links.uplinks, links.downlinks, links.messages, links.incast, links.racks, links.pairs),
        *(links.round_trips, links.loss),
        *(devices.quotas, paced.paced),
        *(runs.events, runs.start, runs.dilation, runs.staleness),
        *(scenarios.engines_racks, scenarios.engines_incast, scenarios.engines_wan, scenarios.fast_ring),
    )
}
JUDGED: Mapping[str, collectives.JudgedRow] = {
    each.__name__: each for each in (collectives.collectives_100mbit, collectives.collectives_1gbit)
}
HEAD = ("", "what", "declared", "achieved, median (range)", "error", "gate", "measured")


def main(doubts: Doubts) -> int:
    """Measure, print, and write when asked to; 1 when a gate does not hold. `doubts`: of trials whose rows ask."""
    asked = _arguments()
    rows: dict[str, links.Row] = {**ROWS, **{name: partial(row, doubts) for name, row in JUDGED.items()}}
    named = [name for name in asked.rows.split(",") if name]
    wanted = named or list(rows)
    if unknown := [name for name in wanted if name not in rows]:
        sys.stderr.write(f"there is no row {unknown[0]}; rows are {', '.join(rows)}\n")
        return 2
    engine = DockerEngine()
    with raise_on_first_stop_signal():
        engine.prepare(Telling())
        here = origin(engine)
        outcomes = {row: each for row, each in _read(asked.state).items() if each.origin.host == here.host}
        for name in wanted:
            if asked.again or _is_due(outcomes.get(name), here, named=bool(named)):
                outcomes[name] = _measure(name, rows[name], engine, max(asked.rounds, FEWEST_ROUNDS))
                _save(asked.state, _updated(_read(asked.state), [outcomes[name]]).values())
    found = [outcomes[name] for name in rows if name in outcomes]
    sys.stdout.write(f"{_text(found, here)}\n")
    if asked.write:
        write(RESULTS, asked.write, found, here)
    return int(not all(outcomes[name].ok for name in wanted))


def _is_due(known: Outcome | None, here: Origin, *, named: bool) -> bool:
    """Whether a row has to be measured, given what is known of it."""
    if known is None or known.failed:
        return True
    return named and not (known.ok and known.origin.is_code_of(here))


class Telling:
    """Says what the engine prepares."""

    def preparation_started(self, what: str) -> None:
        """Something is being built."""
        sys.stderr.write(f"{what}\n")


def write(page: Path, machine: str, found: Sequence[Outcome], here: Origin) -> None:
    """A page of what this host has finished, and of all else that the page has held so far."""
    rows = _updated(_read(page.with_suffix(".json")), found)
    outcomes = [rows[name] for name in (*ROWS, *JUDGED) if name in rows]
    head = _head(machine, outcomes, here)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"# What `make bench-fidelity` printed\n\n{head}\n\n{_text(outcomes, here)}\n")
    _save(page.with_suffix(".json"), outcomes)


def _text(outcomes: Sequence[Outcome], here: Origin) -> str:
    return "\n".join((*table(outcomes), *remarks(outcomes, here)))


def table(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Lines of Markdown."""
    yield f"| {' | '.join(HEAD)} |"
    yield f"|{'---|' * len(HEAD)}"
    for outcome in outcomes:
        if outcome.failed:
            yield f"| FAILED | {outcome.row} |  | {outcome.failed} |  |  | {outcome.origin} |"
        yield from (f"| {' | '.join((*_cells(line), str(outcome.origin)))} |" for line in outcome.lines)


def remarks(outcomes: Iterable[Outcome], here: Origin) -> Iterator[str]:
    """What a reader has to know of rows that are not of this commit or not of this host."""
    if others := [outcome.row for outcome in outcomes if not outcome.origin.is_code_of(here)]:
        yield ""
        yield f"Not measured by the code of {here.commit}: {', '.join(others)}; `ROWS=...` or `--again` measures anew."
    for host in sorted({outcome.origin.host for outcome in outcomes} - {here.host}, key=str):
        rows = ", ".join(outcome.row for outcome in outcomes if outcome.origin.host == host)
        yield ""
        yield f"On another host ({_facts(host)}): {rows}."


def _head(machine: str, outcomes: Sequence[Outcome], here: Origin) -> str:
    """The machine, the days and the commits of a page."""
    dates = sorted({outcome.origin.date[:10] for outcome in outcomes})
    commits = ", ".join(dict.fromkeys(outcome.origin.commit for outcome in outcomes))
    return f"Machine: {machine} ({_facts(here.host)}). Measured from {dates[0]} to {dates[-1]}; commits: {commits}."


def _facts(host: HostFingerprint) -> str:
    return f"{host.cpu}, {host.cores} cores, Linux {host.kernel}, Docker {host.engine}"


def _cells(line: Line) -> tuple[str, ...]:
    spread = f"{line.achieved:.4g} ({min(line.samples):.4g} - {max(line.samples):.4g}) {line.unit}"
    declared = f"{line.declared:.4g} {line.unit}" if line.declared else "–"
    error = "–" if line.error is None else f"{line.error:+.2%}"
    mark = ("ok" if line.ok else "NOT OK") if line.gate.asks else ""
    return mark, line.what, declared, spread, error, str(line.gate)


def _measure(name: str, row: links.Row, engine: DockerEngine, rounds: int) -> Outcome:
    """One row; whatever goes wrong with it must not take the others with it."""
    started, measured_by = time.monotonic(), origin(engine)
    try:
        lines = tuple(row(engine, rounds))
    except Exception as error:  # noqa: BLE001 - see above; the table says why
        reason = " ".join(str(error).split()) or "no message"
        outcome = Outcome(row=name, origin=measured_by, failed=f"{type(error).__name__}: {reason}")
    else:
        outcome = Outcome(row=name, origin=measured_by, lines=lines)
    outcome = outcome.model_copy(update={"wall_s": round(time.monotonic() - started, 1)})
    sys.stderr.write(f"{name}: {outcome.failed or ('ok' if outcome.ok else 'not ok')} after {outcome.wall_s:g} s\n")
    return outcome


def _read(state: Path) -> dict[str, Outcome]:
    """What was measured before, by row; what says not where it was measured does not count."""
    try:
        found = [Outcome.model_validate(each) for each in json.loads(state.read_text())]
    except (OSError, ValueError):
        return {}
    return {outcome.row: outcome for outcome in found}


def _updated(before: Mapping[str, Outcome], found: Iterable[Outcome]) -> dict[str, Outcome]:
    """What is known now; a row that failed takes the place of none that was finished."""
    finished = {row for row, each in before.items() if not each.failed}
    return {**before, **{each.row: each for each in found if not (each.failed and each.row in finished)}}


def _save(path: Path, outcomes: Iterable[Outcome]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([outcome.model_dump(mode="json") for outcome in outcomes], indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-fidelity", description=__doc__)
    parser.add_argument("--rows", default=os.environ.get("ROWS", ""), help="names, with commas between them")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"at least {FEWEST_ROUNDS}")
    parser.add_argument("--state", type=Path, default=STATE, help="where finished rows are kept")
    parser.add_argument("--again", action="store_true", help="whatever is known of them")
    parser.add_argument("--write", metavar="MACHINE", help=f"also into {RESULTS.name}, under this name of the machine")
    return parser.parse_args()
