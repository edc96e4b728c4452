"""Figures: all lines lie inside their frames, and data and titles agree with the run."""

import json
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from analysis.checks.fidelity import run_trial_checks
from analysis.checks.verdict import VerdictLevel
from analysis.figures import FIGURES, AnalysedRun, CaptionedFigure
from analysis.figures.drawing.balance import RULE_MARKERS
from analysis.figures.drawing.save import save_drawing_files
from analysis.figures.drawing.style import PALETTE
from analysis.figures.learning import MAX_COLOURED_STRATEGIES, draw_learning_curves
from analysis.figures.predicted import draw_predicted_step_times
from analysis.figures.scaling.efficiency import draw_parallel_efficiency
from analysis.figures.scaling.laws import draw_scaling_laws
from analysis.figures.scaling.predicted_speedup import draw_predicted_speedup
from analysis.figures.scaling.speedup import describe_speedup_baselines, draw_speedup
from analysis.figures.step_breakdown import HIDDEN_PART, WAITING_DEFINITION, draw_step_breakdown
from analysis.figures.sweeps.conditions import draw_sample_time_by_sweep
from analysis.figures.sweeps.quality import draw_final_model_quality
from analysis.metrics.speedup import SpeedupPoint
from analysis.reading.plan_view import TrialPlan
from analysis.reading.run_folder import RunFolder, TrialFolder
from analysis.reading.run_table import RunLogTables
from analysis.report import report
from analysis.report.headline import headline_sentences
from analysis.report.wording import format_number
from analysis.results.analyse_run import analyse_run
from analysis.results.measure_trial import measure_trial
from analysis.results.summary import RunSummary, build_run_summary
from services.learning.sample_pictures import PictureBox, SamplePictures

RunWriter = Callable[..., RunFolder]
PIXEL = 1.0  # about half a line's width


@pytest.fixture
def draw_unequal_run(
    make_run: Callable[..., RunFolder], line: Callable[..., str]
) -> Callable[..., list[CaptionedFigure]]:
    """All drawings of a run on 1, 2, 4 and 8 workers under two conditions, with a lasting slowdown in each trial."""

    def drawn(*strategies: str) -> list[CaptionedFigure]:
        folder = make_run(strategies=strategies, conditions=("100mbit", "10mbit"), workers=(1, 2, 4, 8))
        for trial in folder.trial_folders:
            _slow_down(trial, line)
            _partition(trial)
        _balance(folder.trial_folders[-1])
        _switch(folder.trial_folders[-1], line)
        _end_worse(folder.trial_folders[-1], line)
        _log_sample_pictures(folder.trial_folders[-1], line)
        _log_consensus(folder.trial_folders[-1], line)
        table, summary = analyse_run(folder)
        return list(report.draw_report_figures(AnalysedRun(table, _declare_failures(summary))))

    return drawn


def _declare_failures(summary: RunSummary) -> RunSummary:
    """Let failures be four times as rare under the second condition."""
    intervals_s = dict(zip(summary.swept_values, (60.0, 240.0), strict=True))
    trials = [
        replace(trial, failure_policy="continue", failure_interval_s=intervals_s[trial.condition])
        for trial in summary.trials
    ]
    return replace(summary, trials=trials)


def _slow_down(trial: TrialFolder, line: Callable[..., str]) -> None:
    plan = json.loads(trial.plan_path.read_text())
    change = {"kind": "slowdown", "at": {"time": "200ms"}, "of": ["worker-0"], "factor": 3.0}
    plan["events"] = [{"number": 0, "time_s": 0.2, "step": None, "change": change}]
    trial.plan_path.write_text(json.dumps(plan))
    applied = {"number": 0, "kind": "slowdown", "planned_s": 0.2, "applied_s": 0.2, "lateness_s": 0.0, "phase": "begin"}
    with trial.log_path("worker-0").open("a") as log:
        log.write(line("event_applied", applied | {"by": "worker-0"}, 100.2, "worker-0") + "\n")


