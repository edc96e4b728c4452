"""Functions that ranks of a script call: collectives of the default process group, and the same with gloo."""

import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor, nn
from torch.distributed import distributed_c10d
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from services.commands.process_group import EnsayoProcessGroup, make_process_group

GLOO = distributed_c10d.ProcessGroupGloo


class _AnyGroupClass(type):
    """Class of a class whose instances are gloo's and Ensayo's process groups, as PyTorch checks."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, EnsayoProcessGroup | GLOO)


def install_process_group(settings: dict[str, Any]) -> None:
    """Make PyTorch create process groups of Ensayo instead of gloo's."""

    class Replacement(metaclass=_AnyGroupClass):
        def __new__(cls, store: Any, rank: int, size: int, timeout: Any = None) -> Any:
            return make_process_group(store, rank, size, timeout, settings)

    distributed_c10d.ProcessGroupGloo = Replacement


@functools.cache
def gloo_group() -> Any:
    """Return a group of all ranks that is gloo's."""
    with _gloo_installed():
        return dist.new_group(backend="gloo")


@contextmanager
def _gloo_installed() -> Iterator[None]:
    replacement = distributed_c10d.ProcessGroupGloo
    distributed_c10d.ProcessGroupGloo = GLOO
    yield
    distributed_c10d.ProcessGroupGloo = replacement


def default_group() -> Any:
    return distributed_c10d._get_default_group()


def gloo_fallback_operations() -> frozenset[str]:
    operations: frozenset[str] = default_group().gloo_fallback_operations
    return operations


