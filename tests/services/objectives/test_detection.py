"""Tests of object detection: anchors, boxes, matching, suppression, focal loss and mean average precision."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.learning.objectives.detection import Detection
from services.learning.objectives.detection.anchors import DEFAULT_ANCHORS, AnchorGrid, anchor_boxes
from services.learning.objectives.detection.average_precision import average_precision, mean_average_precision
from services.learning.objectives.detection.boxes import compute_iou, decode_boxes, encode_boxes
from services.learning.objectives.detection.matching import match_anchors
from services.learning.objectives.detection.predictions import PredictedBoxes, non_maximum_suppression, predict_boxes
from services.schema.arrays import HostArray

CLASSES = 3
Box = tuple[float, ...]


def random_boxes(rng: np.random.Generator, *shape: int) -> HostArray:
    """Return boxes of 4 to 10 pixels within about 20 pixels, so that many of them overlap."""
    corners = rng.uniform(0, 10, (*shape, 2))
    return np.concatenate([corners, corners + rng.uniform(4, 10, (*shape, 2))], axis=-1)


def random_targets(rng: np.random.Generator, images: int, rows: int) -> HostArray:
    """Return targets with unused rows, and images without objects."""
    classes = rng.integers(-1, CLASSES, (images, rows, 1))
    classes[0] = -1
    return np.concatenate([classes, random_boxes(rng, images, rows)], axis=-1)


def slow_overlap(first: Box, second: Box) -> float:
    """Return the intersection over union of two boxes."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    common = max(width, 0) * max(height, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return common / (sum(areas) - common)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((0, 0, 4, 4), (0, 0, 4, 4), 1),
        ((0, 0, 4, 4), (2, 0, 6, 4), 8 / 24),
        ((0, 0, 4, 4), (4, 0, 8, 4), 0),  # they touch
        ((0, 0, 4, 4), (6, 6, 8, 8), 0),
        ((0, 0, 4, 4), (1, 1, 3, 3), 4 / 16),
        ((2, 2, 2, 2), (2, 2, 2, 2), 0),  # no area
    ],
)
def test_overlap_is_the_intersection_over_the_union(first: Box, second: Box, expected: float) -> None:
    """Matching, suppression and the metric all rest on it."""
    assert compute_iou(np.array([first]), np.array([second])) == pytest.approx(np.array([[expected]]))


def test_offsets_are_zero_for_the_anchor_itself_and_decode_to_the_box() -> None:
    """The loss compares offsets, and predictions are decoded: both must mean the same box."""
    rng = np.random.default_rng(0)
    anchors, boxes = random_boxes(rng, 30), random_boxes(rng, 30)

    np.testing.assert_allclose(encode_boxes(anchors, anchors), 0, atol=1e-12)
    np.testing.assert_allclose(decode_boxes(encode_boxes(boxes, anchors), anchors), boxes)
    assert encode_boxes(np.array([2.0, 0, 10, 8]), np.array([0.0, 0, 4, 4])) == pytest.approx(
        [1, 0.5, np.log(2), np.log(2)]
    )


def test_anchors_are_ordered_by_level_row_column_and_size() -> None:
    """A model's outputs belong to anchors by their order alone."""
    grid = AnchorGrid(strides=(2, 4), sides=((1, 2), (3, 4)))

    boxes = grid.boxes(4)

    assert len(boxes) == grid.count(4) == 2 * (4 + 1)
    assert boxes[0].tolist() == [0.5, 0.5, 1.5, 1.5]
    assert boxes[1].tolist() == [0, 0, 2, 2]
    assert boxes[2].tolist() == [2.5, 0.5, 3.5, 1.5]
    assert boxes[4].tolist() == [0.5, 2.5, 1.5, 3.5]
    assert boxes[8].tolist() == [0.5, 0.5, 3.5, 3.5]
    assert boxes[9].tolist() == [0, 0, 4, 4]


