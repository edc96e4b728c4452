"""Tests of the process group when a rank fails, and of its settings."""

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rank_processes import RankFailure, RankProcesses

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

import process_group_checks as checks  # noqa: E402 - it needs PyTorch

from services.commands.process_group.settings import read_settings  # noqa: E402
from services.schema.errors import UserError  # noqa: E402


@pytest.mark.parametrize("in_collective", [False, True])
@pytest.mark.parametrize("rank_count", [2, 3])
def test_ranks_that_wait_for_a_dead_rank_get_an_error_that_names_it(
    rank_count: int, in_collective: bool, tmp_path: Path
) -> None:
    """Without an error the script would hang, and without the name users would look at the wrong node."""
    with RankProcesses(rank_count, tmp_path, timeout_s=8) as ranks:
        ranks.start_call(checks.wait_for_dead_rank, 1, in_collective)
        results = [ranks.result_of(rank) for rank in range(rank_count) if rank != 1]

    for error, seconds in results:
        assert "worker-" in error
        assert seconds < 10
    assert any("worker-1" in error for error, _ in results)


def test_rank_that_does_not_take_part_is_named_after_the_time_limit(tmp_path: Path) -> None:
    """A rank that took another branch is alive: only the time limit ends the wait."""
    with RankProcesses(2, tmp_path, timeout_s=1) as ranks:
        error, _ = ranks.call(checks.wait_for_silent_rank, 1)

    assert "no message" in error
    assert "worker-1 within 1 s" in error


def test_tensors_of_different_sizes_are_an_error(tmp_path: Path) -> None:
    """A script that drops the last batch on one rank only is wrong, and its sums would be, too."""
    with RankProcesses(2, tmp_path, timeout_s=2) as ranks:
        errors = ranks.call(checks.sum_different_sizes)

    assert any("all ranks must call the same collective" in error for error in errors)


def test_time_limit_is_in_virtual_seconds(tmp_path: Path) -> None:
    """With a dilation of 4, nodes compute and send four times slower than they report."""
    with RankProcesses(2, tmp_path, timeout_s=0.5, dilation=4) as ranks:
        start_s = time.monotonic()
        error, _ = ranks.call(checks.wait_for_silent_rank, 1)
        assert time.monotonic() - start_s >= 2

    assert "within 0.5 s" in error


def test_operations_after_a_failed_one_fail_too(tmp_path: Path) -> None:
    """The ranks no longer agree on the number of the next collective: a sum of two different ones would be wrong."""
    with RankProcesses(2, tmp_path, timeout_s=1) as ranks:
        ranks.call(checks.wait_for_silent_rank, 1)
        after, _ = ranks.call(checks.all_reduce_normal, 10)

    assert isinstance(after, RankFailure)
    assert "worker-1 within 1 s" in str(after)


SETTINGS: dict[str, Any] = {
    "node": "a",
    "peers": {"b": ["10.0.0.2", 1]},
    "ranks": ["a", "b"],
    "listen": ["10.0.0.1", 1],
    "secrets": "secrets",
}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"secrets": None}, "streams between nodes need certificates"),
        ({"node": "c"}, "node c has no rank; ranks lists a, b"),
        ({"peers": {}}, "peers has no address of b"),
        ({"collective": {"kind": "auto"}}, "collective auto is not resolved"),
        ({"collective": {"kind": "ring", "sequence": [0, 1, 2]}}, "must list the ranks 0 to 1"),
        (
            {"collective": {"kind": "reduce_to_one", "fused": False, "tensors": [3, 4]}},
            "remove tensors of reduce_to_one",
        ),
        ({"timeout_s": 0}, "timeout_s"),
        ({"speed": 1}, "speed"),
    ],
)
def test_wrong_settings_are_rejected_before_a_group_starts(change: dict[str, Any], text: str) -> None:
    """A script would fail at its first collective, after minutes, or wait for ever."""
    with pytest.raises(UserError, match=text):
        read_settings({**SETTINGS, **change})


def test_time_limit_of_a_group_is_wall_time_that_the_metering_has_multiplied() -> None:
    """Messages of the transport count virtual seconds."""
    settings = read_settings({**SETTINGS, "dilation": 4, "timeout_s": 6})

    limits_s = [settings.message_time_limit_s(timedelta(seconds=seconds)) for seconds in (20, 80, 4 * 1800)]

    assert limits_s == [5.0, 20.0, 6.0], "the default of PyTorch is no declaration"


def test_a_shorter_time_limit_of_the_script_counts(tmp_path: Path) -> None:
    """A script that passes a timeout expects its error then, not after `timeouts.step`."""
    with RankProcesses(2, tmp_path, group_limit_s=1, timeout_s=60) as ranks:
        error, _ = ranks.call(checks.wait_for_silent_rank, 1)

    assert "worker-1 within 1 s" in error