def make_tensor(dtype_name: str, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Return a tensor of small whole numbers, which every type can add exactly; another one on each rank."""
    generator = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    return torch.randint(1, 4, shape, generator=generator).to(getattr(torch, dtype_name))


def to_bytes(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def all_reduce_both(dtype_name: str, shape: tuple[int, ...], op_name: str, layout: str) -> tuple[bytes, bytes]:
    """Return the bytes of a reduced tensor, by Ensayo and by gloo."""
    results = []
    for group in (None, gloo_group()):
        tensor = make_tensor(dtype_name, shape)
        if layout == "strided" and group is None:  # gloo reads the memory between the entries
            tensor = torch.stack([tensor, torch.zeros_like(tensor)], dim=-1)[..., 0]
        elif layout == "transposed":
            tensor = tensor.t()
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op_name), group=group)
        results.append(to_bytes(tensor))
    return results[0], results[1]


def all_reduce_normal(size: int, dtype_name: str = "float32") -> tuple[bytes, float, float]:
    """Return the bytes of a sum, its largest difference from gloo's, and the largest magnitude."""
    own = torch.randn(size, generator=torch.Generator().manual_seed(dist.get_rank())).to(getattr(torch, dtype_name))
    other = own.clone()
    dist.all_reduce(own)
    dist.all_reduce(other, group=gloo_group())
    return to_bytes(own), (own.double() - other.double()).abs().max().item(), other.double().abs().max().item()


def sum_of_short_integers() -> bool:
    """Return whether a sum of 16-bit integers is right; gloo has none."""
    tensor = torch.full((1001,), 300 * (dist.get_rank() + 1), dtype=torch.int16)
    dist.all_reduce(tensor)
    return bool((tensor == 150 * dist.get_world_size() * (dist.get_world_size() + 1)).all())


def average(size: int) -> bool:
    """Return whether the average of the ranks' numbers is right."""
    tensor = torch.full((size,), float(dist.get_rank()))
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    return bool((tensor == (dist.get_world_size() - 1) / 2).all())


def all_gather_both(dtype_name: str, shape: tuple[int, ...]) -> tuple[list[bytes], list[bytes]]:
    """Return the bytes of what all-gather and its variant with one output give, by Ensayo and by gloo."""
    results: list[list[bytes]] = []
    for group in (None, gloo_group()):
        own, ranks = make_tensor(dtype_name, shape), dist.get_world_size()
        listed = [torch.empty_like(own) for _ in range(ranks)]
        dist.all_gather(listed, own, group=group)
        single = torch.empty((ranks * shape[0], *shape[1:]), dtype=own.dtype)
        dist.all_gather_into_tensor(single, own, group=group)
        results.append([*map(to_bytes, listed), to_bytes(single)])
    return results[0], results[1]


def reduce_scatter_both(dtype_name: str, rows: int) -> tuple[list[bytes], list[bytes], bool]:
    """Return the bytes that both variants of reduce-scatter give, by Ensayo and gloo, and whether inputs stay."""
    results: list[list[bytes]] = []
    inputs_stay = True
    for group in (None, gloo_group()):
        ranks = dist.get_world_size()
        own = make_tensor(dtype_name, (ranks * rows, 3))
        copy, listed, single = (
            own.clone(),
            torch.empty((rows, 3), dtype=own.dtype),
            torch.empty((rows, 3), dtype=own.dtype),
        )
        dist.reduce_scatter(listed, list(own.chunk(ranks)), group=group)
        dist.reduce_scatter_tensor(single, own, group=group)
        inputs_stay &= torch.equal(own, copy)
        results.append([to_bytes(listed), to_bytes(single)])
    return results[0], results[1], inputs_stay


def all_to_all_both(dtype_name: str) -> tuple[list[bytes], list[bytes]]:
    """Return what all-to-all gives with equal blocks, with unequal ones and with a list of tensors."""
    results: list[list[bytes]] = []
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for group in (None, gloo_group()):
        equal = make_tensor(dtype_name, (2 * ranks, 3))
        equal_out = torch.empty_like(equal)
        dist.all_to_all_single(equal_out, equal, group=group)
        rows_out, rows_in = [rank + k for k in range(ranks)], [rank + k for k in range(ranks)]
        own = make_tensor(dtype_name, (sum(rows_in), 2))
        out = torch.empty((sum(rows_out), 2), dtype=own.dtype)
        dist.all_to_all_single(out, own, rows_out, rows_in, group=group)
        results.append([to_bytes(equal_out), to_bytes(out)])
    blocks = [make_tensor(dtype_name, (k + 1,), seed=rank) for k in range(ranks)]
    received = [torch.empty(rank + 1, dtype=blocks[0].dtype) for _ in range(ranks)]
    dist.all_to_all(received, blocks)
    everyone: list[Any] = [None] * ranks
    dist.all_gather_object(everyone, [to_bytes(block) for block in blocks])
    results[0] += [to_bytes(tensor) for tensor in received]
    results[1] += [everyone[source][rank] for source in range(ranks)]
    return results[0], results[1]


def exchange_with_neighbours(size: int) -> bool:
    """Send several tensors of different tags to the next rank, before any is received; check their content."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    received = [torch.empty(size) for _ in range(4)]
    works = [dist.irecv(received[k], (rank - 1) % ranks, tag=k % 2) for k in range(4)]
    works += [dist.isend(torch.full((size,), 10.0 * rank + k), (rank + 1) % ranks, tag=k % 2) for k in range(4)]
    for work in works:
        work.wait()
    dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, torch.ones(3) * rank, (rank + 1) % ranks),
            dist.P2POp(dist.irecv, small := torch.empty(3), (rank - 1) % ranks),
        ]
    )[-1].wait()
    before = (rank - 1) % ranks
    dist.barrier()
    return bool((small == before).all()) and all(bool((received[k] == 10 * before + k).all()) for k in range(4))


def launch_many(count: int) -> bool:
    """Launch collectives of several sizes at once, wait in reverse order, and check all sums."""
    ranks = dist.get_world_size()
    tensors = [torch.full((1 + 997 * k,), float(k)) for k in range(count)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    return all(bool((tensor == ranks * k).all()) for k, tensor in enumerate(tensors))


def chain_futures() -> list[float]:
    """Launch and await a collective in the callback of another one, as communication hooks do."""
    first = torch.ones(1000)

    def reduce_again(future: Any) -> Tensor:
        (total,) = future.value()
        again = dist.all_reduce(total.clone(), async_op=True).get_future().wait()
        return again[0]

    results = []
    for factor in range(1, 4):
        future = dist.all_reduce(first * factor, async_op=True).get_future().then(reduce_again)
        results.append(future.wait()[0].item())
    return results


def collectives_of_objects() -> tuple[Any, Any]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    sent = [{"root": rank}, [1, 2]] if rank == 1 else [None, None]
    dist.broadcast_object_list(sent, src=1)
    everyone: list[Any] = [None] * ranks
    dist.all_gather_object(everyone, "x" * (rank + 1))
    return sent, everyone


def functional_both() -> tuple[list[bytes], list[bytes]]:
    """Return the bytes that functional collectives give, by Ensayo and by gloo."""
    results = []
    for group in (default_group(), gloo_group()):
        own, ranks = make_tensor("float32", (4 * dist.get_world_size(), 3)), dist.get_world_size()
        values = [
            functional.all_reduce(own, "sum", group),
            functional.all_gather_tensor(own, 0, group),
            functional.reduce_scatter_tensor(own, "sum", 0, group),
            functional.all_to_all_single(own, [4] * ranks, [4] * ranks, group),
            functional.broadcast(own, 1, group),
            *functional.all_reduce_coalesced([own, own * 2], "sum", group),
            *functional.all_gather_into_tensor_coalesced([own, own * 3], group),
            *functional.reduce_scatter_tensor_coalesced([own, own * 3], "sum", [0, 0], group),
        ]
        results.append([to_bytes(functional.wait_tensor(value)) for value in values])
    return results[0], results[1]


def sum_in_subgroups() -> tuple[float, frozenset[str]]:
    """Return a sum over the even or the odd ranks, and the operations of the group that gloo did."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group(list(range(start, ranks, 2))) for start in (0, 1)]
    own = groups[rank % 2]
    tensor = torch.full((1000,), float(rank))
    for _ in range(3):
        dist.all_reduce(tensor, group=own)
    dist.all_reduce(torch.ones(10))
    operations: frozenset[str] = own.gloo_fallback_operations
    return tensor[0].item(), operations


def sum_over_mesh() -> bytes:
    """Return a sum over the rows of a mesh with two dimensions, then over its columns."""
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("rows", "columns"))
    tensor = torch.full((7,), float(dist.get_rank()))
    for name in ("rows", "columns"):
        dist.all_reduce(tensor, group=mesh.get_group(name))
    return to_bytes(tensor)


