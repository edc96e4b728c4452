"""Benchmark of compressors: goals are met and missed at their limits, and every case is measured."""

from collections.abc import Sequence
from typing import get_args

import pytest

from benchmarks.codecs import timing
from benchmarks.codecs.cases import CASES
from benchmarks.codecs.results import NO_COUNTERPART, VECTOR_MB, are_goals_met, codec_table, goal_lines
from benchmarks.codecs.timing import CodecTime, Side, measure_codecs
from services.compressors import AnyCompressor


def samples(*compress_s: float) -> Sequence[CodecTime]:
    """Return samples with these times to compress."""
    return [CodecTime(seconds, 1.0) for seconds in compress_s]


def test_every_kind_of_compressor_is_measured() -> None:
    """A compressor whose speed is unknown may cost more than it saves."""
    union, *_ = get_args(AnyCompressor)

    assert {type(case.compressor) for case in CASES.values()} == set(get_args(union))


@pytest.mark.parametrize(("share", "mark"), [(0.99, "met"), (1.01, "MISSED")])
def test_goal_is_met_by_the_median_rate(share: float, mark: str) -> None:
    """One fast round is no evidence."""
    limit_s = VECTOR_MB / 600

    lines = list(goal_lines({"int8": {"Ensayo": samples(limit_s * share, limit_s * share, 1e-6, 9.0, 9.0)}}))

    assert [line.rpartition(": ")[2] for line in lines] == [mark]
    assert are_goals_met(lines) == (mark == "met")


@pytest.mark.parametrize(("ours_s", "mark"), [(1.19, "met"), (1.21, "MISSED")])
def test_time_over_that_of_pytorch_is_compared_round_by_round(ours_s: float, mark: str) -> None:
    """Load of other programs in one round slows down both sides."""
    sides: dict[Side, Sequence[CodecTime]] = {"Ensayo": samples(ours_s, 5 * ours_s), "PyTorch": samples(1.0, 5.0)}

    (line,) = goal_lines({"bf16": sides})

    assert line == f"- bf16, time / PyTorch: {ours_s:.2f}, at most 1.2: {mark}"


def test_compressors_without_counterpart_have_no_values_for_pytorch() -> None:
    """An empty cell is not a measured zero."""
    *_, row = codec_table({"sign": {"Ensayo": samples(VECTOR_MB / 1000)}})

    assert row == f"| sign | 32 | 1,000 | 100 | {NO_COUNTERPART} | {NO_COUNTERPART} | {NO_COUNTERPART} |"


def test_measurement_has_one_sample_per_round_and_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first round, in which memory is new, does not count."""
    monkeypatch.setattr(timing, "ENTRIES", 4096)

    measured = measure_codecs(CASES, rounds=2)

    assert list(measured) == list(CASES)
    assert {len(times) for sides in measured.values() for times in sides.values()} == {2}
    assert all("Ensayo" in sides for sides in measured.values())
