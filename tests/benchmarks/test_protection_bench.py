"""Benchmark of the protection of messages: every variant is measured once per round, relative to signed streams."""

import pytest

from benchmarks.transport.protection import (
    CASES,
    PROTECTIONS,
    ProtectionCase,
    list_code_rows,
    list_protection_rows,
    measure_codes,
    measure_protections,
)
from benchmarks.transport.rank_processes import CallCost
from services.transport.data_planes import DATA_PLANES


@pytest.mark.serial
def test_each_data_plane_and_protection_has_one_sample_per_round() -> None:
    """The nodes run in processes of their own and use the data planes of trials."""
    costs = measure_protections([ProtectionCase("sum", "sum", 4096, 2)], rounds=2, first_port=43_500)

    assert set(costs) == {("sum", plane, protection) for plane in DATA_PLANES for protection in PROTECTIONS}
    assert {len(samples) for samples in costs.values()} == {2}
    assert all(cost.seconds > 0 and cost.cpu_s > 0 for samples in costs.values() for cost in samples)


def test_rows_compare_medians_within_a_round() -> None:
    """Other load in one round slows down all protections of this round; one slow round must not decide."""
    seconds = {"signed": [1.0, 9.0, 2.0], "authenticated": [1.1, 9.9, 2.2], "tls": [3.0, 18.0, 4.0]}
    costs = {(CASES[0].name, "tcp", name): [CallCost(value, 0.5) for value in seconds[name]] for name in PROTECTIONS}

    rows = list(list_protection_rows(costs))

    assert [row[2] for row in rows] == ["signed", "authenticated", "tls"]
    assert [row[5:] for row in rows] == [("1.00", "1.00"), ("1.10", "1.00"), ("2.00", "1.00")]
    assert rows[1][3:5] == ("2.2e+03 (1.1e+03 - 9.9e+03)", "500")


def test_each_authentication_code_has_one_sample_per_round() -> None:
    """The codes that were not chosen are measured on the same bytes."""
    seconds = measure_codes(1000, rounds=3)

    assert {len(samples) for samples in seconds.values()} == {3}
    assert [row[0] for row in list_code_rows(seconds, 1000)] == ["AES-256-GMAC", "BLAKE2b with a key", "HMAC-SHA256"]
