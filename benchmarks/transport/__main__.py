"""Runner of `make bench-transport`: sums and sends vectors over each data plane and over each rival.

The variants take turns in every round. ROWS=unshaped,pair selects rows; default: all. Links are network namespaces,
shaped like those of containers, which needs root, `ip` and `tc`. Otherwise only unshaped links are measured, on
loopback.
"""

import argparse
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.fidelity.provenance import MeasurementOrigin, current_origin
from benchmarks.markdown import markdown_row
from benchmarks.transport import network_namespaces
from benchmarks.transport.cases import (
    BOUND,
    CASES_BY_ROW,
    GLOO,
    MAX_DOUBLING_BYTES,
    MAX_UNSHAPED_DOUBLING_BYTES,
    MB,
    TransportCase,
    VariantComparison,
    format_ratios,
)
from benchmarks.transport.jobs import RankJob
from benchmarks.transport.rank_processes import CallCost, VariantRanks, find_torch_interpreter, start_ranks
from compose.engines.local import LocalEngine
from compose.runs.certificates import issue_certificates
from compose.runs.interrupt import raise_on_first_stop_signal
from services.transport.data_planes import DATA_PLANES

DEFAULT_ROUNDS, MIN_ROUNDS = 7, 7
RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results" / "transport.md"
TARGET_WORK_S, MAX_CALLS_PER_ROUND = 0.4, 40  # for one variant in one round
MIN_CALL_WITHOUT_WARM_UP_S = 0.5  # calls that take longer need no warm-up call
FIRST_PORT = 42_000
TORCH_REQUIREMENT = "torch==2.13.0"
TABLE_HEADER = ("", "row", "n", "vector", "by", "ms, median (range)", "CPU ms", "reached", "gate")
TABLE_TOP = (TABLE_HEADER, ("---",) * len(TABLE_HEADER))