def _partition(trial: TrialFolder) -> None:
    """Give each worker samples of its own: two thirds of one class, one third of another."""
    plan = json.loads(trial.plan_path.read_text())
    plan["partition"] = {"kind": "dirichlet", "alpha": 0.5, "seed": 0}
    plan["class_counts"] = [[20, 10] if rank % 2 else [10, 20] for rank in range(plan["workers"])]
    plan["part_sizes"] = [30] * plan["workers"]
    trial.plan_path.write_text(json.dumps(plan))


def _balance(trial: TrialFolder) -> None:
    """Divide batches by the speeds of the workers, which are not known before the run."""
    plan = json.loads(trial.plan_path.read_text())
    plan["balance"] = {"resize_period": 10, "shares": None}
    trial.plan_path.write_text(json.dumps(plan))


def _end_worse(trial: TrialFolder, line: Callable[..., str]) -> None:
    """Append an evaluation with another quality than that of the other condition."""
    with trial.log_path("coordinator").open("a") as log:
        log.write(line("eval_metrics", {"accuracy": 0.5, "loss": 1.5}, 200.0, step=99, samples_count=1000) + "\n")


def _log_sample_pictures(trial: TrialFolder, line: Callable[..., str]) -> None:
    box = PictureBox(0, 0.9, 0, 0, 8, 8)  # along the edge of the picture
    pictures = SamplePictures("detected", np.zeros((2, 3, 8, 8), int), (), ((box,), (box,)))
    with trial.log_path("coordinator").open("a") as log:
        log.write(line("sample_pictures", pictures.to_log_value(), 300.0) + "\n")


def _log_consensus(trial: TrialFolder, line: Callable[..., str]) -> None:
    """Let the distance from the mean grow tenfold from one evaluation to the next."""
    for rank in range(json.loads(trial.plan_path.read_text())["workers"]):
        node = f"worker-{rank}"
        with trial.log_path(node).open("a") as log:
            for step, distance in ((10, 0.1), (20, 1.0)):
                value = {"distance": distance, "mean_norm": 10.0, "seconds": 0.1, "bytes_sent": 0}
                log.write(line("consensus", value, 100.4, node, step=step) + "\n")


def _switch(trial: TrialFolder, line: Callable[..., str]) -> None:
    """Half a second after the start another strategy takes over."""
    plan = json.loads(trial.plan_path.read_text())
    same = {key: plan[key] for key in ("predicted", "bytes_per_step")}
    plan["second_phase"] = same | {"is_synchronous": False, "latencies_s": [0.002, 0.001], "model_transfer_bytes": {}}
    trial.plan_path.write_text(json.dumps(plan))
    committed = {"step": 10, "samples": 100, "seconds": 0.01, "loaded": False}
    with trial.log_path("coordinator").open("a") as log:
        log.write(line("switch_committed", committed, 100.5) + "\n")


@pytest.mark.parametrize("strategies", [("ring", "ps_bsp", "ps_asp"), ("ps_bsp", "ps_asp", "ring")])
def test_all_lines_lie_inside_their_frame(
    draw_unequal_run: Callable[..., list[CaptionedFigure]], strategies: tuple[str, ...]
) -> None:
    """Panels that share an axis differ: the shorter or lower one must not set the limits, whichever comes first."""
    drawings = draw_unequal_run(*strategies)

    outside = [f"{drawing.name}: {message}" for drawing in drawings for message in _lines_outside_frame(drawing)]

    assert {drawing.name for drawing in drawings} == set(FIGURES)
    assert outside == []


@pytest.mark.slow
def test_another_process_saves_the_same_bytes(
    draw_unequal_run: Callable[..., list[CaptionedFigure]], tmp_path: Path
) -> None:
    """Any process may save the figures of a large run, so a drawing must survive pickling."""
    for drawing in draw_unequal_run("ring", "ps_asp"):
        sent = pickle.loads(pickle.dumps(drawing))  # noqa: S301 - our own

        saved_here, saved_there = (
            save_drawing_files(drawing, tmp_path / "here"),
            save_drawing_files(sent, tmp_path / "there"),
        )

        for ending in (".svg", ".png", ".csv", ".json"):
            assert saved_here.with_suffix(ending).read_bytes() == saved_there.with_suffix(ending).read_bytes(), (
                drawing.name
            )


def _lines_outside_frame(drawing: CaptionedFigure) -> Iterator[str]:
    drawing.figure.draw_without_rendering()
    for axes in drawing.figure.axes:
        yield from (f"{axes.get_title()} ends before {point}" for point in _points_outside_axes(axes))


