"""Profile of the usual step, from the steps of a dry run."""

import json
from pathlib import Path
from typing import Any

import pytest

from compose.commands import dry_run as host
from services.commands.script_process.ensayo_meter.dry_run import DryRun
from services.commands.script_process.ensayo_meter.step_records import CollectiveRecord, StepRecord

GRADIENT, ACCURACY = ("float32", 400), ("int64", 8)


def record_step(
    number: int, *kinds: tuple[str, int], cpu_s: float = 1.0, follows_evaluation: bool = False
) -> StepRecord:
    """Return a step of 1 s, or of the CPU time that it has with an evaluation; all calls lie in its middle."""
    begin_s = 100.0 * number
    middle_s, end_s = begin_s + cpu_s / 2, begin_s + cpu_s
    calls = [
        CollectiveRecord("all_reduce", size, dtype, 2, is_asynchronous=False, launch_s=middle_s, begin_s=middle_s)
        for dtype, size in kinds
    ]
    record = StepRecord(number, begin_s, end_s, end_s, [], calls)
    record.follows_evaluation = follows_evaluation
    return record


def profile(path: Path, steps: list[StepRecord]) -> dict[str, Any]:
    """Return what the host makes of the file that a dry run with these steps has written."""
    run = DryRun(path, len(steps))
    run._steps.extend(steps)
    run.write("")
    return host._summarise(json.loads(path.read_text()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "result.json"


def sizes(result: dict[str, Any]) -> list[int]:
    return [call["bytes"] for call in result["collectives"]]


def test_steps_with_an_evaluation_are_not_in_the_profile(path: Path) -> None:
    """Neither its collectives nor its CPU time belong to the usual step."""
    steps = [
        record_step(number, *([ACCURACY] * is_second), GRADIENT, cpu_s=1 + 4 * is_second, follows_evaluation=is_second)
        for number in range(8)
        for is_second in [number % 2 == 1]
    ]

    result = profile(path, steps)

    assert result["complete"]
    assert (sizes(result), result["cpu_s"], result["begins_without_gradient"]) == ([400], 1.0, False)


def test_extra_collectives_are_not_in_the_profile(path: Path) -> None:
    """A loss is averaged in every third step."""
    steps = [record_step(number, *([("float32", 4)] * (number % 3 == 0)), GRADIENT) for number in range(8)]

    assert sizes(profile(path, steps)) == [400]


def test_an_evaluation_before_every_step_is_a_part_of_it(path: Path) -> None:
    """The teacher of a student computes no gradient, and its time is compute of the step."""
    steps = [record_step(number, GRADIENT, cpu_s=3.0, follows_evaluation=number > 0) for number in range(8)]

    result = profile(path, steps)

    assert (sizes(result), result["cpu_s"], result["begins_without_gradient"]) == ([400], 3.0, True)


def test_steps_without_common_collectives_have_no_profile(path: Path) -> None:
    """A GAN updates two models in turn: there is no usual step."""
    steps = [record_step(number, ("float32", 4 + number % 2)) for number in range(8)]

    assert profile(path, steps) == {
        "complete": False,
        "reason": "the collectives differ from step to step",
    }


def times(share: float) -> dict[str, Any]:
    """Return the times of a dry run with one collective at this share of the step."""
    return {"launch_shares": [share], "wait_shares": [share], "update_share": 0.9, "cpu_s": share}


@pytest.mark.parametrize(("share", "used"), [(0.54, 0.5), (0.6, 0.6)])
def test_commands_share_times_that_agree(tmp_path: Path, share: float, used: float) -> None:
    """Two learning rates have one step, and noise between two dry runs must not look like a result.

    A larger batch has another step: its times must stay.
    """
    path = tmp_path / "times.json"
    first = host.use_agreeing_times({"complete": True, **times(0.5)}, path)

    second = host.use_agreeing_times({"complete": True, **times(share)}, path)

    assert first == {"complete": True, **times(0.5)}
    assert second == {"complete": True, **times(used)}


def test_ddp_waits_for_all_buckets_after_the_launch_of_the_last_one(path: Path) -> None:
    """The copies of the gradients and the update follow the wait, so the last bucket is not hidden by them."""
    steps = []
    for number in range(8):
        begin_s = 100.0 * number
        calls = [
            CollectiveRecord("all_reduce", 4, "float32", 2, is_asynchronous=True, launch_s=at_s, begin_s=at_s)
            for at_s in (begin_s + 5, begin_s + 7)
        ]
        steps.append(StepRecord(number, begin_s, begin_s + 9, begin_s + 10, [], calls))

    result = profile(path, steps)

    assert (result["launch_shares"], result["wait_shares"]) == ([0.5, 0.7], [0.7, 0.7])
