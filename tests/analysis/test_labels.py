"""Names at the ends of lines must not touch, and must stay near their line."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.figures.drawing.labels import spread_label_positions

POSITIONS = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(POSITIONS)
def test_neighbours_are_at_least_a_line_apart(positions: list[float]) -> None:
    placed = sorted(spread_label_positions(positions, 0.1))

    assert all(high - low >= 0.1 - 1e-9 for low, high in pairwise(placed))


@given(POSITIONS)
def test_the_order_of_names_is_kept(positions: list[float]) -> None:
    placed = spread_label_positions(positions, 0.1)

    assert [each for _, each in sorted(zip(positions, placed, strict=True))] == sorted(placed)


def test_names_with_room_stay_where_they_are() -> None:
    assert spread_label_positions([0.2, 0.9, 0.5], 0.1) == pytest.approx([0.2, 0.9, 0.5])