def _points_outside_axes(axes: Axes) -> Iterator[list[float]]:
    """The first outside point of every line, compared in pixels, so that any scale of the axes works."""
    low, high = np.asarray(axes.bbox.min) - PIXEL, np.asarray(axes.bbox.max) + PIXEL
    for line in axes.lines:
        points = np.asarray(line.get_xydata(), dtype=float)
        pixels = line.get_transform().transform(points)
        is_outside = np.any((pixels < low) | (pixels > high), axis=1)
        yield from points[is_outside][:1].tolist()


def test_the_closed_form_of_asynchronous_workers_is_compared_with_the_median_step(
    make_run: Callable[..., RunFolder],
) -> None:
    """A third, much slower worker changes neither the median step nor its prediction."""
    folder = make_run(strategies=("ring", "ps_asp"), workers=(2,), baseline=False)
    for trial in folder.trial_folders:
        planned = json.loads(trial.plan_path.read_text())
        own = sum(planned["predicted"][part] for part in ("compute_s", "exchange_s"))
        planned["predicted"] |= {"exchange_s": 1.0, "steps_s": [own, own, 10 * own]}
        trial.plan_path.write_text(json.dumps(planned))
    table, numbers = analyse_run(folder)

    drawing = draw_predicted_step_times(AnalysedRun(table, numbers))

    assert drawing is not None
    assert list(drawing.data["predicted_step_s"]) == [trial.predicted_step_seconds for trial in numbers.trials]
    assert all(0.5 < 1 + deviation < 1.2 for deviation in drawing.data["relative_deviation"])


def test_measured_speedups_are_drawn_with_predicted_ones(make_run: Callable[..., RunFolder]) -> None:
    """One row per strategy and number of workers; predicted speedups are ratios of predicted seconds."""
    folder = make_run(strategies=("ring", "ps_bsp"), workers=(1, 2, 4))
    table, numbers = analyse_run(folder)

    drawing = draw_predicted_speedup(AnalysedRun(table, numbers))

    assert drawing is not None
    predicted_rates = {(trial.plan.label, trial.plan.workers): 1 / trial.plan.predicted_s for trial in table.trials}
    rates = {(trial.strategy, trial.workers): trial.samples_per_second or 0.0 for trial in numbers.trials}
    shown = drawing.data.set_index(["strategy", "workers"])
    for kind in [key for key in predicted_rates if key[1] > 1]:
        assert shown["predicted_speedup"][kind] == pytest.approx(predicted_rates[kind] / predicted_rates["baseline", 1])
        assert shown["measured_speedup"][kind] == pytest.approx(rates[kind] / rates["baseline", 1])
    title = r"Ring on 4 workers: \S+ times the samples per second of one worker alone, the closed form predicts \S+"
    assert re.match(title, drawing.title)


PUBLISHED = """
published:
  - strategy: ring
    source: a study
    points: [{workers: 2, measured: 1.5}, {workers: 4, measured: 1.25, predicted: 3.75}]
"""


def test_published_speedups_are_shown_beside_measured_ones(make_run: Callable[..., RunFolder]) -> None:
    """A repeated study is more informative beside its own numbers: in the figure, its table and the text."""
    folder = make_run(strategies=("ring", "ps_bsp"), workers=(1, 2, 4))
    with (folder.path / "scenario.yaml").open("a") as scenario:
        scenario.write(PUBLISHED)
    table, numbers = analyse_run(folder)

    drawing = draw_predicted_speedup(AnalysedRun(table, numbers))

    assert drawing is not None
    assert list(_lines_outside_frame(drawing)) == []
    shown = drawing.data.set_index(["strategy", "workers"])
    assert list(shown.loc[("ring", 4), ["published_measured", "published_predicted"]]) == [1.25, 3.75]
    assert shown["published_measured"].count() == 2
    assert "a study" in drawing.caption
    row = shown.loc[("ring", 4)]
    assert (
        "Ring: others published a speedup of 1.25 on 4 workers (a study), where their own model predicts 3.75; "
        f"here it is {format_number(row['measured_speedup'])}, "
        f"and our closed form predicts {format_number(row['predicted_speedup'])}."
    ) in headline_sentences(numbers)


