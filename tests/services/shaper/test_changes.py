"""A link ends up as the last moment wants it, in whatever order helpers were told."""

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
def written(tmp_path: Path) -> Path:
    """What programs have appended, in their order."""
    return tmp_path / "written"


@pytest.fixture
def changes() -> LinkChangeSchedule:
    return LinkChangeSchedule(lambda _: None)


@pytest.fixture
def append(written: Path, changes: LinkChangeSchedule) -> Append:
    """`append(number, in_s, text)`: a change that appends a text after so many seconds from now."""

    def plan(number: int, in_s: float, text: str) -> Future[dict[str, Any]]:
        return changes.add(number, time.monotonic() + in_s, [(["sh", "-c", f"cat >> {written}"], text)], {})

    return plan


def test_changes_come_in_the_order_of_their_moments(append: Append, written: Path) -> None:
    asked = [append(0, 0.2, "late"), append(1, 0.1, "early"), append(2, -1.0, "over")]

    moments = [each.result(PROMPT_S)["applied"] for each in asked]

    assert written.read_text().split() == ["over", "early", "late"]
    assert sorted(moments, reverse=True) == moments


def test_two_changes_of_one_moment_do_not_overtake_each_other(changes: LinkChangeSchedule, written: Path) -> None:
    moment = time.monotonic() + 0.1
    slow, quick = f"sleep 0.1; cat >> {written}", f"cat >> {written}"

    asked = [
        changes.add(k, moment, [(["sh", "-c", how], str(k))], {}) for k, how in enumerate((slow, quick, slow, quick))
    ]
    for each in asked:
        each.result(PROMPT_S)

    assert written.read_text().split() == ["0", "1", "2", "3"]


def test_the_newer_of_one_number_takes_the_place_of_the_older(append: Append, written: Path) -> None:
    older, newer = append(0, 0.1, "older"), append(0, 0.1, "newer")

    assert older.result(PROMPT_S) == NOT_APPLIED
    assert newer.result(PROMPT_S)["applied"]
    assert written.read_text().split() == ["newer"]


def test_what_comes_after_the_end_is_forgotten(append: Append, changes: LinkChangeSchedule, written: Path) -> None:
    append(3, 0.0, "before").result(PROMPT_S)
    after = append(4, 60.0, "after")

    assert changes.cancel_all_changes() == {"last": 3}
    assert after.result(PROMPT_S) == NOT_APPLIED
    assert written.read_text().split() == ["before"]


def test_a_program_that_fails_is_an_error_and_the_next_change_is_made(
    changes: LinkChangeSchedule, append: Append
) -> None:
    failing = changes.add(0, 0.0, [(["sh", "-c", "echo no such class >&2; exit 2"], "")], {})

    with pytest.raises(RuntimeError, match="no such class"):
        failing.result(PROMPT_S)
    assert append(1, 0.0, "next").result(PROMPT_S)["applied"]
