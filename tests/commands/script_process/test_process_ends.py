"""Exit codes of metered scripts, and what is reported when they end."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="metered scripts need PyTorch; make test-torch installs it")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("ending", "exit_code"), [("normal", 0), ("exit", 7), ("exception", 1), ("abort", -6)])
def test_metering_keeps_the_exit_code(run_ranks: Any, ending: str, exit_code: int) -> None:
    """None of the scripts destroys its process group, which alone can abort a process."""
    for _ in range(3):
        for rank in run_ranks("missing_destroy.py", ending):
            assert rank.exit_code == exit_code, rank.errors
            assert rank.kinds() == (["hello"] if ending == "abort" else ["hello", "end"])


def test_training_that_keeps_its_process_group_ends_normally(run_ranks: Any) -> None:
    """Most tutorials never destroy the group; with DDP its threads abort some processes at their end."""
    for rank in run_ranks("ddp_mlp.py", 6, 0, "keep"):
        assert (rank.exit_code, rank.kinds()[-1]) == (0, "end")


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("exit", "the script ended after 0 optimiser steps; the dry run needs 6"),
        (
            "exception",
            "the script failed after 0 optimiser steps; the dry run needs 6: KeyError: 'a failure of the script'",
        ),
        ("abort", "the script was stopped during the dry run"),
    ],
)
def test_an_unfinished_dry_run_has_a_reason(dry_run: Any, ending: str, reason: str) -> None:
    """The user must know why nothing can be planned."""
    result = dry_run("missing_destroy.py", ending)

    assert (result["complete"], result["reason"]) == (False, reason)


def test_a_short_script_is_an_unfinished_dry_run(dry_run: Any) -> None:
    """Its steps are recorded all the same."""
    result = dry_run("ddp_mlp.py", 3)

    assert (result["complete"], len(result["steps"])) == (False, 3)
    assert result["reason"] == "the script ended after 3 optimiser steps; the dry run needs 6"


def test_a_dry_run_of_a_script_without_process_group_says_so(dry_run: Any) -> None:
    """A script that trains without torch.distributed has nothing to measure."""
    result = dry_run("without_group.py", 8)

    assert (result["complete"], result["reason"]) == (
        False,
        "the script created no process group of torch.distributed",
    )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("nccl", "init_process_group(backend='nccl'): commands run on the CPU, and nccl needs GPUs"),
        ("nccl by name", "init_process_group(backend='cpu:gloo,cuda:nccl'): commands run on the CPU"),
        ("nccl in a further group", "new_group(backend='nccl'): commands run on the CPU"),
    ],
)
def test_nccl_is_an_error_with_the_remedy(run_ranks: Any, call: str, text: str) -> None:
    """PyTorch's own error does not say what to write, and on a host with a GPU there is none."""
    (rank,) = run_ranks("wrong_device.py", call, count=1)

    assert rank.exit_code == 1
    assert text in rank.errors
    assert "write backend='gloo'" in rank.errors


@pytest.mark.parametrize("call", ["cuda", "to cuda", "set_device", "pin_memory", "stream", "synchronize"])
def test_cuda_on_a_node_without_gpu_gets_advice(run_ranks: Any, call: str) -> None:
    """The advice follows PyTorch's own error."""
    (rank,) = run_ranks("wrong_device.py", call, count=1)

    assert rank.exit_code == 1
    assert "ensayo: commands run on the CPU; write device = " in rank.errors
