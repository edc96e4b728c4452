"""Runner of `make bench-protection`: the price of authentication tags and of TLS on both data planes, on loopback.

All protections take turns in every round. Authentication codes that were not chosen are measured beside AES-GMAC.
"""

import argparse
import hashlib
import hmac
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, get_args

from benchmarks.fidelity.provenance import current_origin
from benchmarks.markdown import markdown_table
from benchmarks.transport.jobs import RankJob, RankOperation
from benchmarks.transport.network_namespaces import loopback_network
from benchmarks.transport.rank_processes import CallCost, VariantRanks, start_ranks
from compose.engines.local import LocalEngine
from compose.runs.certificates import issue_certificates
from services.runtime.transport import DataProtection
from services.transport.data_planes import DATA_PLANES
from services.transport.stream_authentication import KEY_BYTES, TAG_BYTES, MessageAuthenticator

if TYPE_CHECKING:
    from services.scenario.run_settings import TransportName

RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results" / "protection.md"
DEFAULT_ROUNDS, MIN_ROUNDS = 11, 7
FIRST_PORT = 43_000
PROTECTIONS: tuple[DataProtection, ...] = get_args(DataProtection)
CODE_BYTES = 1 << 20  # of one piece of a vector
CODE_CALLS = 20
REMARKS = """`vector`: time until the other node has a vector of 100 MB, sent in pieces of at most 1 MiB. `sum`: two
nodes sum a vector of 4096 bytes, one message in each direction. CPU time is that of both nodes together. All
protections of a row take turns in every round. Ratios are medians of the ratios to `signed` in the same round. Other
programs on the machine make elapsed times vary much more than CPU times.

The second table has authentication codes of 1 MiB, computed by one thread.
"""


class ProtectionCase(NamedTuple):
    """Operation between two nodes whose price is measured."""

    name: str
    operation: RankOperation
    size_bytes: int
    calls: int  # per round


CASES = (ProtectionCase("vector", "pair", 100_000_000, 3), ProtectionCase("sum", "sum", 4096, 200))
Measurements = Mapping[tuple[str, str, DataProtection], Sequence[CallCost]]  # by case, data plane and protection


def measure_protections(cases: Sequence[ProtectionCase], rounds: int, first_port: int = FIRST_PORT) -> Measurements:
    """Return the cost of a call for each case, data plane and protection, once per round."""
    costs: dict[tuple[str, str, DataProtection], list[CallCost]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ensayo-bench-")))
        issue_certificates("bench", ["rank-0", "rank-1"], folder)
        network = stack.enter_context(loopback_network(2))
        variants: list[tuple[TransportName, DataProtection, VariantRanks]] = []
        for number, (plane, protection) in enumerate(product(DATA_PLANES, PROTECTIONS)):
            ports = [first_port + 2 * number, first_port + 2 * number + 1]
            ranks = stack.enter_context(start_ranks(plane, network, ports, folder, None, protection))
            variants.append((plane, protection, ranks))
        for turn in range(rounds):
            first = turn % len(variants)
            for case, (plane, protection, ranks) in product(cases, variants[first:] + variants[:first]):
                costs.setdefault((case.name, plane, protection), []).append(ranks.run_job(_make_job(case)))
    return costs


def _make_job(case: ProtectionCase) -> RankJob:
    return {
        "what": case.operation,
        "size_bytes": case.size_bytes,
        "small_bytes": case.size_bytes,
        "calls": case.calls,
        "warm_ups": 1,
    }


def measure_codes(size_bytes: int, rounds: int) -> Mapping[str, Sequence[float]]:
    """Return the seconds per call of each authentication code of `size_bytes` bytes, once per round."""
    key, data = secrets.token_bytes(KEY_BYTES), memoryview(secrets.token_bytes(size_bytes))
    authenticator = MessageAuthenticator(key)
    codes: Mapping[str, Callable[[], object]] = {
        "AES-256-GMAC": lambda: authenticator.make_tag(data),
        "BLAKE2b with a key": lambda: hashlib.blake2b(data, key=key, digest_size=TAG_BYTES).digest(),
        "HMAC-SHA256": lambda: hmac.digest(key, data, "sha256")[:TAG_BYTES],
    }
    seconds: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(rounds):
        for name, compute_code in codes.items():
            start_s = time.perf_counter()
            for _ in range(CODE_CALLS):
                compute_code()
            seconds[name].append((time.perf_counter() - start_s) / CODE_CALLS)
    return seconds


def list_protection_rows(costs: Measurements) -> Iterator[tuple[str, ...]]:
    """Yield the cells of a table row for each case, data plane and protection."""
    for (case, plane, protection), samples in sorted(costs.items(), key=lambda item: _row_order(*item[0])):
        calls_ms = [1e3 * cost.seconds for cost in samples]
        pairs = list(zip(samples, costs[case, plane, "signed"], strict=True))
        yield (
            *(case, plane, protection),
            f"{median(calls_ms):.3g} ({min(calls_ms):.3g} - {max(calls_ms):.3g})",
            f"{1e3 * median(cost.cpu_s for cost in samples):.3g}",
            f"{median(cost.seconds / signed.seconds for cost, signed in pairs):.2f}",
            f"{median(cost.cpu_s / signed.cpu_s for cost, signed in pairs):.2f}",
        )


def _row_order(case: str, plane: str, protection: DataProtection) -> tuple[int, str, int]:
    names = [each.name for each in CASES]
    return names.index(case), plane, PROTECTIONS.index(protection)


def list_code_rows(seconds: Mapping[str, Sequence[float]], size_bytes: int) -> Iterator[tuple[str, ...]]:
    """Yield the cells of a table row for each authentication code."""
    for name, samples in seconds.items():
        spread = f"{1e6 * median(samples):.3g} ({1e6 * min(samples):.3g} - {1e6 * max(samples):.3g})"
        yield name, spread, f"{size_bytes / 1e6 / median(samples):,.0f}"


def main() -> int:
    """Measure, print the tables, and write the page if --write is given.

    Returns:
        0, or 2 if no page can be written.
    """
    arguments = _parse_arguments()
    origin = current_origin(LocalEngine())
    if arguments.write and not origin.is_one_commit:
        sys.stderr.write("--write: the page needs a checkout without uncommitted changes\n")
        return 2
    rounds = max(arguments.rounds, MIN_ROUNDS)
    relative = ("time relative to signed", "CPU relative to signed")
    protection_header = ("case", "data plane", "protection", "ms, median (range)", "CPU ms", *relative)
    code_header = ("code", "µs per MiB, median (range)", "MB/s")
    rows = list_protection_rows(measure_protections(CASES, rounds))
    code_rows = list_code_rows(measure_codes(CODE_BYTES, rounds), CODE_BYTES)
    tables = [*markdown_table(protection_header, rows), "", *markdown_table(code_header, code_rows)]
    text = "\n".join([*tables, "", REMARKS])
    sys.stdout.write(text)
    if arguments.write:
        host = origin.host
        machine = f"{arguments.write} ({host.cpu}, {host.cores} cores, Linux {host.kernel}, {host.engine})"
        sentences = f"Machine: {machine}. Commit {origin.commit}, {origin.date}. {rounds} rounds."
        RESULTS_PAGE.write_text(f"# What `make bench-protection` printed\n\n{sentences}\n\n{text}", encoding="utf-8")
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.transport.protection", description=__doc__)
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help=f"samples per row; at least {MIN_ROUNDS}")
    parser.add_argument("--write", metavar="MACHINE", help=f"also write {RESULTS_PAGE.name}, with this machine name")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
