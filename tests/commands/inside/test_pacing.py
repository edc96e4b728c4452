"""Measured length of paced steps."""

import statistics
from typing import Any

import pytest

pytest.importorskip("torch", reason="paced scripts need PyTorch; make test-torch installs it")
pytestmark = [pytest.mark.torch, pytest.mark.wall_clock]

COMPUTE_S = 0.2
PACE = {"launch_shares": [0.6, 0.8], "update_share": 0.9}


def test_a_paced_step_takes_its_declared_time(run_ranks: Any) -> None:
    """On loopback all communication is hidden behind the rest of the step."""
    for rank in run_ranks("ddp_mlp.py", 12, compute_s=COMPUTE_S, pace=PACE):
        seconds = [step["end_s"] - step["begin_s"] for step in rank.steps()[2:]]
        assert statistics.median(seconds) == pytest.approx(COMPUTE_S, rel=0.01)


def test_paced_collectives_are_launched_at_their_places(run_ranks: Any) -> None:
    """The last bucket of DDP is launched while the first one may still be in flight."""
    for rank in run_ranks("ddp_mlp.py", 8, compute_s=COMPUTE_S, pace=PACE):
        for index, share in enumerate(PACE["launch_shares"]):  # type: ignore[arg-type, var-annotated]
            begins = [step["collectives"][index]["begin_s"] - step["begin_s"] for step in rank.steps()[2:]]
            assert statistics.median(begins) == pytest.approx(share * COMPUTE_S, abs=0.002)


def test_blocking_collectives_prolong_a_paced_step(run_ranks: Any) -> None:
    """FSDP2 computes with what it has gathered, so a step takes its compute time and its exposed communication."""
    pace = {"launch_shares": [index / 10 for index in range(9)], "update_share": 0.95}
    for rank in run_ranks("fully_sharded.py", 10, compute_s=COMPUTE_S, pace=pace):
        steps = rank.steps()[2:]
        extra = [step["end_s"] - step["begin_s"] - step["exposed_s"] - COMPUTE_S for step in steps]
        assert statistics.median(extra) == pytest.approx(0, abs=0.01 * COMPUTE_S)
        assert statistics.median(step["exposed_s"] for step in steps) > 0
