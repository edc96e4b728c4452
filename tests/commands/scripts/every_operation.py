"""Each operation of torch.distributed once, without training. Argument: `check` or `ignore` the results."""

import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
peer = (rank + 1) % world
is_checked = sys.argv[1] == "check"
total = world * (world + 1) / 2


def expect(tensor: torch.Tensor, *values: float) -> None:
    """Fail if the tensor does not have these values."""
    if is_checked:
        expected = torch.tensor(values).expand_as(tensor) if len(values) == 1 else torch.tensor(values)
        assert torch.equal(tensor.float(), expected.float()), (tensor, values)


def filled(count: int = 4) -> torch.Tensor:
    """Return a tensor with the rank, from 1."""
    return torch.full((count,), float(rank + 1))


tensor = filled()
dist.all_reduce(tensor)
expect(tensor, total)
tensor = filled()
handle = dist.all_reduce(tensor, async_op=True)
handle.wait()
expect(tensor, total)
tensor = filled()
future = dist.all_reduce(tensor, async_op=True).get_future()
expect(future.wait()[0], total)
tensor = filled()
dist.reduce(tensor, dst=0)
if rank == 0:
    expect(tensor, total)
tensor = filled()
dist.broadcast(tensor, src=0)
expect(tensor, 1)
parts = [torch.zeros(4) for _ in range(world)]
dist.all_gather(parts, filled())
expect(torch.stack([part[0] for part in parts]), *range(1, world + 1))
whole = torch.zeros(4 * world)
dist.all_gather_into_tensor(whole, filled())
expect(whole[::4], *range(1, world + 1))
dist.gather(filled(), [torch.zeros(4) for _ in range(world)] if rank == 0 else None, dst=0)
tensor = torch.zeros(4)
dist.scatter(tensor, [torch.full((4,), float(other)) for other in range(world)] if rank == 0 else None, src=0)
expect(tensor, rank)
tensor = torch.zeros(4)
dist.reduce_scatter(tensor, [filled() for _ in range(world)])
expect(tensor, total)
tensor = torch.zeros(4)
dist.reduce_scatter_tensor(tensor, filled(4 * world))
expect(tensor, total)
tensor = torch.zeros(4)
handle = dist.reduce_scatter_tensor(tensor, filled(4 * world), async_op=True)
handle.wait()
expect(tensor, total)
tensor = torch.zeros(2 * world)
dist.all_to_all_single(tensor, filled(2 * world))
expect(tensor[::2], *range(1, world + 1))
parts = [torch.zeros(2) for _ in range(world)]
try:
    dist.all_to_all(parts, [filled(2) for _ in range(world)])
except RuntimeError as error:  # gloo has no all_to_all of lists in some versions
    print("all_to_all:", error)
if world > 1:
    tensor = torch.zeros(4)
    if rank % 2 == 0:
        dist.send(filled(), peer)
        dist.recv(tensor, (rank - 1) % world)
    else:
        dist.recv(tensor, (rank - 1) % world)
        dist.send(filled(), peer)
    expect(tensor, (rank - 1) % world + 1)
    requests = [dist.isend(filled(), peer), dist.irecv(tensor, (rank - 1) % world)]
    for request in requests:
        request.wait()
    for request in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, filled(), peer), dist.P2POp(dist.irecv, tensor, (rank - 1) % world)]
    ):
        request.wait()
    expect(tensor, (rank - 1) % world + 1)
dist.barrier()
if is_checked:
    dist.monitored_barrier()
    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": other} for other in range(world)]
names = [f"from rank {rank}"]
dist.broadcast_object_list(names, src=0)
assert names == ["from rank 0"]
expect(functional.all_reduce(filled(), "sum", dist.group.WORLD), total)
expect(functional.all_gather_tensor(filled(), 0, dist.group.WORLD)[::4], *range(1, world + 1))
expect(functional.reduce_scatter_tensor(filled(4 * world), "sum", 0, dist.group.WORLD), total)
expect(functional.all_to_all_single(filled(2 * world), None, None, dist.group.WORLD)[::2], *range(1, world + 1))
group = dist.new_group(list(range(world)))
tensor = filled()
dist.all_reduce(tensor, group=group, op=dist.ReduceOp.MAX)
expect(tensor, world)
alone = dist.new_group([0])
if rank == 0:
    tensor = filled()
    dist.all_reduce(tensor, group=alone)
    expect(tensor, 1)
with dist._coalescing_manager():
    dist.all_reduce(filled())
    dist.all_reduce(filled())
assert dist.get_backend() == "gloo"
assert dist.get_backend(group) == "gloo"
print("all operations passed", flush=True)
dist.destroy_process_group()