PUBLISHED_TIMES = """
published:
  - strategy: ring
    source: a round
    speedup_of: time_to_target
    base_workers: 4
    points: [{workers: 4, measured: 1}, {workers: 16, measured: 3.5}]
"""


def test_published_times_are_drawn_over_multiples_of_their_base(make_run: Callable[..., RunFolder]) -> None:
    """16 published accelerators are four times their base, as are four workers; the figure must say so."""
    folder = make_run(strategies=("ring",), workers=(1, 2, 4), baseline=False)
    with (folder.path / "scenario.yaml").open("a") as scenario:
        scenario.write(PUBLISHED_TIMES)
    table, numbers = analyse_run(folder)
    timed = replace(numbers, curves=[replace(curve, of="time_to_target") for curve in numbers.curves])
    untimed = replace(numbers, curves=[replace(curve, of="time_to_samples") for curve in numbers.curves])

    drawing, without = (draw_speedup(AnalysedRun(table, each)) for each in (timed, untimed))

    assert drawing is not None
    assert without is not None
    (axes,) = drawing.figure.axes
    (published,) = [line for line in axes.get_lines() if line.get_linestyle() == ":" and line.get_marker() == "x"]
    assert list(np.asarray(published.get_xydata()).ravel()) == [1, 1, 4, 3.5]
    assert axes.get_xlabel() == "workers; published: accelerators / 4"
    assert "N = accelerators / 4: a round" in drawing.caption
    assert "a round" not in without.caption
    assert without.figure.axes[0].get_xlabel() == "workers"


def test_bases_under_several_conditions_are_named_with_their_condition(make_run: Callable[..., RunFolder]) -> None:
    """Two times of one worker alone mean nothing unless the reader knows the condition of each."""
    run = AnalysedRun(*analyse_run(make_run(strategies=("ring",), workers=(2, 4), baseline=False)))
    (curve,) = run.summary.curves
    slow, fast = (
        replace(curve, condition=f"uplink {rate}", base=replace(curve.base, seconds=seconds))
        for rate, seconds in (("10mbit", 20.0), ("100mbit", 4.0))
    )

    drawing = draw_speedup(run)

    assert "ring on 2 workers with uplink 10mbit, 20.0 s" in describe_speedup_baselines([slow, fast])
    assert "ring on 2 workers with uplink 100mbit, 4.00 s" in describe_speedup_baselines([slow, fast])
    assert drawing is not None
    assert drawing.title.startswith("ring on 4 workers is ")  # "scales best" needs a second curve
    assert " with " not in drawing.caption


@pytest.mark.parametrize(
    ("strategy", "description"),
    [("baseline", "for each curve one worker alone, 1.00 to 7.00 s"), ("ring", "its smallest size")],
)
def test_many_bases_are_summarised_by_their_kind(
    make_run: Callable[..., RunFolder], strategy: str, description: str
) -> None:
    """Under seven conditions one worker alone has seven times; it is not a size of any of the curves."""
    analysed = AnalysedRun(*analyse_run(make_run(strategies=("ring",), workers=(2, 4))))
    (curve,) = analysed.summary.curves
    bases = [replace(curve.base, strategy=strategy, seconds=float(time_s)) for time_s in range(1, 8)]

    assert description in describe_speedup_baselines(
        [replace(curve, base=base, condition=f"delay {base.seconds}s") for base in bases]
    )


def test_no_speedup_is_predicted_for_one_number_of_workers(make_run: Callable[..., RunFolder]) -> None:
    """A single size has no speedup to draw."""
    analysed = AnalysedRun(*analyse_run(make_run(strategies=("ring",), workers=(4,))))

    assert draw_predicted_speedup(analysed) is None


def test_two_curves_of_a_strategy_are_distinguished_by_their_conditions(make_run: Callable[..., RunFolder]) -> None:
    """Otherwise the title would give two efficiencies, 92 % and 60 %, for the same ring."""
    folder = make_run(strategies=("ring",), workers=(1, 2, 4), conditions=("100mbit", "10mbit"))
    for trial in folder.trial_folders:
        if "10mbit" in trial.plan_path.read_text().replace("100mbit", ""):
            _double_durations(trial)
    analysed = AnalysedRun(*analyse_run(folder))

    drawing = draw_parallel_efficiency(analysed)

    assert drawing is not None
    assert re.match(r"ring \(uplink 100mbit\) keeps .*; ring \(uplink 10mbit\) keeps ", drawing.title)


