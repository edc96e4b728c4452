"""Tests of generated scenes: boxes are exact, shapes are visible, targets are well formed."""

import time

import numpy as np
import pytest

from services.learning.datasets import Scenes
from services.learning.datasets.scenes import MAX_COVERED_SHARE
from services.learning.objectives.detection.boxes import compute_iou
from services.schema.arrays import HostArray


@pytest.fixture(scope="module")
def one_shape() -> tuple[HostArray, HostArray]:
    """Pictures of one shape each without noise, and their targets."""
    data = Scenes(samples=400, max_shapes=1, classes=5, noise=0).load("float64")
    return data.train_x, data.train_y[:, 0]


def test_boxes_contain_exactly_the_drawn_pixels(one_shape: tuple[HostArray, HostArray]) -> None:
    """A box is the true extent of its shape, to the pixels of its smooth edge; the detector is measured against it."""
    pictures, targets = one_shape
    assert set(targets[:, 0]) == {0, 1, 2, 3, 4}

    for picture, (_, left, top, right, bottom) in zip(pictures, targets, strict=True):
        drawn_rows, drawn_columns = np.nonzero((abs(picture - picture[:, :1, :1]) > 0.02).any(axis=0))
        extent = drawn_columns.min(), drawn_rows.min(), drawn_columns.max() + 1, drawn_rows.max() + 1

        assert extent == pytest.approx((left, top, right, bottom), abs=1.6)  # the top of a triangle is thin
        assert 0 <= left < right <= 32
        assert 0 <= top < bottom <= 32


def test_shapes_differ_by_their_class_in_the_part_of_the_box_that_they_fill(
    one_shape: tuple[HostArray, HostArray],
) -> None:
    """Circles fill π/4 of their boxes, squares all, triangles and diamonds half, rings 3π/16."""
    pictures, targets = one_shape
    filled: dict[float, list[float]] = {number: [] for number in range(5)}
    for picture, (number, left, top, right, bottom) in zip(pictures, targets, strict=True):
        channel = abs(picture - picture[:, :1, :1]).max(axis=(1, 2)).argmax()
        opacity = abs(picture[channel] - picture[channel, 0, 0])
        filled[number].append(float(opacity.sum() / opacity.max() / ((right - left) * (bottom - top))))

    means = [np.mean(shares) for shares in filled.values()]
    assert means == pytest.approx([np.pi / 4, 1, 1 / 2, 1 / 2, 3 * np.pi / 16], abs=0.04)


def test_pictures_have_at_least_one_shape_and_no_shape_is_hidden() -> None:
    """A hidden shape could not be detected, so that no model would reach a high precision."""
    targets = Scenes(samples=500, max_shapes=4).load("float64").train_y
    is_used = targets[..., 0] >= 0

    assert is_used.any(axis=1).all()
    assert set(is_used.sum(axis=1)) == {1, 2, 3, 4}
    overlap = compute_iou(targets[..., 1:], targets[..., 1:]) * is_used[:, None] * is_used[:, :, None]
    assert np.triu(overlap, k=1).max() <= MAX_COVERED_SHARE


def test_unused_rows_of_targets_have_class_minus_one_and_an_empty_box() -> None:
    """Targets of all pictures have the same number of rows."""
    targets = Scenes(samples=200).load("float32").test_y
    is_used = targets[..., 0] >= 0

    assert np.unique(targets[~is_used], axis=0).tolist() == [[-1, 0, 0, 0, 0]]


def test_default_scenes_are_generated_within_a_second() -> None:
    """Each node generates them at its start."""
    begin_s = time.process_time()

    Scenes().load("float32")

    assert time.process_time() - begin_s < 1
