"""Samples, batches and factors from published logs, and from a synthetic round that is made of them."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.figures.drawing.style import figure_style_context
from analysis.mlperf.chapters.balance import accelerator_choice_chapter
from analysis.mlperf.chapters.extrapolation import extrapolation_chapter
from analysis.mlperf.chapters.factors import scaling_efficiency_chapter
from analysis.mlperf.chapters.laws import scaling_laws_chapter
from analysis.mlperf.reading.folders import read_round_folder
from analysis.mlperf.reading.run_samples import find_scaling_series, read_samples_to_target
from analysis.mlperf.study import make_mlperf_study
from analysis.reading.logs import mllog

# Values in the four published logs: position at the last evaluation, its unit, global batch.
PUBLISHED_VALUES = {
    "bert": (3927232, "samples", 448),  # written as an epoch
    "llama2_70b_lora": (3456, "samples", 8),
    "ssd": (4, "epochs", 256),
    "stable_diffusion": (2048000, "samples", 256),
}

Round = Callable[[dict[int, tuple[float, int]]], Path]


@pytest.fixture
def published_logs(pytestconfig: pytest.Config) -> dict[str, str]:
    """The text of the published logs, by benchmark."""
    paths = (pytestconfig.rootpath / "tests/golden/mlperf").glob("*result_0.txt")
    return {path.name.split("__")[2]: path.read_text() for path in paths}


@pytest.fixture
def write_round(tmp_path: Path, published_logs: dict[str, str]) -> Round:
    """A round of LoRA systems: number of accelerators -> how many times as fast, and how many times the batch."""

    def write(sizes: dict[int, tuple[float, int]]) -> Path:
        for count, (faster, batch) in sizes.items():
            results = tmp_path / "Acme" / "results" / f"box{count}" / "llama2_70b_lora"
            results.mkdir(parents=True)
            (tmp_path / "Acme" / "systems").mkdir(exist_ok=True)
            for run in range(5):
                (results / f"result_{run}.txt").write_text(
                    faster_log(published_logs["llama2_70b_lora"], faster + 0.02 * run, batch)
                )
            described = {"number_of_nodes": 1, "accelerators_per_node": count, "accelerator_model_name": "H100-SXM"}
            (tmp_path / "Acme" / "systems" / f"box{count}.json").write_text(json.dumps(described))
        return tmp_path

    return write


def faster_log(text: str, faster: float, batch: int) -> str:
    """The log of a run that is faster by a factor; with a larger batch it needs 1.5 times the samples."""
    events = mllog.parse_log_lines(text.splitlines()).events
    start = next(event.time_ms for event in events if event.key == "run_start")
    text = re.sub(r'"time_ms": (\d+)', lambda t: f'"time_ms": {start + (int(t[1]) - start) / faster:.0f}', text)
    text = re.sub(r'("global_batch_size", "value": )8', rf"\g<1>{8 * batch}", text)
    factor = 1.5 if batch > 1 else 1
    return re.sub(r'"samples_count": (\d+)', lambda c: f'"samples_count": {factor * int(c[1]):.0f}', text)


@pytest.mark.parametrize("benchmark", PUBLISHED_VALUES)
def test_samples_and_batch_are_read_from_a_log(published_logs: dict[str, str], benchmark: str) -> None:
    samples = read_samples_to_target(mllog.parse_log_lines(published_logs[benchmark].splitlines()))

    assert samples is not None
    assert (samples.position, samples.unit, samples.batch) == PUBLISHED_VALUES[benchmark]
    assert 30 < samples.minutes < 400


def test_a_log_without_evaluation_has_no_samples(published_logs: dict[str, str]) -> None:
    lines = [line for line in published_logs["ssd"].splitlines() if '"eval_accuracy"' not in line]

    assert read_samples_to_target(mllog.parse_log_lines(lines)) is None


@pytest.mark.parametrize(
    ("original", "replacement"),
    [
        ('"global_batch_size", "value": 8', '"global_batch_size", "value": "many"'),
        ('"global_batch_size", "value": 8', '"global_batch_size", "value": null'),
        ('"global_batch_size", "value": 8', '"global_batch_size", "value": Infinity'),
        ('"global_batch_size", "value": 8', '"global_batch_size", "value": true'),
        ('"samples_count": ', '"samples_count": "three", "was": '),
        ('"samples_count": ', '"samples_count": [3], "was": '),
    ],
)
def test_a_log_with_a_value_that_is_not_a_number_has_no_samples(
    published_logs: dict[str, str], original: str, replacement: str
) -> None:
    """Submitters may write any value; a guess in its place would change a factor."""
    text = published_logs["llama2_70b_lora"]
    assert original in text

    assert read_samples_to_target(mllog.parse_log_lines(text.replace(original, replacement).splitlines())) is None


@pytest.mark.parametrize(
    ("pattern", "replacement", "note"),
    [
        ('"global_batch_size", "value": 8', '"global_batch_size", "value": "many"', ""),  # MLCommons requires none
        ('"samples_count": ', '"samples_count": "three", "was": ', "has a block_start whose"),
        (r'"metadata": \{.*\}\}', '"metadata": ["a"]}', "has no run_start"),
        (r'("key": "eval_start".*)"metadata": \{.*\}\}', r'\1"metadata": "a"}', "damaged line"),
        (r'"time_ms": \d+(.*"run_stop")', r'"time_ms": Infinity\1', "has no run_stop"),
    ],
)
def test_one_unusual_log_of_a_round_affects_no_other_log(
    write_round: Round, pattern: str, replacement: str, note: str
) -> None:
    """A thousand logs, one of them written by hand."""
    root = write_round({4: (1, 1), 8: (1.9, 1)})
    edited_log = root / "Acme" / "results" / "box8" / "llama2_70b_lora" / "result_3.txt"
    edited_log.write_text(re.sub(pattern, replacement, edited_log.read_text()))

    study = make_mlperf_study(read_round_folder(root))

    assert [size.accelerators for series in find_scaling_series(study) for size in series.points] == [4, 8]
    valid_row, edited_row = study.results.rows
    assert valid_row.note == ""
    assert note in edited_row.note
    assert bool(edited_row.note) == bool(note)


def test_a_round_is_read_once_for_all_chapters(write_round: Round) -> None:
    """Fits of a series are cached by the series' identity."""
    study = make_mlperf_study(read_round_folder(write_round({4: (1, 1), 8: (1.9, 1)})))

    assert find_scaling_series(study) is find_scaling_series(study)