def test_the_quality_under_a_condition_is_that_of_its_last_evaluation(make_run: Callable[..., RunFolder]) -> None:
    """The figure shows the mean over repeats and every repeat."""
    folder = make_run(strategies=("ring",), workers=(2,), conditions=("100mbit", "10mbit"), repeats=2, baseline=False)
    log = folder.trial_folders[-1].log_path("coordinator")
    lines = log.read_text().splitlines()
    last = max(number for number, line in enumerate(lines) if "eval_metrics" in line)
    lines[last] = re.sub(r'"accuracy": [0-9.]+', '"accuracy": 0.5', lines[last])
    log.write_text("\n".join(lines) + "\n")
    analysed = AnalysedRun(*analyse_run(folder))

    drawing = draw_final_model_quality(analysed)

    assert drawing is not None
    qualities = drawing.data["accuracy"]
    assert len(qualities) == 4
    assert qualities.iloc[-1] == 0.5
    worse, better = f"{qualities[2:].mean():.3f} with uplink 10mbit", f"{qualities[:2].mean():.3f} with uplink 100mbit"
    assert drawing.title == f"Ring ends at accuracy {worse}, {better}"


@pytest.mark.parametrize("draw", [draw_sample_time_by_sweep, draw_final_model_quality])
def test_no_line_connects_conditions(
    make_run: Callable[..., RunFolder], draw: Callable[[AnalysedRun], CaptionedFigure | None]
) -> None:
    """Conditions are categories: nothing was measured between two of them, and their order means nothing."""
    folder = make_run(strategies=("ring",), workers=(2,), conditions=("100mbit", "10mbit"), repeats=2, baseline=False)
    log = folder.trial_folders[-1].log_path("coordinator")
    log.write_text(re.sub(r'"accuracy": [0-9.]+', '"accuracy": 0.5', log.read_text()))

    drawing = draw(AnalysedRun(*analyse_run(folder)))

    assert drawing is not None
    lines = drawing.figure.axes[0].get_lines()
    assert lines
    assert all(line.get_linestyle() == "None" for line in lines)


def _double_durations(trial: TrialFolder) -> None:
    """Double the durations of a trial with more than one worker."""
    if json.loads(trial.plan_path.read_text())["workers"] == 1:
        return
    log = trial.log_path("coordinator")
    log.write_text(re.sub(r'"time_ms": ([0-9.]+)', lambda match: _doubled_time(float(match[1])), log.read_text()))


def _doubled_time(time_ms: float) -> str:
    return f'"time_ms": {100_000 + 2 * (time_ms - 100_000)}'


def test_strategies_are_ordered_by_step_time_if_nothing_else_differs(run_writer: RunWriter, tmp_path: Path) -> None:
    """Neighbouring bars are easy to compare; if workers are swept, a strategy's rows stay together."""

    def shown(*workers: int) -> list[str]:
        analysed = AnalysedRun(
            *analyse_run(run_writer(tmp_path / str(workers), strategies=("ps_bsp", "ring"), workers=workers))
        )
        drawing = draw_step_breakdown(analysed)
        return [] if drawing is None else list(drawing.data["strategy"])

    assert shown(4) == ["ring", "baseline", "ps_bsp"]
    assert shown(2, 4) == ["baseline", "ps_bsp", "ps_bsp", "ring", "ring"]


def test_hidden_communication_is_a_part_of_the_bar_of_compute(make_run: Callable[..., RunFolder]) -> None:
    """It takes no time of its own: the bar ends where it would end without it."""
    analysed = AnalysedRun(*analyse_run(make_run(strategies=("ring",), workers=(2,))))
    trials = [replace(trial, hidden_communication_seconds=0.001) for trial in analysed.summary.trials]

    plain = draw_step_breakdown(analysed)
    split = draw_step_breakdown(AnalysedRun(analysed.table, replace(analysed.summary, trials=trials)))

    assert plain is not None
    assert split is not None
    ends = [
        max(patch.get_x() + patch.get_width() for patch in drawing.figure.axes[0].patches) for drawing in (plain, split)
    ]
    widths = [patch.get_width() for patch in split.figure.axes[0].patches]
    assert ends[0] == pytest.approx(ends[1])
    assert [width for width in widths if width == pytest.approx(1.0)]
    assert HIDDEN_PART not in plain.caption.lower()
    assert HIDDEN_PART in split.caption.lower()


