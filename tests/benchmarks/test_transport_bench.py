"""The benchmark of the data planes: it checks its sums, and shows times as shares of the right lower bound."""

import socket
from pathlib import Path

import pytest

from benchmarks.fidelity.provenance import MeasurementOrigin
from benchmarks.transport.__main__ import DEFAULT_ROUNDS, TARGET_WORK_S, MeasuredCase, unwritable_page_reason
from benchmarks.transport.cases import BARE, CASES_BY_ROW, GLOO, RAW, TEXTBOOK, TransportCase
from benchmarks.transport.jobs import RankJob, RankOperation
from benchmarks.transport.network_namespaces import RankNetwork
from benchmarks.transport.rank_processes import CallCost, start_ranks
from compose.calibration.capacity import HostFingerprint
from compose.runs.certificates import issue_certificates
from services.schema.errors import HostError
from services.transport.data_planes import DATA_PLANES


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for open_socket in sockets:
        open_socket.bind(("127.0.0.1", 0))
    ports = [open_socket.getsockname()[1] for open_socket in sockets]
    for open_socket in sockets:
        open_socket.close()
    return ports


def make_job(operation: RankOperation, size_bytes: int) -> RankJob:
    return {"what": operation, "size_bytes": size_bytes, "small_bytes": 1_000_000, "calls": 3, "warm_ups": 1}


@pytest.mark.slow_where(rank_count=[4])
@pytest.mark.parametrize("rank_count", [2, 4])
@pytest.mark.parametrize("variant", [*DATA_PLANES, BARE])
def test_ranks_sum_small_and_large_vectors(
    variant: str, rank_count: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ranks check their own sums: a wrong sum ends the rank, and thereby the benchmark. They end without an error."""
    issue_certificates("bench", [f"rank-{rank}" for rank in range(rank_count)], tmp_path)
    network = RankNetwork(("127.0.0.1",) * rank_count, ((),) * rank_count, "lo")

    with start_ranks(variant, network, free_ports(rank_count), tmp_path, None) as ranks:
        costs = [ranks.run_job(make_job("sum", size_bytes)) for size_bytes in (4096, 3_000_000)]

    assert all(0 < cost.seconds < 5 for cost in costs)
    assert all(cost.cpu_s > 0 for cost in costs)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("variant", [*DATA_PLANES, RAW, TEXTBOOK])
def test_one_rank_sends_a_vector_to_another(variant: str, tmp_path: Path) -> None:
    """Data planes and the implementations compared with them: the time runs from the first byte to the answer."""
    issue_certificates("bench", ["rank-0", "rank-1"], tmp_path)
    network = RankNetwork(("127.0.0.1",) * 2, ((), ()), "lo")

    with start_ranks(variant, network, free_ports(2), tmp_path, None) as ranks:
        cost = ranks.run_job(make_job("pair", 3_000_000))

    assert 3e6 / 1e11 < cost.seconds < 5, "no machine moves 100 GB/s"


def test_a_failing_rank_is_an_error_and_gives_no_time(tmp_path: Path) -> None:
    """In this case it has no certificate."""
    network = RankNetwork(("127.0.0.1",), ((),), "lo")

    with (
        pytest.raises(HostError, match="a rank of tcp ended unexpectedly"),
        start_ranks("tcp", network, free_ports(1), tmp_path, None),
    ):
        pytest.fail("the rank became ready")


CASE = TransportCase(4, {10_000_000: {"tcp": {"bound": 0.94, GLOO: 0.99}}}, 1e9)


def measured_case(seconds: float) -> MeasuredCase:
    return MeasuredCase(
        "1gbit", CASE, 10_000_000, {"tcp": [CallCost(seconds, 0.1)] * 7, GLOO: [CallCost(0.126, 0.1)] * 7}
    )


def test_a_time_is_shown_as_a_share_of_the_bound_and_relative_to_gloo() -> None:
    """Each of four ranks sends 1.5 times the vector: 10 MB at 1 Gbit/s take at least 120 ms."""
    tcp_row, gloo_row = measured_case(0.15).table_rows()

    assert CASE.lower_bound_s(10_000_000) == pytest.approx(0.12)
    assert tcp_row[-2:] == ("0.8 of the bound, 0.84 × gloo", "≥ 0.94 of the bound, ≥ 0.99 × gloo")
    assert gloo_row[-2:] == ("0.952 of the bound", "–")


@pytest.mark.parametrize(("seconds", "mark"), [(0.1272, "ok"), (0.1274, "NOT OK"), (0.1278, "NOT OK")])
def test_a_gate_passes_only_if_all_its_conditions_hold(seconds: float, mark: str) -> None:
    """The second time is near the bound, but slower than gloo; gloo itself has no gate."""
    tcp_row, gloo_row = measured_case(seconds).table_rows()

    assert (tcp_row[0], gloo_row[0]) == (mark, "")


def test_gates_relative_to_gloo_are_not_judged_without_gloo() -> None:
    """Without PyTorch, the table must show neither success nor failure."""
    case_without_gloo = MeasuredCase(
        "unshaped", TransportCase(2, {4096: {"tcp": {GLOO: 2.5}}}), 4096, {"tcp": [CallCost(1.0, 1.0)]}
    )

    assert [line[0] for line in case_without_gloo.table_rows()] == ["not judged"]


@pytest.mark.parametrize(
    ("row_names", "commit", "reason"),
    [
        (["pair"], "1234567", "the page needs all rows; missing: "),
        (list(CASES_BY_ROW), "1234567+dirty", "the page needs a checkout without changes"),
        (list(CASES_BY_ROW), "no checkout", "the page needs a checkout without changes"),
        (list(CASES_BY_ROW), "1234567", None),
    ],
)
def test_a_page_has_all_rows_of_one_commit(row_names: list[str], commit: str, reason: str | None) -> None:
    """A page with rows of several commits, or of unknown code, describes no version of Ensayo."""
    host = HostFingerprint(cpu="a CPU", cores=2, kernel="6.1", engine="grpcio 1.0")

    given_reason = unwritable_page_reason(row_names, MeasurementOrigin(commit=commit, date="2026-11-24", host=host))

    assert (given_reason or "").startswith(reason or "")
    assert (given_reason is None) == (reason is None)


def test_the_whole_benchmark_takes_less_than_fifteen_minutes() -> None:
    """The time of all variants is computed from the rates of the links; users would not run a longer benchmark."""

    def seconds(case: TransportCase) -> float:
        run_count = DEFAULT_ROUNDS * (len(DATA_PLANES) + len(case.rivals))
        return sum(run_count * max(2 * TARGET_WORK_S, 2 * case.expected_call_s(size)) for size in case.gates_by_size)

    assert sum(seconds(case) for cases in CASES_BY_ROW.values() for case in cases) < 15 * 60