@pytest.mark.parametrize("side", [16, 24, 32, 64])
def test_anchors_are_found_by_their_number(side: int) -> None:
    """The objective knows the size of the images only by the number of outputs."""
    count = DEFAULT_ANCHORS.count(side)

    assert DEFAULT_ANCHORS.image_side(count) == side
    np.testing.assert_array_equal(anchor_boxes(count), DEFAULT_ANCHORS.boxes(side))


def test_anchors_stand_for_the_object_that_they_overlap_most() -> None:
    """Overlap 1 and 0.5 are objects, 0.43 is ignored, 0.33 and 0 are background."""
    anchors = np.array([[0.0, 0, 4, 4], [0, 0, 4, 8], [1.6, 0, 5.6, 4], [2, 0, 6, 4], [20, 20, 24, 24]])
    targets = np.array([[[2.0, 0, 0, 4, 4], [-1, 20, 20, 24, 24]]])

    matches = match_anchors(anchors, targets)

    assert matches.is_object.tolist() == [[True, True, False, False, False]]
    assert matches.is_background.tolist() == [[False, False, False, True, True]]


def test_every_object_has_an_anchor_even_if_all_overlap_little() -> None:
    """An object without an anchor could never be learned; the anchor with the largest overlap stands for it."""
    anchors, targets = np.array([[0.0, 0, 4, 4], [8, 8, 12, 12]]), np.array([[[0.0, 8, 8, 20, 20], [1, 0, 0, 4, 4]]])

    matches = match_anchors(anchors, targets)

    assert matches.object_number.tolist() == [[1, 0]]
    assert matches.is_object.all()
    assert not matches.is_background.any()


def test_images_without_objects_are_background() -> None:
    """An image may have lost all its objects; its loss is then that of the background alone."""
    matches = match_anchors(anchor_boxes(DEFAULT_ANCHORS.count(16)), np.full((2, 3, 5), -1.0))

    assert matches.is_background.all()
    assert not matches.is_object.any()


def test_focal_loss_without_focus_is_the_cross_entropy() -> None:
    """Without focus and with α = 0.5, the focal loss is half the binary cross entropy."""
    rng = np.random.default_rng(1)
    anchor_count = DEFAULT_ANCHORS.count(16)
    outputs = np.concatenate([rng.standard_normal((2, anchor_count, CLASSES)), np.zeros((2, anchor_count, 4))], axis=-1)
    targets = np.full((2, 1, 5), -1.0)  # background only, so no boxes

    loss, _ = Detection(focal_alpha=0.5, focal_gamma=0).loss_and_output_grad(outputs, targets)

    cross_entropy = np.log1p(np.exp(outputs[..., :CLASSES])).sum() / 2
    assert loss == pytest.approx(cross_entropy / 2)


def test_loss_is_near_zero_for_right_and_certain_outputs() -> None:
    """The minimum of the loss must be the right answer."""
    side = 16
    anchors = DEFAULT_ANCHORS.boxes(side)
    targets = np.array([[[1.0, 1, 1, 11, 11], [-1, 0, 0, 0, 0]]])
    matches = match_anchors(anchors, targets)
    scores = np.full((1, len(anchors), CLASSES), -20.0)
    scores[0, matches.is_object[0], 1] = 20
    offsets = encode_boxes(np.broadcast_to(targets[0, 0, 1:], anchors.shape), anchors)

    loss, grad = Detection().loss_and_output_grad(np.concatenate([scores, offsets[None]], axis=-1), targets)

    assert loss == pytest.approx(0, abs=1e-6)
    assert abs(grad).max() < 1e-6


