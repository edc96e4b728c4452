"""Measured length of paced steps."""

import itertools
import statistics
from typing import Any

import pytest
from command_plans import schedule_of

pytest.importorskip("torch", reason="paced scripts need PyTorch; make test-torch installs it")
pytestmark = [pytest.mark.torch, pytest.mark.wall_clock]

COMPUTE_S = 0.2
SHARES = {"launch_shares": [0.6, 0.8], "wait_shares": [0.8, 0.8], "update_share": 0.9}


@pytest.fixture
def schedule(dry_run: Any) -> dict[str, Any]:
    """Return a schedule for the two buckets of `ddp_mlp.py`."""
    return schedule_of(dry_run("ddp_mlp.py", 8), **SHARES)


def test_a_paced_step_takes_its_declared_time(run_ranks: Any, schedule: dict[str, Any]) -> None:
    """It takes its compute, and the time in which it waits for the last bucket, which is short on loopback."""
    for rank in run_ranks("ddp_mlp.py", 12, compute_s=COMPUTE_S, schedule=schedule):
        seconds = [step["end_s"] - step["begin_s"] - step["exposed_s"] for step in rank.steps()[2:]]
        assert statistics.median(seconds) == pytest.approx(COMPUTE_S, rel=0.01)
        assert statistics.median(step["exposed_s"] for step in rank.steps()[2:]) < 0.05 * COMPUTE_S


def test_paced_collectives_are_launched_at_their_scheduled_times(run_ranks: Any, schedule: dict[str, Any]) -> None:
    """The last bucket of DDP is launched while the first one may still be in flight."""
    for rank in run_ranks("ddp_mlp.py", 8, compute_s=COMPUTE_S, schedule=schedule):
        for index, share in enumerate(schedule["launch_shares"]):
            begins = [step["collectives"][index]["begin_s"] - step["begin_s"] for step in rank.steps()[2:]]
            assert statistics.median(begins) == pytest.approx(share * COMPUTE_S, abs=0.002)


def test_blocking_collectives_prolong_a_paced_step(run_ranks: Any, dry_run: Any) -> None:
    """FSDP2 computes with what it has gathered, so a step takes its compute time and its exposed communication."""
    profiled = dry_run("fully_sharded.py", 8)
    calls = len(profiled["step_profile"]["collectives"])
    shares = [index / (calls + 1) for index in range(calls)]
    schedule = schedule_of(profiled, launch_shares=shares, wait_shares=shares, update_share=0.95)
    for rank in run_ranks("fully_sharded.py", 10, compute_s=COMPUTE_S, schedule=schedule):
        steps = rank.steps()[2:]
        extra = [step["end_s"] - step["begin_s"] - step["exposed_s"] - COMPUTE_S for step in steps]
        assert statistics.median(extra) == pytest.approx(0, abs=0.01 * COMPUTE_S)
        assert statistics.median(step["exposed_s"] for step in steps) > 0


def launched_after_s(step: dict[str, Any], index: int) -> float:
    """Return the seconds of compute of a step before its usual collective with this index."""
    usual = [call for call in step["collectives"] if not call["is_extra"]]
    extra = [call for call in step["collectives"] if call["is_extra"] and call["begin_s"] >= step["begin_s"]]
    blocked_s = sum(call["end_s"] - call["begin_s"] for call in extra)
    return float(usual[index]["begin_s"] - step["begin_s"] - blocked_s)


def test_extra_collectives_and_evaluations_do_not_shift_the_steps(run_ranks: Any, dry_run: Any) -> None:
    """Evaluations every four steps take 0.1 s; the loss is averaged every five steps."""
    schedule = schedule_of(dry_run("evaluated_mlp.py", 8, 4, 0, 5), **SHARES)
    for rank in run_ranks("evaluated_mlp.py", 20, 4, 0.1, 5, compute_s=COMPUTE_S, schedule=schedule):
        steps = rank.steps()[2:]
        followed = {step["number"] for step in steps if any(call["dtype"] == "int64" for call in step["collectives"])}
        assert followed == {4, 8, 12, 16}
        extra = {(call["bytes"], call["dtype"]) for step in steps for call in step["collectives"] if call["is_extra"]}
        assert extra == {(4, "float32"), (8, "int64")}
        seconds = [step["end_s"] - step["begin_s"] - step["exposed_s"] for step in steps]
        assert statistics.median(seconds) == pytest.approx(COMPUTE_S, rel=0.02)
        for index, share in enumerate(schedule["launch_shares"]):
            begins_s = [launched_after_s(step, index) for step in steps if step["number"] in {*followed, 5, 10, 15}]
            assert statistics.median(begins_s) == pytest.approx(share * COMPUTE_S, abs=0.005)
        gaps = {later["number"]: later["begin_s"] - step["end_s"] for step, later in itertools.pairwise(steps)}
        assert {number for number, gap_s in gaps.items() if gap_s > 0.1} == followed
        assert sum(gap_s for number, gap_s in gaps.items() if number not in followed) == 0
