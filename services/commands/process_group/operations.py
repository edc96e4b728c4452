"""Collectives of one group of ranks on tensors."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from services.commands.process_group.communicator import GroupCommunicator, split_chunks
from services.commands.process_group.operation_queue import NextStep
from services.commands.process_group.tensors import (
    Reduction,
    WritableTensors,
    divide_average,
    read_bytes,
    to_byte_vector,
    to_vector,
)
from services.schema.arrays import HostArray


class TensorOperations:
    """Collectives of one rank in a group.

    Tensors are in host memory, dense, and of any layout. Outputs are changed in place, inputs are not.
    """

    def __init__(self, communicator: GroupCommunicator, rank: int, rank_count: int) -> None:
        self._communicator = communicator
        self._rank = rank
        self._rank_count = rank_count

    async def all_reduce(self, next_step: NextStep, tensors: Sequence[Tensor], reductions: Sequence[Reduction]) -> None:
        """Reduce each tensor over all ranks, in place; `reductions` has one reduction per tensor."""
        memory = WritableTensors(tensors)
        for tensor, reduction in zip(memory.contiguous, reductions, strict=True):
            await self._communicator.all_reduce(
                next_step(), to_vector(tensor), reduction.combine_entries, may_compress=reduction.is_sum
            )
            divide_average(tensor, reduction, self._rank_count)
        memory.write_back()

    async def broadcast(self, next_step: NextStep, tensor: Tensor, root_rank: int) -> None:
        """Replace the tensor by that of `root_rank`."""
        memory = WritableTensors([tensor])
        await self._communicator.broadcast(next_step(), to_byte_vector(memory.contiguous[0]), root_rank)
        if self._rank != root_rank:
            memory.write_back()

    async def barrier(self, next_step: NextStep) -> None:
        """Return when all ranks have called this method."""
        await self._communicator.barrier(next_step())

    async def all_gather_into(self, next_step: NextStep, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        """Concatenate each input of all ranks into the output at the same place in the list."""
        memory = WritableTensors(outputs)
        for output, own in zip(memory.contiguous, inputs, strict=True):
            gathered, own_bytes = to_byte_vector(output), read_bytes(own)
            _check_size(gathered, own_bytes.size * self._rank_count, "the output of an all-gather")
            chunk_sizes = (own_bytes.size,) * self._rank_count
            split_chunks(gathered, chunk_sizes)[self._rank][:] = own_bytes
            await self._communicator.all_gather(next_step(), gathered, chunk_sizes)
        memory.write_back()

    async def all_gather(
        self, next_step: NextStep, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor]
    ) -> None:
        """Copy each input of rank k into tensor k of the outputs at the same place in the list."""
        for each_output, own in zip(outputs, inputs, strict=True):
            memory, own_bytes = WritableTensors(each_output), read_bytes(own)
            chunks = [to_byte_vector(tensor) for tensor in memory.contiguous]
            _check_size(chunks[self._rank], own_bytes.size, "this rank's output of an all-gather")
            chunk_sizes = [chunk.size for chunk in chunks]
            gathered = np.empty(sum(chunk_sizes), np.uint8)
            received = split_chunks(gathered, chunk_sizes)
            received[self._rank][:] = own_bytes
            await self._communicator.all_gather(next_step(), gathered, chunk_sizes)
            _copy_chunks(received, chunks)
            memory.write_back()

    async def reduce_scatter_from(
        self,
        next_step: NextStep,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        reductions: Sequence[Reduction],
    ) -> None:
        """Reduce each input over all ranks, and write this rank's share of the result into the output."""
        memory = WritableTensors(outputs)
        for output, own, reduction in zip(memory.contiguous, inputs, reductions, strict=True):
            result, summands = to_vector(output), to_vector(own.detach().contiguous()).copy()
            _check_size(summands, result.size * self._rank_count, "the input of a reduce-scatter")
            chunk_sizes = (result.size,) * self._rank_count
            await self._reduce_and_copy(next_step(), summands, chunk_sizes, result, reduction)
            divide_average(output, reduction, self._rank_count)
        memory.write_back()

    async def reduce_scatter(
        self,
        next_step: NextStep,
        outputs: Sequence[Tensor],
        inputs: Sequence[Sequence[Tensor]],
        reductions: Sequence[Reduction],
    ) -> None:
        """Reduce tensor k of each input over all ranks, and write the result into the output of rank k."""
        memory = WritableTensors(outputs)
        for output, each_input, reduction in zip(memory.contiguous, inputs, reductions, strict=True):
            summands = [to_vector(tensor.detach().contiguous()) for tensor in each_input]
            chunk_sizes, result = [each.size for each in summands], to_vector(output)
            _check_size(result, chunk_sizes[self._rank], "the output of a reduce-scatter")
            await self._reduce_and_copy(next_step(), np.concatenate(summands), chunk_sizes, result, reduction)
            divide_average(output, reduction, self._rank_count)
        memory.write_back()

    async def _reduce_and_copy(
        self, step: int, summands: HostArray, chunk_sizes: Sequence[int], result: HostArray, reduction: Reduction
    ) -> None:
        chunk = await self._communicator.reduce_scatter(
            step, summands, chunk_sizes, reduction.combine_entries, may_compress=reduction.is_sum
        )
        result[:] = chunk

    async def all_to_all(self, next_step: NextStep, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        """Send input k to rank k, and receive output k from rank k."""
        memory = WritableTensors(outputs)
        incoming = [to_byte_vector(output) for output in memory.contiguous]
        outgoing = [read_bytes(tensor) for tensor in inputs]
        await self._exchange(next_step(), outgoing, incoming)
        memory.write_back()

    async def all_to_all_single(
        self,
        next_step: NextStep,
        output: Tensor,
        own: Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
    ) -> None:
        """Send rows of one tensor to each rank, and receive rows from each; without splits, equally many."""
        memory = WritableTensors([output])
        (received,) = memory.contiguous
        outgoing = _split_rows(own.detach().contiguous(), input_splits, self._rank_count)
        await self._exchange(next_step(), outgoing, _split_rows(received, output_splits, self._rank_count))
        memory.write_back()

    async def _exchange(self, step: int, outgoing: Sequence[HostArray], incoming: Sequence[HostArray]) -> None:
        _check_size(incoming[self._rank], outgoing[self._rank].size, "the block from this rank to itself")
        await self._communicator.all_to_all(step, outgoing, incoming)

    async def send(self, next_step: NextStep, tensor: Tensor, target_rank: int) -> None:
        """Send a tensor to one rank."""
        await self._communicator.send(next_step(), read_bytes(tensor), target_rank)

    async def receive(self, next_step: NextStep, tensor: Tensor, source_rank: int) -> None:
        """Receive a tensor of the same size from one rank."""
        memory = WritableTensors([tensor])
        await self._communicator.receive(next_step(), to_byte_vector(memory.contiguous[0]), source_rank)
        memory.write_back()


def _split_rows(contiguous_tensor: Tensor, row_counts: Sequence[int], rank_count: int) -> list[HostArray]:
    """Return the bytes of consecutive rows of a tensor as views; equally many rows without `row_counts`."""
    rows = contiguous_tensor.shape[0]
    if not row_counts and rows % rank_count:
        raise ValueError(f"a tensor of {rows} rows cannot be split equally between {rank_count} ranks")
    counts = row_counts or [rows // rank_count] * rank_count
    if sum(counts) != rows:
        raise ValueError(f"the split sizes {list(counts)} do not add up to the {rows} rows of the tensor")
    return [
        to_byte_vector(torch.narrow(contiguous_tensor, 0, start, stop - start))
        for start, stop in pairwise(accumulate(counts, initial=0))
    ]


def _copy_chunks(sources: Sequence[HostArray], targets: Sequence[HostArray]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target[:] = source


def _check_size(vector: HostArray, expected_size: int, name: str) -> None:
    if vector.size != expected_size:
        raise ValueError(f"{name} has {vector.size} entries or bytes instead of {expected_size}")
