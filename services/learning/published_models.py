"""Sizes of published models: parameters whose gradients a data-parallel training step exchanges, and operations.

Parameters are counted from the architectures, and operations as `Model.forward_flops` counts them: matrix products and
convolutions, with 2 operations per multiplication and addition. Only parameters that are trained count.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

NumberFormat: TypeAlias = Literal["fp32", "bf16", "fp16"]
PublishedModelName: TypeAlias = Literal[
    "resnet-50", "vgg-16", "retinanet", "bert-large", "stable-diffusion", "llama2-70b-lora"
]

BYTES_BY_NUMBER_FORMAT: Mapping[NumberFormat, int] = {"fp32": 4, "bf16": 2, "fp16": 2}


class PublishedModel(NamedTuple):
    """Size of one published model, with sources."""

    parameter_count: int  # parameters that are trained
    number_format: NumberFormat  # of the exchanged gradients, unless a scenario names another one
    source: str  # of the two fields above
    flops_per_sample: float | None = None  # of forward and backward pass; None: no source is known
    flops_source: str = ""


PUBLISHED_MODELS: Mapping[PublishedModelName, PublishedModel] = {
    "resnet-50": PublishedModel(
        25_557_032,
        "fp32",
        "torchvision resnet50, 1,000 classes",
        6 * 4_089_184_256,
        "image of 224 x 224: 4.089 G multiplications and additions per forward pass, times 2, times 3 for training",
    ),
    "vgg-16": PublishedModel(
        138_357_544,
        "fp32",
        "torchvision vgg16, 1,000 classes",
        6 * 15_470_264_320,
        "image of 224 x 224: 15.470 G multiplications and additions per forward pass, times 2, times 3 for training",
    ),
    "retinanet": PublishedModel(
        36_849_004,
        "fp32",
        "MLPerf Training RetinaNet: ResNeXt-50 32x4d backbone, 264 classes; conv1, conv2_x and batch normalisation are "
        "frozen",
    ),
    "bert-large": PublishedModel(
        336_226_108,
        "fp32",
        "Devlin et al. 2019 (L=24, H=1024, A=16), vocabulary of 30,522, with the heads of pre-training",
        3 * 339_919_622_144,
        "sequence of 512 tokens, 76 of them predicted, as in MLPerf Training; forward pass times 3",
    ),
    "stable-diffusion": PublishedModel(
        865_910_724,
        "fp32",
        "U-Net of Stable Diffusion 2; text encoder and autoencoder are frozen, as in MLPerf Training",
    ),
    "llama2-70b-lora": PublishedModel(
        44_564_480,
        "bf16",
        "MLPerf Training Llama 2 70B LoRA: rank 16 on the query-key-value and the output projections of 80 layers",
        2_517_667_000_000_000,
        "sequence of 8,192 tokens, causal attention, no recomputation; the backward pass of frozen weights takes as "
        "many operations as their forward pass",
    ),
}
