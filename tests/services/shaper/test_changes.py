"""A link ends with the settings of the latest change, in whatever order helpers receive the changes."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from services.shaper.changes import NOT_APPLIED, LinkChangeSchedule

Append = Callable[..., Future[dict[str, Any]]]
PROMPT_S = 5.0


@pytest.fixture
def output_file(tmp_path: Path) -> Path:
    """File to which the programs of all changes append their text."""
    return tmp_path / "output"


@pytest.fixture
def changes() -> LinkChangeSchedule:
    return LinkChangeSchedule(lambda _: None)


@pytest.fixture
def append(output_file: Path, changes: LinkChangeSchedule) -> Append:
    """Return `append(number, in_s, text)`, which adds a change that appends a text in this many seconds."""

    def add_change(number: int, in_s: float, text: str) -> Future[dict[str, Any]]:
        return changes.schedule_link_change(
            number, time.monotonic() + in_s, [(["sh", "-c", f"cat >> {output_file}"], text)], {}
        )

    return add_change


def test_changes_are_applied_in_the_order_of_their_times(append: Append, output_file: Path) -> None:
    futures = [append(0, 0.2, "late"), append(1, 0.1, "early"), append(2, -1.0, "over")]

    applied_times = [future.result(PROMPT_S)["applied"] for future in futures]

    assert output_file.read_text().split() == ["over", "early", "late"]
    assert sorted(applied_times, reverse=True) == applied_times


def test_changes_of_the_same_time_are_applied_in_the_order_of_their_numbers(
    changes: LinkChangeSchedule, output_file: Path
) -> None:
    due_time = time.monotonic() + 0.1
    slow, quick = f"sleep 0.1; cat >> {output_file}", f"cat >> {output_file}"

    futures = [
        changes.schedule_link_change(k, due_time, [(["sh", "-c", command], str(k))], {})
        for k, command in enumerate((slow, quick, slow, quick))
    ]
    for future in futures:
        future.result(PROMPT_S)

    assert output_file.read_text().split() == ["0", "1", "2", "3"]


def test_a_newer_change_replaces_an_older_one_of_the_same_number(append: Append, output_file: Path) -> None:
    older, newer = append(0, 0.1, "older"), append(0, 0.1, "newer")

    assert older.result(PROMPT_S) == NOT_APPLIED
    assert newer.result(PROMPT_S)["applied"]
    assert output_file.read_text().split() == ["newer"]


def test_cancelled_changes_are_not_applied(append: Append, changes: LinkChangeSchedule, output_file: Path) -> None:
    append(3, 0.0, "before").result(PROMPT_S)
    after = append(4, 60.0, "after")

    assert changes.cancel_all_changes() == {"last": 3}
    assert after.result(PROMPT_S) == NOT_APPLIED
    assert output_file.read_text().split() == ["before"]


def test_a_failing_program_raises_an_error_and_the_next_change_is_applied(
    changes: LinkChangeSchedule, append: Append
) -> None:
    failing = changes.schedule_link_change(0, 0.0, [(["sh", "-c", "echo no such class >&2; exit 2"], "")], {})

    with pytest.raises(RuntimeError, match="no such class"):
        failing.result(PROMPT_S)
    assert append(1, 0.0, "next").result(PROMPT_S)["applied"]