def test_outputs_of_any_size_give_a_finite_loss() -> None:
    """exp of large scores must not overflow; filterwarnings turns a warning into an error."""
    outputs = np.full((1, DEFAULT_ANCHORS.count(16), CLASSES + 4), 500, np.float32)
    outputs[:, ::2] *= -1

    loss, grad = Detection().loss_and_output_grad(outputs, np.array([[[1, 1, 1, 11, 11]]], np.float32))

    assert np.isfinite(loss)
    assert np.isfinite(grad).all()
    assert np.isfinite(predict_boxes(outputs).boxes).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_suppression_equals_that_of_one_box_after_the_other(seed: int, count: int) -> None:
    """Images are suppressed together; each must get the result of the usual loop over its own boxes."""
    rng = np.random.default_rng(seed)
    boxes, classes = random_boxes(rng, 3, count), rng.integers(2, size=(3, count))
    is_candidate = rng.random((3, count)) < 0.8

    is_kept = non_maximum_suppression(boxes, classes, is_candidate)

    for image in range(3):
        kept: list[int] = []
        for number in range(count):
            doubles = [k for k in kept if classes[image, k] == classes[image, number]]
            overlaps = [slow_overlap(boxes[image, k], boxes[image, number]) for k in doubles]
            if is_candidate[image, number] and max(overlaps, default=0) <= 0.5:
                kept.append(number)
        assert np.flatnonzero(is_kept[image]).tolist() == kept


def test_outputs_predict_the_boxes_of_their_anchors() -> None:
    """The predictions are those of the outputs, best first, each anchor with its class and its box."""
    side = 16
    anchors = DEFAULT_ANCHORS.boxes(side)
    outputs = np.full((1, len(anchors), CLASSES + 4), -20.0)
    outputs[..., CLASSES:] = 0
    outputs[0, 7, 2], outputs[0, len(anchors) - 1, 0] = 1.0, 3.0
    outputs[0, 7, CLASSES:] = encode_boxes(np.array([1.0, 2, 3, 4]), anchors[7])

    predicted = predict_boxes(outputs)

    kept = predicted.is_kept[0]
    assert predicted.classes[0, kept].tolist() == [0, 2]
    assert predicted.scores[0, kept] == pytest.approx([1 / (1 + np.exp(-3)), 1 / (1 + np.exp(-1))])
    np.testing.assert_allclose(predicted.boxes[0, kept], [anchors[-1], [1, 2, 3, 4]])


def predictions(*rows: tuple[int, float, Box], images: int = 1) -> PredictedBoxes:
    """Return the same predictions (class, score, box) for every image, the best first."""
    ordered = sorted(rows, key=lambda row: -row[1])
    classes, scores, boxes = (np.array([[row[k] for row in ordered]] * images, float) for k in range(3))
    return PredictedBoxes(boxes.reshape(images, -1, 4), classes, scores, np.ones(classes.shape, bool))


TRUE_BOXES = np.array([[[0.0, 0, 0, 4, 4], [0, 10, 10, 14, 14], [1, 20, 0, 24, 4], [-1, 0, 0, 0, 0]]])
FIRST, SECOND, OTHER = (tuple(row[1:]) for row in TRUE_BOXES[0, :3])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(0, 0.9, FIRST), (0, 0.8, SECOND), (1, 0.7, OTHER)], 1),  # all right
        ([(0, 0.9, FIRST), (1, 0.7, OTHER)], (51 / 101 + 1) / 2),  # half of class 0: recall up to 0.5
        ([(0, 0.9, FIRST), (0, 0.85, FIRST), (0, 0.8, SECOND), (1, 0.7, OTHER)], ((51 + 50 * 2 / 3) / 101 + 1) / 2),
        ([(0, 0.9, FIRST), (0, 0.8, SECOND), (0, 0.7, FIRST), (1, 0.7, OTHER)], 1),  # a double after all objects
        ([(1, 0.9, FIRST), (1, 0.8, SECOND), (0, 0.7, OTHER)], 0),  # right boxes of the wrong class
        ([(0, 0.9, (30, 30, 34, 34)), (0, 0.8, FIRST), (0, 0.7, SECOND)], (2 / 3) / 2),  # the best is wrong
        ([(2, 0.9, FIRST)], 0),  # a class without objects does not count
    ],
)
def test_average_precision_of_cases_that_can_be_computed_by_hand(
    rows: list[tuple[int, float, Box]], expected: float
) -> None:
    """Precision and recall of a few boxes are known."""
    assert mean_average_precision(predictions(*rows), TRUE_BOXES, CLASSES) == pytest.approx(expected)