def test_with_hidden_communication_the_titles_state_the_time_that_workers_wait(
    make_run: Callable[..., RunFolder],
) -> None:
    """A strategy that hides its exchange exchanges for longer than it waits."""
    analysed = AnalysedRun(*analyse_run(make_run(strategies=("ps_bsp", "ring"), workers=(2,))))
    trials = [replace(trial, hidden_communication_seconds=0.001) for trial in analysed.summary.trials]

    plain = draw_step_breakdown(analysed)
    split = draw_step_breakdown(AnalysedRun(analysed.table, replace(analysed.summary, trials=trials)))

    assert "exchanges for a mean of" in (plain.title if plain else "")
    assert "waits for the exchange for a mean of" in (split.title if split else "")


def test_the_title_of_the_step_breakdown_names_the_swept_value(make_run: Callable[..., RunFolder]) -> None:
    """The exchange takes another time at another link rate."""
    run = make_run(strategies=("ps_bsp", "ring"), workers=(2,), conditions=("100mbit", "1gbit"), baseline=False)

    drawing = draw_step_breakdown(AnalysedRun(*analyse_run(run)))

    assert drawing is not None
    assert drawing.title.startswith("On 2 workers (uplink 100mbit) ")


def test_a_legend_of_many_strategies_stays_inside_the_page(make_run: Callable[..., RunFolder]) -> None:
    """A legend of fourteen names in one line would end beyond the edge."""
    labels = tuple(f"parameter_server_{number}" for number in range(14))
    analysed = AnalysedRun(*analyse_run(make_run(strategies=labels, workers=(2,))))

    drawing = draw_learning_curves(analysed)

    assert drawing is not None
    drawing.figure.draw_without_rendering()
    (legend,) = drawing.figure.legends
    shown, page = legend.get_window_extent(), drawing.figure.bbox
    assert page.x0 <= shown.x0
    assert shown.x1 <= page.x1
    assert shown.y0 >= max(axes.get_window_extent().y1 for axes in drawing.figure.axes)
    assert len({str(patch.get_facecolor()) for patch in legend.get_patches()}) == 15


def test_an_evaluation_of_synchronous_training_counts_the_bytes_of_its_whole_step(
    make_run: Callable[..., RunFolder],
) -> None:
    """Other workers may end the step a moment after the evaluation worker; the table of trials has all their bytes."""
    run, summary = analyse_run(make_run(strategies=("ring",), workers=(4,), baseline=False))
    (trial,) = run.trials
    is_late = trial.steps["step"].duplicated() & (trial.steps["step"] == trial.steps["step"].max())
    last_evaluation_s = trial.evals["time_s"].max()
    late_s = (last_evaluation_s - trial.steps["start_s"] + 1e-4).where(is_late, trial.steps["step_s"])
    tables = replace(run, trials=(replace(trial, steps=trial.steps.assign(step_s=late_s)),))

    drawing = draw_learning_curves(AnalysedRun(tables, summary))

    assert drawing is not None
    assert drawing.data["bytes"].max() == pytest.approx(sum(summary.trials[0].bytes_sent.values()))


def test_with_too_few_colours_the_first_strategies_to_the_target_are_coloured(
    make_run: Callable[..., RunFolder],
) -> None:
    """Two lines of one colour could not be distinguished; the other strategies are still drawn."""
    labels = tuple(f"way_{number}" for number in range(len(PALETTE) + 1))
    run, summary = analyse_run(make_run(strategies=labels, workers=(2,)))

    drawing = draw_learning_curves(AnalysedRun(run, summary))

    assert drawing is not None
    (legend,) = drawing.figure.legends
    *coloured, others = [text.get_text() for text in legend.get_texts()]
    assert len(coloured) == MAX_COLOURED_STRATEGIES
    assert others == "others"
    lines = [line for line in drawing.figure.axes[0].get_lines() if line.get_color() in PALETTE]
    assert len({line.get_color() for line in lines}) >= MAX_COLOURED_STRATEGIES - 1, "one may be the baseline"
    assert set(drawing.data["strategy"]) >= set(labels)