def test_efficiency_factors_are_computed_from_a_round_of_logs(write_round: Round) -> None:
    """Four times the accelerators and twice the speed with 1.5 times the samples: 0.5 = 0.75 x 2/3."""
    study = make_mlperf_study(read_round_folder(write_round({4: (1, 1), 8: (1.9, 1), 16: (2, 2)})))

    (series,) = find_scaling_series(study)

    assert (series.accelerator, series.accelerator_counts) == ("H100 SXM", [4, 8, 16])
    assert [size.batch for size in series.points] == [8, 8, 16]
    last = series.compute_efficiencies()[-1]
    assert last.statistical == pytest.approx(2 / 3)
    assert last.efficiency == pytest.approx(0.5, rel=0.03)
    assert last.hardware == pytest.approx(0.75, rel=0.03)
    assert 0.001 < series.points[0].run_spread < 0.1


def test_chapters_are_written_for_any_round(write_round: Round) -> None:
    study = make_mlperf_study(read_round_folder(write_round({4: (1, 1), 8: (1.9, 1), 16: (2, 2)})))

    with figure_style_context():
        split, points = scaling_efficiency_chapter(study), accelerator_choice_chapter(study)

    assert split is not None
    assert points is not None
    assert "more to additional samples" in split.finding
    assert len(points.tables[0].data) == 3


def test_laws_are_fitted_to_any_round(write_round: Round) -> None:
    """Three sizes are enough to fit laws; the laws are judged by their prediction for 512 accelerators."""
    study = make_mlperf_study(read_round_folder(write_round({4: (1, 1), 8: (1.9, 1), 16: (3.5, 2), 512: (30, 4)})))

    with figure_style_context():
        fits, forecasts = scaling_laws_chapter(study), extrapolation_chapter(study)

    assert fits is not None
    assert forecasts is not None
    assert set(fits.tables[-1].data.fitted_to) == {16}
    assert forecasts.tables[1].data.workers.tolist() == [512]
    assert "H100" not in " ".join(forecasts.paragraphs)
    assert not any("others" in table.name for table in forecasts.tables)


def test_integer_columns_stay_integers_if_a_rule_has_no_answer(write_round: Round) -> None:
    """Two sizes have no knee between them."""
    points = accelerator_choice_chapter(make_mlperf_study(read_round_folder(write_round({4: (1, 1), 8: (1.9, 1)}))))

    assert points is not None
    rows = points.tables[0].data.set_index("rule")
    assert rows.loc["knee", "built_told"] == "\N{EN DASH}"
    assert set(rows.drop("knee")["built_told"]) == {"≥ 8"}
    assert str(rows.built.dtype) == "Int64"
    assert "for one workload the largest is 1.0 times the smallest among systems" in points.finding


def test_a_single_size_is_not_a_series(write_round: Round) -> None:
    assert find_scaling_series(make_mlperf_study(read_round_folder(write_round({4: (1, 1)})))) == ()