def test_a_box_with_less_overlap_than_one_half_is_wrong() -> None:
    """The metric is COCO's AP50: 0.5 counts, less does not."""
    exactly_half, less = (0, 0, 4, 8), (0, 0, 4, 8.1)
    targets = TRUE_BOXES[:, :1]

    assert mean_average_precision(predictions((0, 0.9, exactly_half)), targets, CLASSES) == 1
    assert mean_average_precision(predictions((0, 0.9, less)), targets, CLASSES) == 0


def test_precision_is_that_of_all_images_together() -> None:
    """A prediction in one image ranks against those in the others, as in COCO."""
    targets = np.concatenate([TRUE_BOXES[:, :1], np.full((1, 1, 5), -1.0)])  # the second image has no object
    both = predictions((0, 0.9, FIRST), images=2)
    wrong_first = both._replace(scores=np.array([[0.8], [0.9]]))

    assert mean_average_precision(both._replace(scores=np.array([[0.9], [0.8]])), targets, CLASSES) == 1
    assert mean_average_precision(wrong_first, targets, CLASSES) == pytest.approx(0.5)


def test_images_without_any_object_have_no_precision() -> None:
    """The metric stays a number, so that a target can be compared with it."""
    assert mean_average_precision(predictions((0, 0.9, FIRST)), np.full((1, 2, 5), -1.0), CLASSES) == 0
    assert average_precision(np.array([]), np.array([], bool), 3) == 0


def slow_mean_average_precision(predicted: PredictedBoxes, targets: HostArray) -> float:
    """Return mean average precision after pycocotools' definition, with plain loops over classes, boxes and recalls."""
    results = []
    for number in range(CLASSES):
        objects = {(image, row): target for image, rows in enumerate(targets) for row, target in enumerate(rows)}
        objects = {key: target for key, target in objects.items() if target[0] == number}
        if not objects:
            continue
        found: set[tuple[int, int]] = set()
        outcomes = []
        entries = [
            (-predicted.scores[image, k], image, k)
            for image, k in np.argwhere(predicted.is_kept & (predicted.classes == number))
        ]
        for _, image, k in sorted(entries):
            free = {key: target for key, target in objects.items() if key[0] == image and key not in found}
            overlaps = {key: slow_overlap(target[1:], predicted.boxes[image, k]) for key, target in free.items()}
            best = max(overlaps, key=lambda key: overlaps[key], default=None)
            outcomes.append(best is not None and overlaps[best] >= 0.5)
            if best is not None and outcomes[-1]:
                found.add(best)
        precisions = []
        for percent in range(101):
            reached = [
                sum(outcomes[:end]) / end
                for end in range(1, len(outcomes) + 1)
                if 100 * sum(outcomes[:end]) >= percent * len(objects)
            ]
            precisions.append(max(reached, default=0))
        results.append(sum(precisions) / 101)
    return sum(results) / len(results) if results else 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 5))
def test_mean_average_precision_equals_that_of_plain_loops(seed: int, boxes_per_image: int, rows: int) -> None:
    """The metric is computed for all images at once; an independent slow implementation must agree."""
    rng = np.random.default_rng(seed)
    images = 5
    targets = random_targets(rng, images, rows)
    near_objects = targets[:, rng.integers(rows, size=boxes_per_image), 1:] + rng.normal(
        0, 0.7, (images, boxes_per_image, 4)
    )
    is_near = rng.random((images, boxes_per_image)) < 0.7
    boxes = np.where(is_near[..., None], near_objects, random_boxes(rng, images, boxes_per_image))
    scores = -np.sort(-rng.random((images, boxes_per_image)), axis=1)
    classes = rng.integers(CLASSES, size=scores.shape)
    predicted = PredictedBoxes(boxes, classes, scores, rng.random(scores.shape) < 0.9)

    fast = mean_average_precision(predicted, targets, CLASSES)

    assert fast == pytest.approx(slow_mean_average_precision(predicted, targets))
