"""`make bench-fidelity`: measure the rows, keep what was measured, print the table.

ROWS=uplinks,incast names some rows; all when absent. Rows that the state file has already are not measured again.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from compose.engines.docker import DockerEngine
from compose.fidelity import devices, links, runs
from compose.fidelity.line import Line, Outcome
from compose.interrupt import stoppable

ROUNDS, FEWEST_ROUNDS = 5, 5
RESULTS = Path(__file__).parents[2] / "docs" / "results" / "fidelity.md"
STATE = Path("runs") / "fidelity.json"
ROWS: Mapping[str, links.Row] = {
    each.__name__: each
    for each in (
        *(links.uplinks, links.downlinks, links.messages, links.incast, links.racks, links.pairs),
        *(links.round_trips, links.loss),
        devices.quotas,
        *(runs.events, runs.start, runs.dilation, runs.staleness),
    )
}
HEAD = ("", "what", "declared", "achieved, median (range)", "error", "gate")


def main() -> int:
    """Measure, print, and write when asked to; 1 when a gate does not hold."""
    asked = _arguments()
    known = rows()
    wanted = [name for name in asked.rows.split(",") if name] or list(known)
    if unknown := [name for name in wanted if name not in known]:
        sys.stderr.write(f"there is no row {unknown[0]}; rows are {', '.join(known)}\n")
        return 2
    outcomes = {} if asked.again else _load(asked.state)
    engine = DockerEngine()
    with stoppable():
        engine.prepare(Telling())
        for name in wanted:
            if name not in outcomes or outcomes[name].failed:
                outcomes[name] = _measure(name, known[name], engine, max(asked.rounds, FEWEST_ROUNDS))
                _save(asked.state, outcomes.values())
    found = [outcomes[name] for name in known if name in outcomes]
    text = "\n".join(table(found))
    sys.stdout.write(f"{text}\n")
    if asked.write:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(f"# What `make bench-fidelity` printed\n\nMachine: {asked.write}.\n\n{text}\n")
        _save(RESULTS.with_suffix(".json"), found)
    return int(not all(outcomes[name].ok for name in wanted))


class Telling:
    """Says what the engine prepares."""

    def preparing(self, what: str) -> None:
        """Something is being built."""
        sys.stderr.write(f"{what}\n")


def rows() -> dict[str, links.Row]:
    """All rows by name; paced devices have a bench of their own, whose rows are taken in where it is installed."""
    with suppress(ImportError):
        return {**ROWS, **import_module("compose.fidelity.paced").ROWS}
    return dict(ROWS)


def table(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Lines of Markdown."""
    yield f"| {' | '.join(HEAD)} |"
    yield f"|{'---|' * len(HEAD)}"
    for outcome in outcomes:
        if outcome.failed:
            yield f"| FAILED | {outcome.row} |  | {outcome.failed} |  |  |"
        yield from (f"| {' | '.join(_cells(line))} |" for line in outcome.lines)


def _cells(line: Line) -> tuple[str, ...]:
    spread = f"{line.achieved:.4g} ({min(line.samples):.4g} - {max(line.samples):.4g}) {line.unit}"
    declared = f"{line.declared:.4g} {line.unit}" if line.declared else "–"
    error = "–" if line.error is None else f"{line.error:+.2%}"
    return "ok" if line.ok else "NOT OK", line.what, declared, spread, error, str(line.gate)


def _measure(name: str, row: links.Row, engine: DockerEngine, rounds: int) -> Outcome:
    """One row; whatever goes wrong with it must not take the others with it."""
    started = time.monotonic()
    try:
        lines = tuple(row(engine, rounds))
    except Exception as error:  # noqa: BLE001 - see above; the table says why
        reason = " ".join(str(error).split()) or "no message"
        outcome = Outcome(row=name, failed=f"{type(error).__name__}: {reason}")
    else:
        outcome = Outcome(row=name, lines=lines)
    outcome = outcome.model_copy(update={"wall_s": round(time.monotonic() - started, 1)})
    sys.stderr.write(f"{name}: {outcome.failed or ('ok' if outcome.ok else 'not ok')} after {outcome.wall_s:g} s\n")
    return outcome


def _load(state: Path) -> dict[str, Outcome]:
    if not state.exists():
        return {}
    found = (Outcome.model_validate(each) for each in json.loads(state.read_text()))
    return {outcome.row: outcome for outcome in found}


def _save(path: Path, outcomes: Iterable[Outcome]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([outcome.model_dump(mode="json") for outcome in outcomes], indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="compose.fidelity", description=__doc__)
    parser.add_argument("--rows", default=os.environ.get("ROWS", ""), help="names, with commas between them")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"at least {FEWEST_ROUNDS}")
    parser.add_argument("--state", type=Path, default=STATE, help="where finished rows are kept")
    parser.add_argument("--again", action="store_true", help="forget what was measured before")
    parser.add_argument("--write", metavar="MACHINE", help=f"also into {RESULTS.name}, under this name of the machine")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
