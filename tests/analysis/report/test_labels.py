"""Labels at the ends of lines must not overlap, and must stay near their line."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.figures.drawing.labels import spread_label_positions

POSITIONS = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(POSITIONS)
def test_neighbouring_labels_are_at_least_one_text_line_apart(positions: list[float]) -> None:
    placed = sorted(spread_label_positions(positions, 0.1))

    assert all(high - low >= 0.1 - 1e-9 for low, high in pairwise(placed))


@given(POSITIONS)
def test_the_order_of_labels_is_kept(positions: list[float]) -> None:
    placed = spread_label_positions(positions, 0.1)

    assert [label_position for _, label_position in sorted(zip(positions, placed, strict=True))] == sorted(placed)


def test_labels_with_enough_room_are_not_moved() -> None:
    assert spread_label_positions([0.2, 0.9, 0.5], 0.1) == pytest.approx([0.2, 0.9, 0.5])
