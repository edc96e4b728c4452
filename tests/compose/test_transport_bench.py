"""The bench of the data planes sums what it says it sums, and tells times as shares of the right bound."""

import socket
from pathlib import Path

import pytest

from compose.authority import issue
from compose.transports.__main__ import Row, bound_s
from compose.transports.ranks import GLOO, Took, group
from compose.transports.spaces import Space
from services.errors import HostError
from services.transport.planes import PLANES


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.mark.parametrize("plane", PLANES)
def test_ranks_sum_vectors_small_and_large(plane: str, tmp_path: Path) -> None:
    """Ranks look at their sums themselves: one that is wrong ends the rank, and that the bench."""
    issue("bench", ["rank-0", "rank-1"], tmp_path)
    space = Space(("127.0.0.1",) * 2, ((), ()), "lo", "whatever it is")

    with group(plane, space, free_ports(2), tmp_path, None) as ranks:
        took = [ranks.work(size_bytes, calls=3) for size_bytes in (4096, 3_000_000)]

    assert all(0 < each.seconds < 5 for each in took)
    assert all(each.cpu_s > 0 for each in took)


def test_a_rank_that_fails_is_an_error_and_no_number(tmp_path: Path) -> None:
    """Here it has no certificate."""
    space = Space(("127.0.0.1",), ((),), "lo", "whatever it is")

    with pytest.raises(HostError, match="a rank of tcp has ended"), group("tcp", space, free_ports(1), tmp_path, None):
        pytest.fail("nobody is ready")


def test_a_time_is_told_as_a_share_of_the_bound_and_beside_gloo() -> None:
    """Four ranks send 1.5 times the vector each: 10 MB at 1 Gbit/s take at least 120 ms."""
    row = Row("1gbit", 4, 10_000_000, {"tcp": [Took(0.15, 0.1)] * 7, GLOO: [Took(0.3, 0.1)] * 7})

    tcp, gloo = row.lines()

    assert bound_s(4, 10_000_000, 1e9) == pytest.approx(0.12)
    assert tcp[-2:] == ("0.800", "2.00")
    assert gloo[-2:] == ("0.400", "1.00")
