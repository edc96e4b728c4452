"""Tests of the process group that runs collectives of torch.distributed with Ensayo's schedules, against gloo."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from rank_processes import RankProcesses

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

import process_group_checks as checks  # noqa: E402 - it needs PyTorch

RANK_COUNTS = (2, 3, 4)
TYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"]


@pytest.fixture(scope="module", params=RANK_COUNTS)
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankProcesses]:
    """Return running ranks with the default settings, for all tests of this module."""
    with RankProcesses(request.param, tmp_path_factory.mktemp("secrets")) as processes:
        yield processes


def call_all(ranks: RankProcesses, function: Any, *args: Any) -> list[Any]:
    """Return the results of a call on all ranks, none of which has failed."""
    results = ranks.call(function, *args)
    failures = [result for result in results if isinstance(result, Exception)]
    assert not failures, failures[0]
    return results


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (1001,), (0,), (3, 0), (700, 601)], ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_sum_of_whole_numbers_equals_that_of_gloo(ranks: RankProcesses, dtype: str, shape: tuple[int, ...]) -> None:
    """Whole numbers are exact in every type, so that an entry that is added twice or left out is visible."""
    for own, gloo in call_all(ranks, checks.all_reduce_both, dtype, shape, "SUM", "contiguous"):
        assert own == gloo
    assert not call_all(ranks, checks.gloo_fallback_operations)[0]


@pytest.mark.parametrize("op", ["MIN", "MAX", "PRODUCT"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "uint8"])
def test_other_reductions_equal_those_of_gloo(ranks: RankProcesses, dtype: str, op: str) -> None:
    """Scripts take the maximum of a norm, or the minimum of flags."""
    for own, gloo in call_all(ranks, checks.all_reduce_both, dtype, (50, 7), op, "contiguous"):
        assert own == gloo


@pytest.mark.parametrize("layout", ["strided", "transposed"])
def test_tensors_that_are_not_contiguous_are_summed_in_place(ranks: RankProcesses, layout: str) -> None:
    """The memory of such a tensor is no vector: it is copied, and the sum must come back."""
    for own, gloo in call_all(ranks, checks.all_reduce_both, "float32", (40, 30), "SUM", layout):
        assert own == gloo


@pytest.mark.parametrize("size", [1, 5, 4096, 300_001])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_ranks_have_the_same_bits_and_gloos_sum_within_rounding(
    ranks: RankProcesses, size: int, dtype: str
) -> None:
    """Replicas that differ in one bit drift apart."""
    results = call_all(ranks, checks.all_reduce_normal, size, dtype)

    assert len({data for data, _, _ in results}) == 1
    assert all(error <= 8 * np.finfo(dtype).eps * largest for _, error, largest in results)


def test_short_integers_are_summed(ranks: RankProcesses) -> None:
    """Gloo lacks this type."""
    assert all(call_all(ranks, checks.sum_of_short_integers))


def test_average_divides_by_the_number_of_ranks(ranks: RankProcesses) -> None:
    """Gloo has no average, and scripts for NCCL use it."""
    assert all(call_all(ranks, checks.average, 100))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (1001,), (300_000, 5)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "complex64", "float8_e4m3fn"])
@pytest.mark.parametrize("root", [0, 1])
def test_broadcast_copies_every_type_from_any_rank(
    ranks: RankProcesses, dtype: str, shape: tuple[int, ...], root: int
) -> None:
    """A copy needs no arithmetic, so every type of PyTorch works, gloo's or not."""
    results = call_all(ranks, checks.broadcast_from, dtype, shape, root)

    assert len({data for data, _ in results}) == 1
    assert results[root][0] == results[root][1]


@pytest.mark.parametrize("shape", [(1,), (3, 5), (1001,), (200_001,)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "uint8"])
def test_all_gather_equals_that_of_gloo(ranks: RankProcesses, dtype: str, shape: tuple[int, ...]) -> None:
    """FSDP collects parameters with it, and object collectives collect bytes."""
    for own, gloo in call_all(ranks, checks.all_gather_both, dtype, shape):
        assert own == gloo


