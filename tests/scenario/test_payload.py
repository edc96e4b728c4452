"""Declared payloads: the texts that declare them, and the sizes of published models."""

import pytest

from services.learning.published_models import PUBLISHED_MODELS
from services.scenario.payload import DeclaredPayload, ModelSize


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("30.8M x fp32", ModelSize(None, 30_800_000, "fp32")),
        ("30.8M × fp32", ModelSize(None, 30_800_000, "fp32")),
        ("30.8M*bf16", ModelSize(None, 30_800_000, "bf16")),
        ("30846720 x fp16", ModelSize(None, 30_846_720, "fp16")),
        ("1.5B x bf16", ModelSize(None, 1_500_000_000, "bf16")),
        ("250K x fp32", ModelSize(None, 250_000, "fp32")),
        ("bert-large", ModelSize("bert-large", 336_226_108, "fp32")),
        ("bert-large x bf16", ModelSize("bert-large", 336_226_108, "bf16")),
        ("llama2-70b-lora", ModelSize("llama2-70b-lora", 44_564_480, "bf16")),
    ],
)
def test_a_payload_is_a_model_or_a_number_of_parameters_with_a_format(text: str, size: ModelSize) -> None:
    """Both forms appear in papers; a number without a format says nothing about bytes."""
    assert DeclaredPayload(text).model_size == size


def test_the_size_of_a_payload_is_the_product_of_parameters_and_format() -> None:
    """fp32 takes four bytes per parameter, bf16 and fp16 take two."""
    assert DeclaredPayload("1M x fp32").size_bytes == 4_000_000
    assert DeclaredPayload("1M x bf16").size_bytes == DeclaredPayload("1M x fp16").size_bytes == 2_000_000
    assert DeclaredPayload("bert-large").size_bytes == 4 * 336_226_108


@pytest.mark.parametrize(
    "text", ["bert", "30.8M", "30.8M x fp8", "30.8 MB", "x fp32", "-5M x fp32", "bert-large bf16", ""]
)
def test_other_texts_are_errors_that_list_the_allowed_forms(text: str) -> None:
    """The message alone must be enough to correct the value."""
    with pytest.raises(ValueError, match=r"is not a known model \(resnet-50, .*write for example bert-large"):
        DeclaredPayload(text)


@pytest.mark.parametrize(
    ("text", "message"), [("1.5 x fp32", "whole number"), ("0.1K x bf16", ""), ("1e15 x fp32", "1 to")]
)
def test_a_number_of_parameters_is_whole_and_limited(text: str, message: str) -> None:
    """Half a parameter does not exist; sizes beyond any model are typing errors."""
    if not message:
        assert DeclaredPayload(text).model_size.parameter_count == 100
        return
    with pytest.raises(ValueError, match=message):
        DeclaredPayload(text)


def bottleneck_parameters(groups: int, base_width: int, *, with_normalisation: bool) -> list[int]:
    """Parameters of the four stages of bottleneck blocks of ResNet-50 and its relatives."""
    stages, inputs = [], 64
    for planes, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        width, outputs, count = planes * base_width * groups // 64, 4 * planes, 0
        for block in range(blocks):
            shortcut = inputs * outputs if block == 0 else 0
            count += inputs * width + 9 * width * width // groups + width * outputs + shortcut
            count += 2 * (2 * width + outputs + (outputs if block == 0 else 0)) * with_normalisation
            inputs = outputs
        stages.append(count)
    return stages


def test_parameters_of_published_models_follow_from_their_architectures() -> None:
    """A wrong digit in the table would scale every message; the architectures are published."""
    resnet = 64 * 3 * 49 + 2 * 64 + sum(bottleneck_parameters(1, 64, with_normalisation=True)) + 2048 * 1000 + 1000
    convolutions = [(3, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 256), (256, 512)]
    convolutions += [(512, 512)] * 5
    dense = [(512 * 49, 4096), (4096, 4096), (4096, 1000)]
    vgg = sum(9 * i * o + o for i, o in convolutions) + sum(i * o + o for i, o in dense)
    trained_backbone = sum(bottleneck_parameters(32, 4, with_normalisation=False)[1:])
    pyramid = sum(i * 256 + 256 for i in (512, 1024, 2048)) + 5 * (9 * 256 * 256 + 256)
    heads = 8 * (9 * 256 * 256 + 256) + sum(9 * 256 * outputs + outputs for outputs in (9 * 264, 9 * 4))
    hidden, inner, vocabulary = 1024, 4096, 30_522
    norm, square = 2 * hidden, hidden * hidden + hidden
    layer = 4 * square + 2 * norm + hidden * inner + inner + inner * hidden + hidden
    bert = (vocabulary + 512 + 2) * hidden + norm + 24 * layer + square  # embeddings, layers, pooler
    bert += square + norm + vocabulary + 2 * hidden + 2  # heads of pre-training; the word embeddings are shared
    lora = 80 * 16 * ((8192 + 8192 + 2 * 1024) + (8192 + 8192))

    # The U-Net of Stable Diffusion has no short formula: its number is that of the published checkpoint.
    counts = {name: model.parameter_count for name, model in PUBLISHED_MODELS.items() if name != "stable-diffusion"}
    assert counts == {
        "resnet-50": resnet,
        "vgg-16": vgg,
        "retinanet": trained_backbone + pyramid + heads,
        "bert-large": bert,
        "llama2-70b-lora": lora,
    }


def test_operations_of_published_models_follow_from_their_architectures() -> None:
    """Two operations per multiplication and addition; the backward pass takes twice as many as the forward pass."""
    vgg_layers = [(3, 64, 224), (64, 64, 224), (64, 128, 112), (128, 128, 112), (128, 256, 56), (256, 256, 56)]
    vgg_layers += [(256, 256, 56), (256, 512, 28), (512, 512, 28), (512, 512, 28), *[(512, 512, 14)] * 3]
    vgg = sum(9 * i * o * size * size for i, o, size in vgg_layers) + 512 * 49 * 4096 + 4096 * 4096 + 4096 * 1000
    hidden, tokens, predicted = 1024, 512, 76
    bert_layer = 2 * (4 * hidden * hidden + 8 * hidden * hidden) * tokens + 4 * tokens * tokens * hidden
    bert_heads = 2 * (hidden * hidden + hidden * 30_522) * predicted + 2 * hidden * hidden + 4 * hidden
    wide, tokens = 8192, 8192
    frozen = 2 * tokens * (80 * (wide * (wide + 2048) + wide * wide + 3 * wide * 28_672) + 32_000 * wide)
    attention, adapters = 80 * 2 * tokens * tokens * wide, 2 * tokens * 44_564_480

    assert PUBLISHED_MODELS["vgg-16"].flops_per_sample == 6 * vgg
    assert PUBLISHED_MODELS["bert-large"].flops_per_sample == 3 * (24 * bert_layer + bert_heads)
    assert PUBLISHED_MODELS["llama2-70b-lora"].flops_per_sample == pytest.approx(
        2 * frozen + 3 * attention + 3 * adapters, rel=1e-4
    )
    assert PUBLISHED_MODELS["resnet-50"].flops_per_sample == pytest.approx(24.5e9, rel=0.002)
