"""Gradient accumulation: the same gradients, exchanges and times as with undivided shares."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from services.learning.models.base import Model

Simulate = Callable[..., Any]

RING = {"kind": "all_reduce"}
LINKS = {"worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "1mbit"}}


@pytest.mark.parametrize("parts", [2, 3])
def test_shares_that_are_divided_unevenly_change_neither_parameters_nor_bytes_nor_times(
    simulate: Simulate, parts: int
) -> None:
    """The share of a worker has 13 or 14 of 40 samples; tests/every/test_every_strategy.py tests every strategy."""
    work = {"batch": 40, "precision": "fp64", "cluster": LINKS}

    whole, divided = (simulate(RING, 3, micro_batches=count, **work) for count in (1, parts))

    np.testing.assert_allclose(divided.params, whole.params, rtol=1e-9, atol=1e-12)
    assert divided.params.tobytes() != whole.params.tobytes()  # the order of the sums differs
    for rank in range(3):
        for key in ("step_s", "samples", "bytes_sent"):
            assert [row[key] for row in divided.steps(rank)] == [row[key] for row in whole.steps(rank)]


def test_worker_computes_its_share_in_micro_batches(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the arrays of the whole share would be in memory at the same time, or parts have the same dropout."""
    calls, loss_and_grad = list[tuple[int, int]](), Model.loss_and_grad

    def record_call(model: Model, task: Any, params: Any, x: Any, y: Any, randomness: Any) -> Any:
        calls.append((len(x), randomness.create_seed()))
        return loss_and_grad(model, task, params, x, y, randomness)

    monkeypatch.setattr(Model, "loss_and_grad", record_call)
    simulate({"kind": "none"}, 1, batch=12, micro_batches=5, epochs=1)

    of_epoch = calls[-7 * 5 :]  # seven steps, after the gradients before training
    assert [size for size, _ in of_epoch[:5]] == [2, 2, 3, 2, 3]
    assert [size for size, _ in of_epoch[-5:]] == [1, 2, 1, 2, 2]  # the last batch has 8 samples
    assert len({seed for _, seed in of_epoch}) == len(of_epoch)