@pytest.mark.parametrize("rows", [1, 7, 40_001])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_reduce_scatter_equals_that_of_gloo_and_keeps_its_input(ranks: RankProcesses, dtype: str, rows: int) -> None:
    """FSDP sums gradients with it; a script may use its input afterwards."""
    for own, gloo, inputs_stay in call_all(ranks, checks.reduce_scatter_both, dtype, rows):
        assert own == gloo
        assert inputs_stay


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_all_to_all_equals_that_of_gloo(ranks: RankProcesses, dtype: str) -> None:
    """Experts exchange unequal numbers of rows, some of them none."""
    for own, gloo in call_all(ranks, checks.all_to_all_both, dtype):
        assert own == gloo


@pytest.mark.parametrize("size", [1, 2_000_000])
def test_messages_between_two_ranks_arrive_by_tag_and_order(ranks: RankProcesses, size: int) -> None:
    """All ranks receive before they send: executed one after the other, they would wait for each other for ever."""
    assert all(call_all(ranks, checks.exchange_with_neighbours, size))


def test_many_collectives_run_in_the_order_of_their_launch(ranks: RankProcesses) -> None:
    """DDP launches a bucket while the one before is under way."""
    assert all(call_all(ranks, checks.launch_many, 30))


def test_callback_of_a_future_can_launch_and_await_another_collective(ranks: RankProcesses) -> None:
    """Hooks of DDP do it: a callback on the thread that communicates would wait for itself."""
    results = call_all(ranks, checks.chain_futures)

    squared = len(ranks.processes) ** 2
    assert results == [[squared, 2 * squared, 3 * squared]] * len(ranks.processes)


def test_collectives_of_objects_work(ranks: RankProcesses) -> None:
    """Scripts broadcast their settings, and gather metrics of different lengths."""
    expected = [{"root": 1}, [1, 2]], ["x" * (rank + 1) for rank in range(len(ranks.processes))]

    assert call_all(ranks, checks.collectives_of_objects) == [expected] * len(ranks.processes)


def test_functional_collectives_equal_those_of_gloo(ranks: RankProcesses) -> None:
    """DTensor and compiled models call the group from C++."""
    for own, gloo in call_all(ranks, checks.functional_both):
        assert own == gloo


@pytest.mark.parametrize("method", ["ddp", "fsdp2", "zero1", "fp16_hook", "power_sgd"])
def test_parameters_after_training_equal_those_under_gloo(ranks: RankProcesses, method: str) -> None:
    """Another order of additions is all that may differ, and only with more than two ranks."""
    own, gloo = (call_all(ranks, checks.train, method, kind) for kind in ("ensayo", "gloo"))

    assert all(each == own[0] for each in own), "ranks have different bits"
    for actual, expected in zip(own[0], gloo[0], strict=True):
        np.testing.assert_allclose(checks.to_array(actual), checks.to_array(expected), rtol=1e-4, atol=2e-5)
    if method == "ddp" and len(ranks.processes) == 2:
        assert own[0] == gloo[0]


def test_groups_of_some_ranks_use_the_transport_too(ranks: RankProcesses) -> None:
    """Groups progress independently of each other, over the same streams."""
    count = len(ranks.processes)
    for rank, (total, fallbacks) in enumerate(call_all(ranks, checks.sum_in_subgroups)):
        members = range(rank % 2, count, 2)
        assert total == sum(members) * len(members) ** 2
        assert not fallbacks


def test_groups_of_a_mesh_with_two_dimensions_sum_over_all_ranks(ranks: RankProcesses) -> None:
    """Hybrid sharding has a group for each row and each column."""
    count = len(ranks.processes)
    if count % 2:
        pytest.skip("an odd number of ranks has no such mesh")
    for result in call_all(ranks, checks.sum_over_mesh):
        assert (checks.to_array(result) == sum(range(count))).all()


def test_only_operations_that_gloo_does_are_recorded_as_fallbacks(ranks: RankProcesses) -> None:
    """A report must not count gloo's bytes as those of the declared collective."""
    before = call_all(ranks, checks.gloo_fallback_operations)
    after = call_all(ranks, checks.reduce_with_gloo)

    assert all("reduce" not in operations for operations in before)
    assert all("reduce" in operations for operations in after)