@pytest.mark.parametrize("figure", [draw_speedup, draw_parallel_efficiency])
def test_balance_points_are_marked_on_the_curves(
    make_run: Callable[..., RunFolder], figure: Callable[[AnalysedRun], CaptionedFigure | None]
) -> None:
    """One hollow marker per chosen number of workers; its rule is in the row of that point."""
    table, numbers = analyse_run(make_run(strategies=("ring", "ps_bsp"), workers=(1, 2, 4)))

    drawing = figure(AnalysedRun(table, numbers))

    assert drawing is not None
    assert len(numbers.balance) > 2
    drawn = [line for axes in drawing.figure.axes for line in axes.lines if line.get_markerfacecolor() == "none"]
    marked = sorted((str(line.get_marker()), int(line.get_xdata()[0])) for line in drawn)
    assert marked == sorted((RULE_MARKERS[pick.rule][0], pick.workers) for pick in numbers.balance)
    listed = {
        (row.strategy, row.workers, rule)
        for row in drawing.data.itertuples()
        for rule in row.balance.split("; ")
        if rule
    }
    assert listed == {(pick.strategy, pick.workers, pick.rule) for pick in numbers.balance}


PAYLOAD = (
    "messages as large as those of mlperf-gpt3 (30,800,000 parameters in fp32, 123 MB); the trained model has "
    "4,810,000 parameters (19.2 MB)"
)


@pytest.mark.parametrize("payloads", [[], [PAYLOAD], [PAYLOAD, PAYLOAD], [f"{PAYLOAD}; {PAYLOAD}"]])
def test_a_long_footer_ends_inside_the_page(make_run: Callable[..., RunFolder], payloads: list[str]) -> None:
    """The footer names the run and states that it is no MLPerf result: its end must not be cut."""
    analysed = AnalysedRun(*analyse_run(make_run(strategies=("ring",), workers=(2,))))
    summary = replace(
        analysed.summary,
        scenario="mlperf-like-lenet",
        rungs={link_property: ["transport", "unknown"] for link_property in ("rate", "delay")},
        engine="local",
        verdict=VerdictLevel.DEGRADED,
        payloads=payloads,
    )

    drawing = draw_step_breakdown(AnalysedRun(analysed.table, summary))

    assert drawing is not None
    drawing.figure.draw_without_rendering()
    footer = drawing.figure.texts[-1]
    assert footer.get_text().endswith("not an MLPerf result")
    assert footer.get_window_extent().x1 <= drawing.figure.bbox.x1
    assert footer.get_window_extent().y0 >= 0


def amdahl_of(point: SpeedupPoint, serial: float) -> SpeedupPoint:
    """The point with the speedup that Amdahl's law predicts."""
    return replace(point, rate_speedup=1 / (serial + (1 - serial) / point.workers))


def test_fitted_laws_find_the_serial_share_of_a_strategy(make_run: Callable[..., RunFolder]) -> None:
    """With a serial share of a tenth, Amdahl's law finds it, and USL attributes it to contention."""
    table, numbers = analyse_run(make_run(strategies=("ring",), workers=(1, 2, 4, 8)))
    (curve,) = numbers.curves
    followed = replace(curve, points=[amdahl_of(point, 0.1) for point in curve.points])

    drawing = draw_scaling_laws(AnalysedRun(table, replace(numbers, curves=[followed])))

    assert drawing is not None
    fits = drawing.data.set_index(["law", "quantity"])
    for law, quantity in (("Amdahl", "serial share"), ("USL", "contention")):
        row = fits.loc[(law, quantity)]
        assert row["value"] == pytest.approx(0.1, rel=1e-2)
        assert row["ci_low"] <= row["value"] <= row["ci_high"]
    assert fits.loc[("Gustafson", "serial share"), "residual"] > 0.05
    assert set(drawing.data["largest_seen"][drawing.data["law"] != "computing"]) == {8.0}


