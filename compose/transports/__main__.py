"""`make bench-transport`: sum vectors over each data plane and over gloo, which take turns in every round.

Links are network namespaces of this host where it lets us make some (root, `ip`, `tc`), shaped as those of containers;
otherwise only what is not shaped is measured, on loopback. The bound is 2(n-1)/n of the vector over the raw rate, of
which headers leave 1448/1514.
"""

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median

from compose.authority import issue
from compose.capacity import Fingerprint
from compose.engines.local import LocalEngine
from compose.fidelity.origin import origin
from compose.interrupt import stoppable
from compose.transports import spaces
from compose.transports.ranks import GLOO, Group, Took, group, with_torch
from services.transport.planes import PLANES

ROUNDS, FEWEST_ROUNDS = 7, 7
RESULTS = Path(__file__).parents[2] / "docs" / "results" / "transport.md"
KB, MB = 1_000, 1_000_000
SIZES = (4096, MB, 10 * MB, 100 * MB)
RANKS = (2, 4, 8)
RATES: Mapping[str, float | None] = {"none": None, "1gbit": 1e9, "100mbit": 1e8}
WORK_S, MOST_CALLS = 0.4, 40  # of one variant in one round
TOO_LONG_S = 4.0  # a call that would take longer is left out
UNSHAPED_BPS = 8e9  # about; decides only how many calls there are
FIRST_PORT = 42_000
TORCH = "torch==2.13.0"
HEAD = ("link", "n", "vector", "by", "ms, median (range)", "CPU ms", "of the bound", "times gloo")

Samples = dict[tuple[str, int], dict[str, list[Took]]]  # (rate, size) -> by variant, one per round


@dataclass(frozen=True)
class Row:
    """One size on one kind of link."""

    link: str
    ranks: int
    size_bytes: int
    took: Mapping[str, Sequence[Took]]  # by variant

    def lines(self) -> Iterator[tuple[str, ...]]:
        """A line of the table per variant."""
        best = {name: median(each.seconds for each in found) for name, found in self.took.items()}
        for name, found in self.took.items():
            ms = [1e3 * each.seconds for each in found]
            cpu_ms = 1e3 * median(each.cpu_s for each in found)
            rate_bps = RATES[self.link]
            bound = f"{bound_s(self.ranks, self.size_bytes, rate_bps) / best[name]:.3f}" if rate_bps else "–"
            ratio = f"{best[GLOO] / best[name]:.2f}" if GLOO in best else "–"
            told = f"{median(ms):.3g} ({min(ms):.3g} - {max(ms):.3g})"
            yield self.link, str(self.ranks), size(self.size_bytes), name, told, f"{cpu_ms:.3g}", bound, ratio


def main() -> int:
    """Measure, print, and write when asked to."""
    asked = _arguments()
    torch = with_torch(asked.torch)
    variants = [*PLANES, *([GLOO] if torch else [])]
    here = origin(LocalEngine())
    rounds = max(asked.rounds, FEWEST_ROUNDS)
    links = [link for link in asked.links if link == "none" or not spaces.refusal()]
    lines, congestion = [*_lines([HEAD, ("---",) * len(HEAD)])], ""
    sys.stdout.write("\n".join(lines) + "\n")
    with stoppable():
        for link, ranks in product(links, asked.ranks):
            sizes = [each for each in asked.sizes if expected_s(ranks, each, RATES[link]) <= TOO_LONG_S]
            congestion, rows = _measured(link, ranks, sizes, variants, rounds, torch)
            found = [*_lines(line for row in rows for line in row.lines())]
            sys.stdout.write("\n".join(found) + "\n")
            lines += found
    remarks = ["", *_remarks(asked.links, links, torch, congestion)]
    sys.stdout.write("\n".join(remarks) + "\n")
    if asked.write:
        head = f"{_head(asked.write, here.host)} Measured by {here}, {rounds} rounds."
        text = "\n".join((*lines, *remarks))
        RESULTS.write_text(f"# What `make bench-transport` printed\n\n{head}\n\n{text}\n", encoding="utf-8")
    return 0


def bound_s(ranks: int, size_bytes: int, rate_bps: float) -> float:
    """The least that a sum over `ranks` can take: every uplink carries 2(n-1)/n of the vector at the raw rate."""
    return 8 * 2 * (ranks - 1) / ranks * size_bytes / rate_bps


def expected_s(ranks: int, size_bytes: int, rate_bps: float | None) -> float:
    """About what a call takes."""
    return bound_s(ranks, size_bytes, rate_bps or UNSHAPED_BPS / ranks)


def size(count: int) -> str:
    """Bytes as a table says them."""
    return f"{count // MB} MB" if count >= MB else f"{count} B"


def _measured(
    link: str, ranks: int, sizes: Sequence[int], variants: Sequence[str], rounds: int, torch: str | None
) -> tuple[str, list[Row]]:
    """All sizes on one kind of link; which congestion control it had."""
    took: dict[int, dict[str, list[Took]]] = {each: defaultdict(list) for each in sizes}
    rate_bps = RATES[link]
    with ExitStack() as stack:
        opened: AbstractContextManager[spaces.Space]
        opened = spaces.loopback(ranks) if rate_bps is None else spaces.bridged(ranks, rate_bps)
        space = stack.enter_context(opened)
        secrets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ensayo-bench-")))
        issue("bench", [f"rank-{rank}" for rank in range(ranks)], secrets)
        groups: list[Group] = []
        for number, name in enumerate(variants):
            ports = [FIRST_PORT + number * max(RANKS) + rank for rank in range(ranks)]
            groups.append(stack.enter_context(group(name, space, ports, secrets, torch)))
        for turn in range(rounds):
            sys.stderr.write(f"{link}, {ranks} ranks, round {turn + 1}/{rounds}\n")
            for each in sizes:
                calls = max(1, min(MOST_CALLS, round(WORK_S / expected_s(ranks, each, rate_bps))))
                for known in groups[turn % len(groups) :] + groups[: turn % len(groups)]:
                    took[each][known.name].append(known.work(each, calls))
    rows = [Row(link, ranks, each, {name: took[each][name] for name in variants}) for each in sizes]
    return space.congestion, rows


def _lines(cells: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of Markdown."""
    return (f"| {' | '.join(line)} |" for line in cells)


def _remarks(wanted: Sequence[str], links: Sequence[str], torch: str | None, congestion: str) -> Iterator[str]:
    """What a reader has to know."""
    yield f"Congestion control: {congestion}. Vectors up to 128 KiB go by recursive doubling over our planes."
    if missing := [link for link in wanted if link not in links]:
        yield f"Not measured: {', '.join(missing)}; {spaces.refusal()}."
    if torch is None:
        yield f"No gloo to compare with: `TORCH=1 make bench-transport` installs {TORCH} beside .venv."


def _head(machine: str, host: Fingerprint) -> str:
    return f"Machine: {machine} ({host.cpu}, {host.cores} cores, Linux {host.kernel})."


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="compose.transports", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"at least {FEWEST_ROUNDS}")
    parser.add_argument("--links", nargs="+", choices=RATES, default=list(RATES))
    parser.add_argument("--ranks", nargs="+", type=int, choices=RANKS, default=list(RANKS))
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="bytes")
    parser.add_argument("--torch", default=".venv-torch/bin/python", help="an interpreter that has PyTorch")
    parser.add_argument("--write", metavar="MACHINE", help=f"also into {RESULTS.name}, under this name of the machine")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