@dataclass(frozen=True)
class MeasuredCase:
    """Measured costs of one vector size of a case."""

    row_name: str
    case: TransportCase
    size_bytes: int
    costs_by_variant: Mapping[str, Sequence[CallCost]]  # one cost per round

    def compare_variant(self, variant: str) -> VariantComparison:
        """Return the speed of a variant relative to the bound and to its rivals. Rivals themselves have no gates."""
        call_s = {name: median(cost.seconds for cost in costs) for name, costs in self.costs_by_variant.items()}
        bound_s = self.case.lower_bound_s(self.size_bytes)
        ratios = {BOUND: bound_s / call_s[variant]} if bound_s else {}
        rivals = [rival for rival in self.case.rivals if rival in call_s and rival != variant]
        ratios |= {rival: call_s[rival] / call_s[variant] for rival in rivals}
        return VariantComparison(self.case.gates_by_size[self.size_bytes].get(variant, {}), ratios)

    def table_rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells of a table row for each variant."""
        for variant, costs in self.costs_by_variant.items():
            calls_ms = [1e3 * cost.seconds for cost in costs]
            spread = f"{median(calls_ms):.3g} ({min(calls_ms):.3g} - {max(calls_ms):.3g})"
            cpu_ms, comparison = 1e3 * median(cost.cpu_s for cost in costs), self.compare_variant(variant)
            yield (
                comparison.gate_mark,
                self.row_name,
                str(self.case.rank_count),
                format_size(self.size_bytes),
                variant,
                spread,
                f"{cpu_ms:.3g}",
                format_ratios(comparison.measured_ratios),
                format_ratios(comparison.required_ratios, "≥ "),
            )


def main() -> int:
    """Measure the selected rows, print the table and write the page if --write is given. Return the exit code.

    Returns:
        0 if all gates hold, 1 if a gate does not hold, 2 if a row name is unknown or no page can be written.
    """
    arguments = _parse_arguments()
    row_names = [name for name in arguments.rows.split(",") if name] or list(CASES_BY_ROW)
    if unknown := [name for name in row_names if name not in CASES_BY_ROW]:
        sys.stderr.write(f"unknown row {unknown[0]}; rows are {', '.join(CASES_BY_ROW)}\n")
        return 2
    torch_interpreter, rounds = find_torch_interpreter(arguments.torch), max(arguments.rounds, MIN_ROUNDS)
    origin = current_origin(LocalEngine())
    if arguments.write and (reason := unwritable_page_reason(row_names, origin)):
        sys.stderr.write(f"--write: {reason}\n")
        return 2
    sys.stdout.write("\n".join(map(markdown_row, TABLE_TOP)) + "\n")
    table_lines: list[str] = []
    measured_cases, left_out = [], []
    with raise_on_first_stop_signal():
        for name in row_names:
            for case in CASES_BY_ROW[name]:
                if reason := _unsupported_reason(case):
                    left_out.append(f"Not measured: {name}; {reason}.")
                    continue
                new_cases = _measure_case(name, case, rounds, torch_interpreter)
                new_lines = [markdown_row(row) for measured in new_cases for row in measured.table_rows()]
                measured_cases += new_cases
                table_lines += new_lines
                sys.stdout.write("\n".join(new_lines) + "\n")
    remarks = ["", *_page_remarks(torch_interpreter), *dict.fromkeys(left_out)]
    sys.stdout.write("\n".join(remarks) + "\n")
    if arguments.write:
        write_page(RESULTS_PAGE, _origin_sentences(arguments.write, origin), table_lines, remarks)
    marks = (
        measured.compare_variant(name).gate_mark for measured in measured_cases for name in measured.costs_by_variant
    )
    return int("NOT OK" in marks)


def unwritable_page_reason(row_names: Sequence[str], origin: MeasurementOrigin) -> str | None:
    """Return why these measurements cannot be published: a page has all rows, of one commit; None if they can."""
    if missing := CASES_BY_ROW.keys() - set(row_names):
        return f"the page needs all rows; missing: {', '.join(sorted(missing))}"
    return None if origin.is_one_commit else f"the page needs a checkout without changes; this one is {origin.commit}"


def write_page(page_path: Path, origin_sentences: str, table_lines: Sequence[str], remarks: Sequence[str]) -> None:
    """Write the results page: where and when it was measured, the table and the remarks."""
    text = "\n".join((*map(markdown_row, TABLE_TOP), *table_lines, *remarks))
    page_path.write_text(f"# What `make bench-transport` printed\n\n{origin_sentences}\n\n{text}\n", encoding="utf-8")


def format_size(byte_count: int) -> str:
    """Return a vector size in MB or in bytes: `10 MB`, `4096 B`."""
    return f"{byte_count // MB} MB" if byte_count >= MB else f"{byte_count} B"


def _unsupported_reason(case: TransportCase) -> str | None:
    """Return the reason why this host cannot measure a case; None if it can."""
    if case.rate_bps is None:
        return None
    if reason := network_namespaces.namespaces_unsupported_reason():
        return reason
    return network_namespaces.delays_unsupported_reason() if case.delay_s else None


def _measure_case(row_name: str, case: TransportCase, rounds: int, torch_interpreter: str | None) -> list[MeasuredCase]:
    """Measure all vector sizes of a case, while the processes of all variants run."""
    costs: dict[int, dict[str, list[CallCost]]] = {size: defaultdict(list) for size in case.gates_by_size}
    with ExitStack() as stack:
        variants = _start_variants(stack, case, torch_interpreter)
        for turn in range(rounds):
            sys.stderr.write(f"{row_name}, {case.rank_count} ranks, round {turn + 1}/{rounds}\n")
            first = turn % len(variants)
            for size_bytes in case.gates_by_size:
                for ranks in variants[first:] + variants[:first]:
                    costs[size_bytes][ranks.variant].append(ranks.run_job(_make_job(case, size_bytes)))
    return [
        MeasuredCase(
            row_name, case, size_bytes, {ranks.variant: costs[size_bytes][ranks.variant] for ranks in variants}
        )
        for size_bytes in case.gates_by_size
    ]


def _start_variants(stack: ExitStack, case: TransportCase, torch_interpreter: str | None) -> list[VariantRanks]:
    """Start the ranks of all variants. They run until the stack is closed."""
    network_context: AbstractContextManager[network_namespaces.RankNetwork]
    if case.rate_bps:
        network_context = network_namespaces.bridged_network(case.rank_count, case.rate_bps, case.delay_s)
    else:
        network_context = network_namespaces.loopback_network(case.rank_count)
    network = stack.enter_context(network_context)
    secrets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ensayo-bench-")))
    issue_certificates("bench", [f"rank-{rank}" for rank in range(case.rank_count)], secrets)
    rivals = [rival for rival in case.rivals if rival != GLOO or torch_interpreter]
    variants = []
    for number, name in enumerate((*DATA_PLANES, *rivals)):
        ports = [FIRST_PORT + number * case.rank_count + rank for rank in range(case.rank_count)]
        variants.append(stack.enter_context(start_ranks(name, network, ports, secrets, torch_interpreter)))
    return variants


def _make_job(case: TransportCase, size_bytes: int) -> RankJob:
    call_s = case.expected_call_s(size_bytes)
    calls = max(1, min(MAX_CALLS_PER_ROUND, round(TARGET_WORK_S / call_s)))
    return {
        "what": case.operation,
        "size_bytes": size_bytes,
        "small_bytes": case.max_doubling_bytes,
        "calls": calls,
        "warm_ups": int(call_s < MIN_CALL_WITHOUT_WARM_UP_S),
    }


def _page_remarks(torch_interpreter: str | None) -> Iterator[str]:
    """Yield remarks that explain the table: congestion control, algorithms, rows and missing rivals."""
    yield f"Congestion control: {network_namespaces.congestion_control()}."
    small = f"{MAX_DOUBLING_BYTES >> 10} KiB, unshaped ones up to {format_size(MAX_UNSHAPED_DOUBLING_BYTES)}"
    yield f"Vectors up to {small}, are summed by recursive doubling."
    yield "pair: time until the receiver has the vector."
    yield "beside: round trip of 100 bytes while the vector is in transit."
    if torch_interpreter is None:
        yield f"gloo was not measured: `TORCH=1 make bench-transport` installs {TORCH_REQUIREMENT} in .venv-torch."


def _origin_sentences(machine_name: str, origin: MeasurementOrigin) -> str:
    host = origin.host
    return (
        f"Machine: {machine_name} ({host.cpu}, {host.cores} cores, Linux {host.kernel}, {host.engine}). "
        f"Commit {origin.commit}, measured from {origin.date}."
    )


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.transport", description=__doc__)
    parser.add_argument(
        "--rows", default=os.environ.get("ROWS", ""), help=f"comma-separated, of {', '.join(CASES_BY_ROW)}"
    )
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help=f"samples per size; at least {MIN_ROUNDS}")
    parser.add_argument("--torch", default=".venv-torch/bin/python", help="Python interpreter that has PyTorch")
    parser.add_argument("--write", metavar="MACHINE", help=f"also write {RESULTS_PAGE.name}, with this machine name")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
