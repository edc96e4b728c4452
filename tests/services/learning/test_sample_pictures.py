"""Pictures in the log: what is read is what was written, and damaged values are errors that a report can show."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.learning.sample_pictures import (
    MAX_LEVEL,
    PictureBox,
    SamplePictures,
    pixel_levels,
    read_sample_pictures,
)

BOX = PictureBox(2, 0.9, 1.0, 2.0, 3.5, 4.25)
TRUE_BOX = PictureBox(1, None, 0.0, 0.0, 4.0, 4.0)


@given(st.integers(1, 4), st.sampled_from([1, 3]), st.integers(1, 5), st.integers(1, 5), st.integers(0, 99))
def test_read_pictures_equal_the_written_ones(count: int, channels: int, height: int, width: int, seed: int) -> None:
    """Two pixels share a byte, so odd numbers of pixels are a special case."""
    levels = np.random.default_rng(seed).integers(MAX_LEVEL + 1, size=(count, channels, height, width))
    boxes = ((BOX, TRUE_BOX), *(((),) * (count - 1)))
    written = SamplePictures("detected", levels, (), boxes)

    read = read_sample_pictures(json.loads(json.dumps(written.to_log_value())))

    np.testing.assert_array_equal(read.levels, levels)
    assert (read.content, read.class_numbers, read.boxes) == ("detected", (), boxes)


def test_pixels_are_rounded_to_levels_and_cut_off() -> None:
    """A generated pixel may lie outside the range of the data."""
    assert pixel_levels(np.array([-0.2, 0.0, 0.5, 1.0, 1.3])).tolist() == [0, 0, 8, MAX_LEVEL, MAX_LEVEL]


def test_pictures_of_a_trial_fit_into_one_line_of_a_container_log() -> None:
    """Docker stores lines of up to 16 KiB in one piece. Noise is what compresses worst."""
    pixels = np.random.default_rng(0).normal(0.5, 0.1, (6, 3, 32, 32))
    pictures = SamplePictures("detected", pixel_levels(pixels), (), (((BOX,) * 8),) * 6)

    assert len(json.dumps(pictures.to_log_value())) < 16 * 1024


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [2, 1, 4]},
        {"shape": [1, 1, 4, 5]},
        {"shape": [1, 1, 4, -4]},
        {"shape": [1, 2, 4, 2]},
        {"shape": [10**6, 1, 4, 4]},
        {"shape": 4},
        {"pixels": "AAAA"},
        {"pixels": 7},
        {"pixels": "not base64"},
        {"content": "painted"},
        {"content": []},
        {"class_numbers": []},
        {"class_numbers": ["one"]},
        {"content": "detected", "boxes": []},
        {"content": "detected", "boxes": [[[1, 0.5, 0, 0, 1]]]},
        {"content": "detected", "boxes": [[[1, "high", 0, 0, 1, 1]]]},
    ],
    ids=str,
)
def test_damaged_pictures_raise_an_error_that_the_reader_of_logs_expects(changes: dict[str, Any]) -> None:
    """Such an error becomes a message about a damaged log; another one would end the report."""
    value = SamplePictures("generated", np.zeros((1, 1, 4, 4), int), (7,)).to_log_value()
    read_sample_pictures(value)

    with pytest.raises((ValueError, TypeError, LookupError)):
        read_sample_pictures(value | changes)
