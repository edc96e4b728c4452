"""The bench of the data planes sums what it says it sums, and tells times as shares of the right bound."""

import socket
from pathlib import Path

import pytest

from benchmarks.transport.__main__ import DEFAULT_ROUNDS, TARGET_WORK_S, MeasuredCase, write_page
from benchmarks.transport.cases import BARE, CASES_BY_ROW, GLOO, RAW, TEXTBOOK, TransportCase
from benchmarks.transport.jobs import RankJob, RankOperation
from benchmarks.transport.network_namespaces import RankNetwork
from benchmarks.transport.rank_processes import CallCost, start_ranks
from compose.runs.certificates import issue_certificates
from services.schema.errors import HostError
from services.transport.data_planes import DATA_PLANES


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def job(what: RankOperation, size_bytes: int) -> RankJob:
    return {"what": what, "size_bytes": size_bytes, "small_bytes": 1_000_000, "calls": 3, "warm_ups": 1}


@pytest.mark.slow_where(count=[4])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("variant", [*DATA_PLANES, BARE])
def test_ranks_sum_vectors_small_and_large(variant: str, count: int, tmp_path: Path) -> None:
    """Ranks look at their sums themselves: one that is wrong ends the rank, and that the bench."""
    issue_certificates("bench", [f"rank-{rank}" for rank in range(count)], tmp_path)
    space = RankNetwork(("127.0.0.1",) * count, ((),) * count, "lo")

    with start_ranks(variant, space, free_ports(count), tmp_path, None) as ranks:
        took = [ranks.run_job(job("sum", size_bytes)) for size_bytes in (4096, 3_000_000)]

    assert all(0 < each.seconds < 5 for each in took)
    assert all(each.cpu_s > 0 for each in took)


@pytest.mark.parametrize("variant", [*DATA_PLANES, RAW, TEXTBOOK])
def test_one_rank_sends_another_a_vector(variant: str, tmp_path: Path) -> None:
    """Over our planes and over what they are compared with; it counts from the first byte to the other's answer."""
    issue_certificates("bench", ["rank-0", "rank-1"], tmp_path)
    space = RankNetwork(("127.0.0.1",) * 2, ((), ()), "lo")

    with start_ranks(variant, space, free_ports(2), tmp_path, None) as ranks:
        took = ranks.run_job(job("pair", 3_000_000))

    assert 3e6 / 1e11 < took.seconds < 5, "no machine moves 100 GB/s"


def test_a_rank_that_fails_is_an_error_and_no_number(tmp_path: Path) -> None:
    """Here it has no certificate."""
    space = RankNetwork(("127.0.0.1",), ((),), "lo")

    with (
        pytest.raises(HostError, match="a rank of tcp ended unexpectedly"),
        start_ranks("tcp", space, free_ports(1), tmp_path, None),
    ):
        pytest.fail("nobody is ready")


CASE = TransportCase(4, {10_000_000: {"tcp": {"bound": 0.94, GLOO: 0.99}}}, 1e9)


def row(seconds: float) -> MeasuredCase:
    return MeasuredCase(
        "1gbit", CASE, 10_000_000, {"tcp": [CallCost(seconds, 0.1)] * 7, GLOO: [CallCost(0.126, 0.1)] * 7}
    )


def test_a_time_is_told_as_a_share_of_the_bound_and_beside_gloo() -> None:
    """Four ranks send 1.5 times the vector each: 10 MB at 1 Gbit/s take at least 120 ms."""
    tcp, gloo = row(0.15).table_rows()

    assert CASE.lower_bound_s(10_000_000) == pytest.approx(0.12)
    assert tcp[-2:] == ("0.8 of the bound, 0.84 × gloo", "≥ 0.94 of the bound, ≥ 0.99 × gloo")
    assert gloo[-2:] == ("0.952 of the bound", "–")


@pytest.mark.parametrize(("seconds", "mark"), [(0.1272, "ok"), (0.1274, "NOT OK"), (0.1278, "NOT OK")])
def test_a_gate_holds_when_all_that_it_asks_does(seconds: float, mark: str) -> None:
    """The second is near the bound and slower than gloo; a rival has no gate."""
    tcp, gloo = row(seconds).table_rows()

    assert (tcp[0], gloo[0]) == (mark, "")


def test_without_gloo_its_gates_are_not_judged() -> None:
    """Whoever has no PyTorch must not read that all is well, nor that it is not."""
    alone = MeasuredCase(
        "unshaped", TransportCase(2, {4096: {"tcp": {GLOO: 2.5}}}), 4096, {"tcp": [CallCost(1.0, 1.0)]}
    )

    assert [line[0] for line in alone.table_rows()] == ["not judged"]


def test_a_page_keeps_rows_that_were_not_measured_again_on_the_same_machine(tmp_path: Path) -> None:
    """Whoever measures one row again loses no other; rows stand in their order."""
    page = tmp_path / "transport.md"
    pair, unshaped, again = (
        f"| {' | '.join(('ok', name, *(['-'] * 7), by))} |"
        for name, by in (("pair", "a, 1"), ("unshaped", "a, 1"), ("pair", "b, 2"))
    )

    def written(machine: str, *lines: str) -> list[str]:
        write_page(page, machine, lines, ["", "Remark."])
        return [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ok")]

    assert written("Machine: one.", pair, unshaped) == [unshaped, pair]
    assert written("Machine: one.", again) == [unshaped, again]
    assert page.read_text(encoding="utf-8").count("Remark.") == 1
    assert written("Machine: another.", again) == [again]


def test_the_whole_bench_is_short() -> None:
    """A bench that takes an hour is not run: so long do all variants of all rows take, by what links carry."""

    def seconds(case: TransportCase) -> float:
        turns = DEFAULT_ROUNDS * (len(DATA_PLANES) + len(case.rivals))
        return sum(turns * max(2 * TARGET_WORK_S, 2 * case.expected_call_s(size)) for size in case.gates_by_size)

    assert sum(seconds(case) for row in CASES_BY_ROW.values() for case in row) < 15 * 60
