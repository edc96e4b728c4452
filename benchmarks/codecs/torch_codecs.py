"""Number formats of some compressors in PyTorch, as they are usually written in eager mode."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from services.schema.arrays import HostArray

BUCKET = 1024
KEPT_SHARE = 0.01


class TorchCodec(NamedTuple):
    """Functions that compress a vector and decompress the payload."""

    compress: Callable[[Tensor], Any]
    decompress: Callable[[Any], Tensor]


class SparsePayload(NamedTuple):
    """Values of a vector at some positions."""

    values: Tensor
    positions: Tensor
    entry_count: int


class SignPayload(NamedTuple):
    """Packed signs of a vector, and two means for each bucket."""

    packed: Tensor
    negatives: Tensor
    others: Tensor


def to_tensor(vector: HostArray) -> Tensor:
    """Return a tensor with the memory of the vector. PyTorch computes with one thread from now on."""
    torch.set_num_threads(1)
    return torch.from_numpy(vector)


def round_to_int8(vector: Tensor) -> tuple[Tensor, Tensor]:
    """Return the steps of the buckets and the levels, after stochastic rounding."""
    rows = vector.view(-1, BUCKET)
    steps = rows.abs().amax(dim=1, keepdim=True) / 127
    return steps, (rows / steps).add_(torch.rand_like(rows)).floor_().to(torch.int8)


def select_largest(vector: Tensor) -> SparsePayload:
    """Return the entries with the largest magnitudes."""
    count = round(KEPT_SHARE * vector.numel())
    _, positions = torch.topk(vector.abs(), count, sorted=False)
    return SparsePayload(vector[positions], positions.to(torch.int32), vector.numel())


def fill_positions(payload: SparsePayload) -> Tensor:
    """Return the vector with zeros at all other positions."""
    vector = torch.zeros(payload.entry_count)
    vector[payload.positions.long()] = payload.values
    return vector


def pack_signs(vector: Tensor) -> SignPayload:
    """Return the signs of a vector, eight in a byte, and the means of negative and of other entries per bucket."""
    rows = vector.view(-1, BUCKET)
    is_negative = rows < 0
    counts = is_negative.sum(dim=1, keepdim=True)
    negatives = rows.clamp(max=0).sum(dim=1, keepdim=True) / counts.clamp(min=1)
    others = rows.clamp(min=0).sum(dim=1, keepdim=True) / (BUCKET - counts).clamp(min=1)
    bits = is_negative.view(-1, 8).to(torch.uint8) << torch.arange(8, dtype=torch.uint8)
    return SignPayload(bits.sum(dim=1, dtype=torch.uint8), negatives, others)


def unpack_signs(payload: SignPayload) -> Tensor:
    """Return the vector with one value for the negative entries of a bucket, and one for the others."""
    bits = (payload.packed[:, None] >> torch.arange(8, dtype=torch.uint8)) & 1
    return torch.where(bits.view(-1, BUCKET).bool(), payload.negatives, payload.others).view(-1)


TORCH_CODECS: Mapping[str, TorchCodec] = {
    "fp16": TorchCodec(lambda vector: vector.half(), lambda half: half.float()),
    "bf16": TorchCodec(lambda vector: vector.bfloat16(), lambda half: half.float()),
    "int8": TorchCodec(round_to_int8, lambda payload: payload[1].float().mul_(payload[0]).view(-1)),
    "top_k 1 %": TorchCodec(select_largest, fill_positions),
    "one_bit": TorchCodec(pack_signs, unpack_signs),
}
