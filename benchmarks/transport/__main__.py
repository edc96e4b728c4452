"""`make bench-transport`: sum and send vectors over each data plane and over rivals, which take turns in every round.

ROWS=unshaped,pair names some rows; all when absent. Links are network namespaces of this host where it lets us make
some (root, `ip`, `tc`), shaped as those of containers; otherwise only what is not shaped is measured, on loopback.
"""

import argparse
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.fidelity.provenance import origin
from benchmarks.transport import network_namespaces as spaces
from benchmarks.transport.cases import (
    BOUND,
    GLOO,
    MB,
    ROWS,
    SMALL_BYTES,
    SMALL_UNSHAPED_BYTES,
    Case,
    Reached,
    told,
)
from benchmarks.transport.jobs import Job
from benchmarks.transport.rank_processes import Group, Took, group, with_torch
from compose.calibration.capacity import HostFingerprint
from compose.engines.local import LocalEngine
from compose.runs.certificates import issue_certificates
from compose.runs.interrupt import raise_on_first_stop_signal
from services.transport.planes import DATA_PLANES

ROUNDS, FEWEST_ROUNDS = 7, 7
RESULTS = Path(__file__).parents[2] / "docs" / "results" / "transport.md"
WORK_S, MOST_CALLS = 0.4, 40  # of one variant in one round
LONG_S = 0.5  # a call that takes longer needs no other before it that is not counted
FIRST_PORT = 42_000
TORCH = "torch==2.13.0"
HEAD = ("", "row", "n", "vector", "by", "ms, median (range)", "CPU ms", "reached", "gate", "measured")
TOP = (HEAD, ("---",) * len(HEAD))


@dataclass(frozen=True)
class Row:
    """One size of a case."""

    name: str
    case: Case
    size_bytes: int
    took: Mapping[str, Sequence[Took]]  # by variant, one per round

    def reached(self, by: str) -> Reached:
        """A variant beside the bound and its rivals; these themselves have no gates."""
        best = {name: median(each.seconds for each in found) for name, found in self.took.items()}
        bound_s = self.case.bound_s(self.size_bytes)
        found = {BOUND: bound_s / best[by]} if bound_s else {}
        found |= {rival: best[rival] / best[by] for rival in self.case.rivals if rival in best and rival != by}
        return Reached(self.case.sizes[self.size_bytes].get(by, {}), found)

    def lines(self) -> Iterator[tuple[str, ...]]:
        """A line of the table per variant, but for who measured it."""
        for name, found in self.took.items():
            ms = [1e3 * each.seconds for each in found]
            spread = f"{median(ms):.3g} ({min(ms):.3g} - {max(ms):.3g})"
            cpu_ms, reached = 1e3 * median(each.cpu_s for each in found), self.reached(name)
            what = self.name, str(self.case.ranks), size(self.size_bytes), name
            yield reached.mark, *what, spread, f"{cpu_ms:.3g}", told(reached.found), told(reached.least, "≥ ")


def main() -> int:
    """Measure, print, and write when asked to; 1 when a gate does not hold."""
    asked = _arguments()
    names = [name for name in asked.rows.split(",") if name] or list(ROWS)
    if unknown := [name for name in names if name not in ROWS]:
        sys.stderr.write(f"there is no row {unknown[0]}; rows are {', '.join(ROWS)}\n")
        return 2
    torch, here, rounds = with_torch(asked.torch), origin(LocalEngine()), max(asked.rounds, FEWEST_ROUNDS)
    sys.stdout.write("\n".join(_table(TOP)) + "\n")
    lines: list[str] = []
    rows, left_out = [], []
    with raise_on_first_stop_signal():
        for name in names:
            for case in ROWS[name]:
                if refusal := _refusal(case):
                    left_out.append(f"Not measured: {name}; {refusal}.")
                    continue
                rows += (found := _measured(name, case, rounds, torch))
                lines += (news := [*_table((*line, str(here)) for row in found for line in row.lines())])
                sys.stdout.write("\n".join(news) + "\n")
    remarks = ["", *_remarks(torch), *dict.fromkeys(left_out)]
    sys.stdout.write("\n".join(remarks) + "\n")
    if asked.write:
        write(RESULTS, _head(asked.write, here.host), lines, remarks)
    return int(any(row.reached(by).mark == "NOT OK" for row in rows for by in row.took))


