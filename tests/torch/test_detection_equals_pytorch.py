"""Losses of detection equal plain PyTorch, written for one image and one anchor after the other."""

from math import log

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import binary_cross_entropy_with_logits, smooth_l1_loss  # noqa: E402 - after the check

from benchmarks.compute.torch_detection import detection_loss  # noqa: E402
from services.learning.objectives import OBJECTIVES  # noqa: E402
from services.learning.objectives.detection.anchors import DEFAULT_ANCHORS  # noqa: E402
from services.schema.arrays import HostArray  # noqa: E402

pytestmark = pytest.mark.torch

SIDE, CLASSES = 16, 3
ANCHORS = DEFAULT_ANCHORS.boxes(SIDE)
Box = list[float]


def overlap_of(first: Box, second: Box) -> float:
    """Return the intersection over union of two boxes."""
    width = max(0.0, min(first[2], second[2]) - max(first[0], second[0]))
    height = max(0.0, min(first[3], second[3]) - max(first[1], second[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return width * height / (sum(areas) - width * height)


def offsets_of(box: Box, anchor: Box) -> Box:
    """Return the shift of the centre in sides of the anchor, and the logarithm of the scale."""
    sides = [anchor[2] - anchor[0], anchor[3] - anchor[1]]
    shifts = [(box[k] + box[k + 2] - anchor[k] - anchor[k + 2]) / 2 / sides[k] for k in (0, 1)]
    return shifts + [log((box[k + 2] - box[k]) / sides[k]) for k in (0, 1)]


def plain_image_loss(outputs: torch.Tensor, target_rows: list[Box]) -> torch.Tensor:
    """Return the loss of one image: RetinaNet's rules, one anchor after the other."""
    objects = [row for row in target_rows if row[0] >= 0]
    overlaps = [[overlap_of(anchor, row[1:]) for row in objects] for anchor in ANCHORS.tolist()]
    best_of_object = [max(column) for column in zip(*overlaps, strict=True)]
    total, object_anchors = torch.zeros((), dtype=outputs.dtype), 0
    for anchor, row, anchor_overlaps in zip(ANCHORS.tolist(), outputs, overlaps, strict=True):
        largest = max(anchor_overlaps, default=0.0)
        is_best = any(value == best > 0 for value, best in zip(anchor_overlaps, best_of_object, strict=True))
        truth = torch.zeros(CLASSES, dtype=outputs.dtype)
        if largest >= 0.5 or is_best:
            label, *box = objects[anchor_overlaps.index(largest)]
            truth[int(label)] = 1
            object_anchors += 1
            expected = torch.tensor(offsets_of(box, anchor), dtype=outputs.dtype)
            total = total + smooth_l1_loss(row[CLASSES:], expected, beta=1 / 9, reduction="sum")
        elif largest >= 0.4:
            continue
        probability = torch.sigmoid(row[:CLASSES])
        right = torch.where(truth == 1, probability, 1 - probability)
        alpha = torch.where(truth == 1, 0.25, 0.75)
        cross_entropy = binary_cross_entropy_with_logits(row[:CLASSES], truth, reduction="none")
        total = total + (alpha * (1 - right) ** 2 * cross_entropy).sum()
    return total / max(1, object_anchors)


def random_outputs_and_targets(images: int, dtype: str) -> tuple[HostArray, HostArray]:
    """Return outputs and targets; the last image has no object."""
    rng = np.random.default_rng(2)
    outputs = rng.standard_normal((images, len(ANCHORS), CLASSES + 4)).astype(dtype)
    corners, sides = rng.uniform(0, 8, (images, 3, 2)), rng.uniform(3, 8, (images, 3, 2))
    classes = rng.integers(-1, CLASSES, (images, 3, 1))
    classes[-1] = -1
    return outputs, np.concatenate([classes, corners, corners + sides], axis=2).astype(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-11)])
def test_detection_loss_and_gradient_equal_those_of_plain_pytorch(dtype: str, tolerance: float) -> None:
    """Focal loss, smooth L1 loss, matching and divisors, against code that shares nothing with the objective."""
    outputs, targets = random_outputs_and_targets(6, dtype)
    tensor = torch.tensor(outputs, requires_grad=True)

    expected = torch.stack([plain_image_loss(*image) for image in zip(tensor, targets.tolist(), strict=True)]).mean()
    expected.backward()
    loss, grad = OBJECTIVES["detection"].loss_and_output_grad(outputs, targets)

    assert loss == pytest.approx(expected.item(), rel=tolerance)
    np.testing.assert_allclose(grad, tensor.grad.numpy(), rtol=tolerance, atol=tolerance * abs(grad).max())


def test_loss_of_the_benchmark_is_the_plain_loss() -> None:
    """The benchmark compares training steps of the same loss; there, all images are computed together."""
    outputs, targets = random_outputs_and_targets(6, "float64")

    together = detection_loss(torch.tensor(outputs), torch.tensor(targets))
    plain = [plain_image_loss(*image) for image in zip(torch.tensor(outputs), targets.tolist(), strict=True)]

    assert together.item() == pytest.approx(torch.stack(plain).mean().item(), rel=1e-12)