def make_network() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(40, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 5))


def train(method: str, group_kind: str, steps: int = 5) -> list[bytes]:
    """Return the parameters after training with one method, in Ensayo's group or in gloo's."""
    group = default_group() if group_kind == "ensayo" else gloo_group()
    model = make_network()
    trained, optimiser = PREPARE[method](model, group, group_kind)
    for step in range(steps):
        torch.manual_seed(100 * step + dist.get_rank())
        optimiser.zero_grad()
        trained(torch.randn(16, 40)).square().mean().backward()
        optimiser.step()
    return [to_bytes(_whole_tensor(parameter)) for parameter in model.parameters()]


def _whole_tensor(parameter: Tensor) -> Tensor:
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def _prepare_ddp(model: nn.Module, group: Any, group_kind: str, hook: Any = None, state: Any = None) -> Any:
    # Callbacks of PowerSGD launch collectives, and ranks call the callbacks of two buckets in any order: one bucket.
    bucket_mb = 25 if isinstance(state, powerSGD_hook.PowerSGDState) else 0.05
    trained = nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=bucket_mb)
    if hook is not None:
        trained.register_comm_hook(state, hook)
    return trained, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def _prepare_fsdp(model: nn.Module, group: Any, group_kind: str) -> Any:
    from torch.distributed.device_mesh import DeviceMesh  # noqa: PLC0415 - one method needs it

    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.Adam(model.parameters(), 1e-2)


def _prepare_zero(model: nn.Module, group: Any, group_kind: str) -> Any:
    from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415 - it warns of what it imports

    trained = nn.parallel.DistributedDataParallel(model, process_group=group)
    optimiser = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, process_group=group, lr=1e-2)
    return trained, optimiser


def _prepare_fp16_hook(model: nn.Module, group: Any, group_kind: str) -> Any:
    return _prepare_ddp(model, group, group_kind, default_hooks.fp16_compress_hook, group)


def _prepare_power_sgd(model: nn.Module, group: Any, group_kind: str) -> Any:
    state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=2)
    return _prepare_ddp(model, group, group_kind, powerSGD_hook.powerSGD_hook, state)


PREPARE: dict[str, Callable[..., Any]] = {
    "ddp": _prepare_ddp,
    "fsdp2": _prepare_fsdp,
    "zero1": _prepare_zero,
    "fp16_hook": _prepare_fp16_hook,
    "power_sgd": _prepare_power_sgd,
}


def wait_for_dead_rank(dead_rank: int, in_collective: bool) -> tuple[str, float]:
    """Return the error and the time of a rank whose peer ends without a word."""
    dist.barrier()
    if dist.get_rank() == dead_rank:
        if in_collective:
            dist.all_reduce(torch.ones(10_000_000), async_op=True)
            time.sleep(0.002)
        os._exit(1)
    start_s = time.monotonic()
    try:
        for _ in range(20):
            dist.all_reduce(torch.ones(10_000_000))
    except dist.DistBackendError as error:
        return str(error), time.monotonic() - start_s
    return "no error", time.monotonic() - start_s


def wait_for_silent_rank(silent_rank: int) -> str:
    """Return the error of the ranks that wait for a rank which does not call the collective."""
    if dist.get_rank() == silent_rank:
        time.sleep(3.0)
        return ""
    try:
        dist.all_reduce(torch.ones(10))
    except dist.DistBackendError as error:
        return str(error)
    return "no error"


def to_array(data: bytes, dtype: str = "float32") -> Any:
    return np.frombuffer(data, dtype)


def broadcast_from(dtype_name: str, shape: tuple[int, ...], root: int) -> tuple[bytes, bytes]:
    """Return the bytes of a tensor after a broadcast and before."""
    tensor = make_tensor(dtype_name, shape)
    before = to_bytes(tensor)
    dist.broadcast(tensor, root)
    return to_bytes(tensor), before


def reduce_with_gloo() -> frozenset[str]:
    dist.reduce(torch.ones(3), 0)
    return gloo_fallback_operations()


def sum_different_sizes() -> str:
    """Return the error of a rank whose peer sums a tensor of another size."""
    try:
        dist.all_reduce(torch.ones(100 + dist.get_rank()))
    except dist.DistBackendError as error:
        return str(error)
    return "no error"


def time_of_sums(size: int, count: int) -> float:
    """Return the median seconds of several sums."""
    tensor, times_s = torch.ones(size), []
    for _ in range(count):
        dist.barrier()
        start_s = time.monotonic()
        dist.all_reduce(tensor)
        times_s.append(time.monotonic() - start_s)
    return float(np.median(times_s))
