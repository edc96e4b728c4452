"""Unmodified scripts of PyTorch, measured on two ranks."""

import itertools
from collections import Counter
from typing import Any

import pytest
from command_plans import schedule_of

from services.commands.script_process.ensayo_meter.protocol import COLLECTIVE_COLUMNS

pytest.importorskip("torch", reason="measured scripts need PyTorch; make test-torch installs it")
pytestmark = pytest.mark.torch

DESCRIPTION = ("operation", "bytes", "dtype", "group_size", "is_asynchronous")


def described(collectives: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what a dry run records of collectives, in order."""
    return [tuple(record[name] for name in DESCRIPTION) for record in collectives]


@pytest.mark.parametrize("script", ["ddp_mlp.py", "fully_sharded.py"])
def test_metering_and_pacing_leave_every_bit_of_the_result(run_ranks: Any, dry_run: Any, script: str) -> None:
    """A user compares runs with and without Ensayo; a difference would make the metering suspect."""
    plain = run_ranks(script, 6, is_metered=False)
    metered = run_ranks(script, 6)
    paced = run_ranks(script, 6, compute_s=0.05, schedule=schedule_of(dry_run(script, 8)))

    assert [rank.exit_code for rank in (*plain, *metered, *paced)] == [0] * 6
    assert all("params=" in rank.output for rank in plain)
    assert [rank.output for rank in plain] == [rank.output for rank in metered] == [rank.output for rank in paced]
    assert len(metered[0].steps()) == len(paced[0].steps()) == 6


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("ddp_mlp.py", []),
        ("accumulation.py", []),
        ("two_optimisers.py", ["together"]),
        ("two_optimisers.py", ["alternating"]),
        ("fully_sharded.py", []),
    ],
)
def test_a_dry_run_predicts_the_collectives_of_every_rank(
    run_ranks: Any, dry_run: Any, script: str, arguments: list[str]
) -> None:
    """The plan is made from the dry run, before a network exists. DDP has its final buckets from step 2 on."""
    first_compared = 4 if "alternating" in arguments else 2  # two models, which are updated in turn
    predicted = dry_run(script, 8, *arguments)
    measured = run_ranks(script, 8, *arguments)

    assert predicted["complete"], predicted["reason"]
    assert len(predicted["steps"]) == 6
    for rank in measured:
        for step, of_step in list(zip(rank.steps(), predicted["steps"], strict=False))[first_compared:]:
            assert described(step["collectives"]) == described(of_step["collectives"])
            assert step["collectives"]


def test_the_times_of_a_step_are_in_order(run_ranks: Any) -> None:
    """The report splits a step at these times."""
    for rank in run_ranks("ddp_mlp.py", 6):
        steps = rank.steps()
        assert rank.kinds() == ["hello", "begin", *["step"] * 6, "end"]
        assert [step["number"] for step in steps] == list(range(6))
        for step in steps:
            assert step["begin_s"] < step["end_s"]
            assert 0 <= step["exposed_s"] + step["hidden_s"] <= step["end_s"] - step["begin_s"]
            assert all(record["launch_s"] <= record["begin_s"] <= record["end_s"] for record in step["collectives"])
        for step, following in itertools.pairwise(steps):
            assert following["begin_s"] == step["end_s"]
        started = [record for record in steps[0]["collectives"] if record["launch_s"] < steps[0]["begin_s"]]
        assert [record["operation"] for record in started] == ["all_gather", "broadcast", "broadcast"]


def test_an_accumulated_update_is_one_step(run_ranks: Any) -> None:
    """Three backward passes, of which the last one communicates, make one update."""
    for rank in run_ranks("accumulation.py", 5):
        assert [len(step["collectives"]) for step in rank.steps()[2:]] == [1, 1, 1]


@pytest.mark.parametrize(("updates", "steps"), [("together", 4), ("alternating", 8)])
def test_updates_without_a_backward_pass_between_them_are_one_step(run_ranks: Any, updates: str, steps: int) -> None:
    """Optimisers of parts of a model are stepped one after the other; a GAN's are not."""
    for rank in run_ranks("two_optimisers.py", 4, updates):
        assert len(rank.steps()) == steps


def test_every_operation_is_executed_and_recorded(run_ranks: Any) -> None:
    """The script checks the results; the counts are those of its calls."""
    for rank in run_ranks("every_operation.py", "check"):
        assert rank.exit_code == 0, rank.errors
        (end,) = [message for message in rank.messages if message["kind"] == "end"]
        counts = Counter(row[0] for row in end["collectives"])
        assert set(counts) == {
            *("all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter"),
            *("all_to_all", "send", "recv", "barrier"),
        }
        assert counts["send"] == counts["recv"] == 3
        assert counts["reduce_scatter"] == 4
        sends = [row for row in end["collectives"] if row[0] == "send"]
        assert [(row[1], row[4]) for row in sends] == [(16, False), (16, True), (16, True)]
        assert ["scatter", 32, "float32", 2, False] in [row[:5] for row in end["collectives"]]
        assert ["reduce_scatter", 32, "float32", 2, True] in [row[:5] for row in end["collectives"]]
        calls = [dict(zip(COLLECTIVE_COLUMNS, row, strict=True)) for row in end["collectives"]]
        reductions = {(call["operation"], call["reduce_operation"]) for call in calls if call["reduce_operation"]}
        sums = {(operation, "sum") for operation in ("all_reduce", "reduce", "reduce_scatter")}
        assert reductions == {*sums, ("all_reduce", "max")}


def test_a_dry_run_executes_every_operation(dry_run: Any) -> None:
    """Scripts use more than training needs, for example to gather metrics. This one makes no step."""
    result = dry_run("every_operation.py", "ignore", world_size=4)

    assert not result["complete"]
    assert result["reason"] == "the script ended after 0 optimiser steps; the dry run needs 6"


def test_a_thousand_small_collectives_do_not_hang(run_ranks: Any) -> None:
    """Gloo's threads wait for Python's lock when they report a completed collective."""
    assert [rank.exit_code for rank in run_ranks("small_collectives.py", 1000)] == [0, 0]