def write(page: Path, machine: str, lines: Sequence[str], remarks: Sequence[str]) -> None:
    """A page of these lines, and of all other rows that it has held so far of the same machine."""
    held = page.read_text(encoding="utf-8").splitlines() if page.exists() else []
    others = ROWS.keys() - {_row(line) for line in lines} if machine in held else frozenset[str]()
    kept = [line for line in held if _row(line) in others]
    whole = sorted((*kept, *lines), key=lambda line: [*ROWS].index(_row(line)))
    text = "\n".join((*_table(TOP), *whole, *remarks))
    page.write_text(f"# What `make bench-transport` printed\n\n{machine}\n\n{text}\n", encoding="utf-8")


def _row(line: str) -> str:
    """Of which row a line of the table is; empty where it is of none."""
    cells = [cell.strip() for cell in line.split("|")]
    return cells[2] if len(cells) == len(HEAD) + 2 else ""


def size(count: int) -> str:
    """Bytes as a table says them."""
    return f"{count // MB} MB" if count >= MB else f"{count} B"


def _refusal(case: Case) -> str | None:
    """Why this host can't measure it; None when it can."""
    if case.rate_bps is None:
        return None
    return spaces.refusal() or (spaces.refusal_of_delays() if case.delay_s else None)


def _measured(name: str, case: Case, rounds: int, torch: str | None) -> list[Row]:
    """All sizes of a case, the processes of all variants being there at once."""
    took: dict[int, dict[str, list[Took]]] = {each: defaultdict(list) for each in case.sizes}
    with ExitStack() as stack:
        groups = _groups(stack, case, torch)
        for turn in range(rounds):
            sys.stderr.write(f"{name}, {case.ranks} ranks, round {turn + 1}/{rounds}\n")
            for each in case.sizes:
                for known in groups[turn % len(groups) :] + groups[: turn % len(groups)]:
                    took[each][known.name].append(known.work(_job(case, each)))
    return [Row(name, case, each, {known.name: took[each][known.name] for known in groups}) for each in case.sizes]


def _groups(stack: ExitStack, case: Case, torch: str | None) -> list[Group]:
    """The ranks of all variants, until the stack closes."""
    opened: AbstractContextManager[spaces.Space]
    opened = spaces.bridged(case.ranks, case.rate_bps, case.delay_s) if case.rate_bps else spaces.loopback(case.ranks)
    space = stack.enter_context(opened)
    secrets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ensayo-bench-")))
    issue_certificates("bench", [f"rank-{rank}" for rank in range(case.ranks)], secrets)
    groups = []
    for number, name in enumerate((*DATA_PLANES, *(each for each in case.rivals if each != GLOO or torch))):
        ports = [FIRST_PORT + number * case.ranks + rank for rank in range(case.ranks)]
        groups.append(stack.enter_context(group(name, space, ports, secrets, torch)))
    return groups


def _job(case: Case, size_bytes: int) -> Job:
    call_s = case.expected_s(size_bytes)
    calls = max(1, min(MOST_CALLS, round(WORK_S / call_s)))
    return {
        "what": case.what,
        "size_bytes": size_bytes,
        "small_bytes": case.small_bytes,
        "calls": calls,
        "warm_ups": int(call_s < LONG_S),
    }


def _table(cells: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of Markdown."""
    return (f"| {' | '.join(line)} |" for line in cells)


def _remarks(torch: str | None) -> Iterator[str]:
    """What a reader has to know."""
    yield f"Congestion control: {spaces.congestion()}."
    small = f"{SMALL_BYTES >> 10} KiB, unshaped ones up to {size(SMALL_UNSHAPED_BYTES)}"
    yield f"Vectors up to {small}, are summed by recursive doubling."
    yield "pair: until the other has the vector. beside: 100 bytes and their answer, while the vector is under way."
    if torch is None:
        yield f"No gloo to compare with: `TORCH=1 make bench-transport` installs {TORCH} beside .venv."


def _head(machine: str, host: HostFingerprint) -> str:
    return f"Machine: {machine} ({host.cpu}, {host.cores} cores, Linux {host.kernel})."


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.transport", description=__doc__)
    parser.add_argument("--rows", default=os.environ.get("ROWS", ""), help=f"some of {', '.join(ROWS)}, by commas")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"at least {FEWEST_ROUNDS}")
    parser.add_argument("--torch", default=".venv-torch/bin/python", help="an interpreter that has PyTorch")
    parser.add_argument("--write", metavar="MACHINE", help=f"also into {RESULTS.name}, under this name of the machine")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