def test_curves_without_a_panel_are_named_in_the_caption(make_run: Callable[..., RunFolder]) -> None:
    """A reader who looks for the seventh strategy learns that its laws were not fitted."""
    table, numbers = analyse_run(make_run(strategies=("ring",), workers=(1, 2, 4, 8)))
    seven = [replace(numbers.curves[0], condition=f"delay {ms}ms") for ms in range(1, 8)]

    drawing = draw_scaling_laws(AnalysedRun(table, replace(numbers, curves=seven)))

    assert drawing is not None
    assert drawing.caption.endswith(" Neither drawn nor fitted: ring (delay 7ms).")


def test_the_fitted_compute_time_is_that_of_the_paced_devices(make_run: Callable[..., RunFolder]) -> None:
    """Shares of one batch on more workers: 4,000 samples per second are a quarter of a millisecond each."""
    analysed = AnalysedRun(*analyse_run(make_run(strategies=("ring",), workers=(1, 2, 4, 8), repeats=2)))

    drawing = draw_scaling_laws(analysed)

    assert drawing is not None
    (seconds_per_sample,) = drawing.data[drawing.data["law"] == "computing"]["value"]
    assert seconds_per_sample == pytest.approx(1 / 4000, rel=0.1)


@pytest.mark.parametrize(("repeats", "band_subject"), [(1, "a new run by"), (2, "a new mean of as many repeats by")])
def test_the_caption_says_whether_a_band_is_for_runs_or_means(
    make_run: Callable[..., RunFolder], repeats: int, band_subject: str
) -> None:
    """Laws are fitted to means of repeats: single runs lie outside such a band more often than its level says."""
    analysed = AnalysedRun(*analyse_run(make_run(strategies=("ring",), workers=(1, 2, 4, 8), repeats=repeats)))

    drawing = draw_scaling_laws(analysed)

    assert drawing is not None
    assert f"Band: 90% prediction interval of {band_subject} the law that fits best" in drawing.caption


def test_three_sizes_are_too_few_to_fit_laws(make_run: Callable[..., RunFolder]) -> None:
    analysed = AnalysedRun(*analyse_run(make_run(strategies=("ring",), workers=(1, 2, 4))))

    assert draw_scaling_laws(analysed) is None


@pytest.mark.parametrize("compress", ["identity", "power_sgd"])
def test_the_fitted_exchange_separates_message_costs_from_link_rates(
    run_simulated: Callable[..., RunLogTables], compress: str
) -> None:
    """A ring whose links have a delay of 1 ms at both ends, which its closed form ignores; PowerSGD runs two rings."""
    table = run_simulated(
        {"ring": {"kind": "all_reduce", "compress": {"kind": compress}}},
        scenario_overrides={"sweep": {"workers": [1, 2, 4, 8]}},
        delay="1ms",
    )
    without_delay = replace(
        table, trials=tuple(replace(trial, plan=without_delays(trial.plan)) for trial in table.trials)
    )
    trials = [measure_trial(trial, run_trial_checks(trial).values()) for trial in without_delay.trials]

    drawing = draw_scaling_laws(AnalysedRun(without_delay, build_run_summary(without_delay, trials, ())))

    assert drawing is not None
    values = drawing.data[drawing.data["law"] == "exchange"].set_index("quantity")["value"]
    assert values["seconds per message"] == pytest.approx(2e-3, rel=0.03)
    assert values["links' stretch"] == pytest.approx(1, rel=0.1)  # pieces hide some of it


def without_delays(plan: TrialPlan) -> TrialPlan:
    """The plan with a prediction that ignores link delays."""
    predicted = plan.predicted.model_copy(
        update={"exchange_s": plan.predicted.exchange_s - 2e-3 * plan.critical_path_message_count}
    )
    return plan.model_copy(update={"predicted": predicted})


def test_waiting_is_defined_alike_in_readme_glossary_and_figure(pytestconfig: pytest.Config) -> None:
    """Readers compare the numbers of a figure with the terms; two definitions would give two meanings."""
    root = pytestconfig.rootpath
    for name in ("README.md", "analysis/report/report.html.j2"):
        assert WAITING_DEFINITION[1:] in (root / name).read_text(encoding="utf-8"), name
