"""Scores compared with MLCommons' own package, on submitted logs and on folders made from them."""

import json
import math
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlperf_logging.result_summarizer import result_summarizer as mlcommons

from analysis.mlperf.chapters.systems import systems_chapter
from analysis.mlperf.reading.folders import read_round_folder
from analysis.mlperf.reading.results import MlperfResults, UnscoredResult
from analysis.mlperf.reading.scoring import MlperfRun, NoScoreError, compute_score_of_runs, read_mlperf_run
from analysis.mlperf.rule_sets.rounds import PUBLISHED_RULE_SET, RULE_SETS
from analysis.mlperf.study import make_mlperf_study
from analysis.reading.logs import mllog
from services.schema.errors import UserError

RULESET = "4.1.0"
MINUTES_APART = 1e-9
DESCRIPTION = {
    "submitter": "Acme", "division": "closed", "status": "Available on-premise", "system_name": "eight of them",
    "number_of_nodes": "2", "accelerators_per_node": 4, "accelerator_model_name": "NVIDIA H100-SXM5-80GB",
    "framework": "PyTorch",
}  # fmt: skip

Edit = Callable[[str], str]


@pytest.fixture
def published_logs(pytestconfig: pytest.Config) -> list[Path]:
    """The four published logs."""
    return sorted((pytestconfig.rootpath / "tests/golden/mlperf").glob("*result_0.txt"))


@pytest.fixture
def ssd(published_logs: list[Path]) -> str:
    """The text of a published RetinaNet log."""
    return next(path for path in published_logs if "__ssd__" in path.name).read_text()


@pytest.fixture
def write_submission(tmp_path: Path, ssd: str) -> Callable[..., Path]:
    """Writes a submitter's folder of RetinaNet runs: the published log, each with extra minutes and its edit."""

    def write(extra_minutes: list[float], edits: dict[int, Edit] | None = None, **scaling: float) -> Path:
        folder = tmp_path / "round" / "Acme" / "results" / "box" / "ssd"
        folder.mkdir(parents=True)
        for index, minutes in enumerate(extra_minutes):
            edit = (edits or {}).get(index, str)
            (folder / f"result_{index}.txt").write_text(edit(lengthened(ssd, minutes)))
        if scaling:
            (folder / "scaling.json").write_text(json.dumps(scaling))
        systems = tmp_path / "round" / "Acme" / "systems"
        systems.mkdir()
        (systems / "box.json").write_text(json.dumps(DESCRIPTION))
        return folder

    return write


def lengthened(text: str, minutes: float) -> str:
    """The log of a run that stopped so much later."""
    lines = text.splitlines(keepends=True)
    return "".join(
        re.sub(r'"time_ms": (\d+)', lambda match: f'"time_ms": {int(match[1]) + round(60_000 * minutes)}', line)
        if '"run_stop"' in line
        else line
        for line in lines
    )


def without_stop(text: str) -> str:
    """The log of a run that was cut off."""
    return "".join(line for line in text.splitlines(keepends=True) if '"run_stop"' not in line)


def aborted(text: str) -> str:
    """The log of a run that gave up below its target."""
    missed = re.sub(r'("key": "eval_accuracy", "value": )[\d.]+', r"\g<1>0.1", text)
    return missed.replace('"status": "success"', '"status": "aborted"')


def damaged(text: str) -> str:
    """The log of a finished run in which one line was torn."""
    lines = text.splitlines(keepends=True)
    lines[60] = lines[60][: len(lines[60]) // 2] + "\n"
    return "".join(lines)


def below_target(text: str) -> str:
    """The log of a run that reports success below its target."""
    return re.sub(r'("key": "eval_accuracy", "value": )[\d.]+', r"\g<1>0.1", text)


def nan_accuracy(text: str) -> str:
    """The log of a run whose accuracy was lost."""
    return re.sub(r'("key": "eval_accuracy", "value": )[\d.]+', r"\g<1>NaN", text)


def without_batch_size(text: str) -> str:
    """The log of a run that does not say its batch."""
    return "".join(line for line in text.splitlines(keepends=True) if '"global_batch_size"' not in line)


def without_initialised_tensors(text: str) -> str:
    """The log of a run that does not list the tensors that it initialised."""
    return "".join(line for line in text.splitlines(keepends=True) if '"weights_initialization"' not in line)


def without_space_after_token(key: str) -> Edit:
    """The log of a run in which a space is missing, so that the line has no token."""
    return lambda text: "".join(
        line.replace(":::MLLOG ", ":::MLLOG") if f'"{key}"' in line else line for line in text.splitlines(keepends=True)
    )


def stopped_twice(text: str) -> str:
    """The log of a run whose end was logged by two ranks, by the second a minute later."""
    (stop,) = (line for line in text.splitlines(keepends=True) if '"run_stop"' in line)
    return text + lengthened(stop, 1.0)


def stopped_with_two_values(text: str) -> str:
    """The log of a run that ended with two values."""
    (stop,) = (line for line in text.splitlines(keepends=True) if '"run_stop"' in line)
    return text + re.sub(r'"value": [^,]+', '"value": "other"', stop)


def stopped_at_infinity(text: str) -> str:
    """The log of a run whose end has no time."""
    return "".join(
        re.sub(r'"time_ms": \d+', '"time_ms": Infinity', line) if '"run_stop"' in line else line
        for line in text.splitlines(keepends=True)
    )


def prefixed(text: str) -> str:
    """The log of many ranks: a prefix, progress bars, bytes of another encoding."""
    return "".join([*(f"step 3/4\r 7: {line}" for line in text.splitlines(keepends=True)), "\x07 noise\n"])


def started_last(text: str) -> str:
    """The log of a run whose start was written last."""
    return "".join(sorted(text.splitlines(keepends=True), key=lambda line: '"run_start"' in line))


def mlcommons_score(folder: Path) -> float | None:
    """The score that MLCommons' package gives a folder of runs."""
    minutes, _, _ = mlcommons._compute_strong_score_standalone(
        folder.name, "box", has_power=False, benchmark_folder=str(folder), usage="training", ruleset=RULESET
    )
    return None if minutes is None else float(minutes)


def read_round(folder: Path) -> MlperfResults:
    """The round that contains a folder of runs, read by our reader."""
    return read_round_folder(folder.parents[3])


def test_minutes_of_published_logs_equal_those_of_mlcommons(published_logs: list[Path]) -> None:
    """Our own reader parses the logs; if it split a line or read a time differently, every score would be wrong."""
    assert len(published_logs) == 4
    for path in published_logs:
        start, stop = mlcommons._query_run_start_stop(mlcommons._read_result_file(str(path), "training", RULESET))

        run = read_mlperf_run(mllog.read_log(path))

        assert run.rejection_reason == ""
        assert run.minutes == pytest.approx((stop - start) / 60_000, abs=MINUTES_APART)


EXTRA_MINUTES = [3.0, 0.0, 11.5, 1.25, 7.125, 2.5, 9.0, 4.0, 5.75, 6.5]


@pytest.mark.parametrize(
    ("runs", "edits", "scaling"),
    [
        (3, {}, {}),
        (5, {}, {}),
        (10, {}, {}),
        (5, {}, {"scaling_factor": 1.0511463844797178}),
        (5, {1: aborted}, {}),
        (5, {1: without_stop}, {"scaling_factor": 1.25}),
        (10, {1: damaged}, {}),
        (3, {0: without_stop}, {}),
        (5, {1: below_target}, {}),
        (5, {1: nan_accuracy}, {}),
        (5, {1: without_batch_size}, {}),
        (5, {1: without_space_after_token("global_batch_size")}, {}),
        (5, {1: stopped_with_two_values}, {}),
        (5, {1: stopped_at_infinity}, {}),
        (5, {1: started_last}, {}),
    ],
    ids=[
        *("3", "5", "10", "scaled", "aborted", "no stop, scaled", "damaged", "3, no stop", "below", "no number"),
        *("no batch", "no space", "two ends", "endless", "shuffled"),
    ],
)
def test_the_score_of_a_folder_equals_that_of_mlcommons(
    write_submission: Callable[..., Path], runs: int, edits: dict[int, Edit], scaling: dict[str, float]
) -> None:
    """Rejected runs are fast ones here, so that dropping the wrong run changes the score."""
    folder = write_submission(EXTRA_MINUTES[:runs], edits, **scaling)

    (result,) = read_round(folder).rows

    assert result.minutes == pytest.approx(mlcommons_score(folder), abs=MINUTES_APART)
    assert (result.runs, result.runs_not_counted) == (runs, len(edits))
    assert all(f"result_{index}.txt" in result.note for index in edits)


@pytest.mark.parametrize("edit", [prefixed, stopped_twice, without_space_after_token("tracked_stats")])
def test_a_run_that_mlcommons_accepts_counts(write_submission: Callable[..., Path], edit: Edit) -> None:
    """If the same end is logged twice, the first counts; a line without the complete token is ignored."""
    folder = write_submission(EXTRA_MINUTES[:5], {1: edit, 3: edit})

    (result,) = read_round(folder).rows

    assert result.minutes == pytest.approx(mlcommons_score(folder), abs=MINUTES_APART)
    assert result.runs_not_counted == 0


def test_two_rejected_runs_give_no_score(write_submission: Callable[..., Path]) -> None:
    """One run may fail; after two failures the rest would be a selection."""
    folder = write_submission(EXTRA_MINUTES[:5], {0: aborted, 3: without_stop})

    with pytest.raises(
        UserError, match=r"Acme/results/box/ssd: 2 of 5 runs do not count, at most 1 may fail"
    ) as raised:
        read_round(folder)
    assert str(raised.value).endswith("at most 1 may fail; result_0.txt ended aborted; result_3.txt has no run_stop")
    assert mlcommons_score(folder) is None


def test_two_runs_are_too_few(write_submission: Callable[..., Path]) -> None:
    """No run would be left between the fastest and the slowest."""
    folder = write_submission(EXTRA_MINUTES[:2])

    with pytest.raises(UserError, match="2 runs are too few"):
        read_round(folder)
    assert mlcommons_score(folder) is None


def test_a_result_names_submitter_system_and_the_run_that_did_not_count(write_submission: Callable[..., Path]) -> None:
    """Counts are nodes times accelerators, whether the submitter wrote numbers or strings."""
    folder = write_submission(EXTRA_MINUTES[:5], {1: aborted}, scaling_factor=1.25)

    (result,) = read_round(folder).rows

    assert result.unique_row_key == ("ssd", "Acme", "box")
    assert (result.accelerator_count, result.nodes, result.rcp_scaling_factor) == (8, 2, 1.25)
    assert result.note == "result_1.txt ended aborted: counted as the slowest run"
    assert result.source == "Acme/results/box/ssd/result_*.txt"


def test_runs_that_are_listed_twice_are_one_result(write_submission: Callable[..., Path]) -> None:
    """A folder with power measurements contains the same runs again; counted twice they would distort clusters."""
    folder = write_submission(EXTRA_MINUTES[:3])
    shutil.copytree(folder, folder.parents[1] / "box-POWER" / "ssd")

    results = read_round(folder)

    assert len(results.rows) == 1
    assert results.unscored_results == (
        UnscoredResult(
            "Acme/results/box-POWER/ssd",
            "has the same runs as the folder Acme/results/box/ssd",
            "with runs that are listed twice",
        ),
    )
    assert results.unscored_summary == "1 of 2 results not scored: 1 with runs that are listed twice"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"division": "open"}, "its division is open, not closed"),
        ({"number_of_nodes": "two"}, "box.json: number_of_nodes should be a whole number at least 1, not 'two'"),
        (
            {"accelerators_per_node": -1},
            "box.json: accelerators_per_node should be a whole number at least 0, not '-1'",
        ),
        (
            {"accelerators_per_node": 0, "host_processors_per_node": "two"},
            "box.json: host_processors_per_node should be a whole number at least 1, not 'two'",
        ),
        ({"accelerator_model_name": ""}, "box.json: accelerator should be a word or more"),
        (None, "systems/box.json cannot be read"),
    ],
)
def test_a_system_with_an_invalid_description_is_left_out_with_its_reason(
    write_submission: Callable[..., Path], change: dict[str, object] | None, reason: str
) -> None:
    """A system without a count has no place on any axis; other systems are not affected."""
    folder = write_submission(EXTRA_MINUTES[:3])
    description = folder.parents[2] / "systems" / "box.json"
    valid_log = shutil.copytree(folder, folder.parents[1] / "sound" / "ssd") / "result_0.txt"
    valid_log.write_text(lengthened(valid_log.read_text(), 1.0))  # a copy of all runs would not be scored
    (description.parent / "sound.json").write_text(json.dumps(DESCRIPTION))
    description.write_text(json.dumps(DESCRIPTION | change) if change is not None else "{")

    results = read_round(folder)

    assert [row.system for row in results.rows] == ["sound"]
    assert len(results.unscored_results) == 1
    assert results.unscored_results[0].path == "Acme/results/box/ssd"
    assert results.unscored_results[0].reason.startswith(reason)


@pytest.mark.parametrize(
    ("factor", "shown"), [('"big"', "'big'"), ("true", "True"), ("Infinity", "inf"), ("NaN", "nan"), ("0", "0")]
)
def test_a_result_with_an_invalid_scaling_factor_is_rejected(
    write_submission: Callable[..., Path], factor: str, shown: str
) -> None:
    """A factor of 1 in its place would give a score that was never published."""
    folder = write_submission(EXTRA_MINUTES[:3])
    (folder / "scaling.json").write_text(f'{{"scaling_factor": {factor}}}')

    with pytest.raises(UserError, match=rf"scaling.json: scaling_factor should be a number above 0, not {shown}"):
        read_round(folder)


def test_logs_named_by_time_are_found_and_a_submitters_folder_is_a_round(
    write_submission: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty of the 960 logs are named `result_<time>_<number>.txt`; from inside the folder the path is a dot."""
    folder = write_submission(EXTRA_MINUTES[:3])
    monkeypatch.chdir(folder.parents[2])
    for path in folder.glob("result_*.txt"):
        path.rename(folder / path.name.replace("result_", "result_20240926_142031_"))

    results = read_round_folder(Path())

    assert [result.runs for result in results.rows] == [3]
    assert results.source_name == "Acme"


def test_the_error_for_a_folder_without_logs_gives_the_expected_path(tmp_path: Path) -> None:
    """The most common mistake is the folder above or below the right one."""
    with pytest.raises(UserError, match=r"no logs; looked for <submitter>/results/<system>/<benchmark>/result_\*.txt"):
        read_round_folder(tmp_path)


WORKLOAD = ':::MLLOG {"time_ms": 0, "key": "submission_benchmark", "value": "unheard of", "metadata": {}}'
START = ':::MLLOG {"time_ms": 60000, "key": "run_start", "value": null, "metadata": {}}'
STOP = ':::MLLOG {"time_ms": 240000, "key": "run_stop", "value": null, "metadata": {"status": "success"}}'


@pytest.mark.parametrize(
    ("lines", "rejection_reason"),
    [
        ([START, STOP], ""),
        ([STOP, "epoch 1\r" + START], ""),
        ([STOP], "has no run_start"),
        ([START], "has no run_stop"),
        ([START, STOP, STOP.replace("240000", "250000")], ""),
        ([START, STOP, STOP.replace("null", "7")], "has 2 run_stop that differ"),
        ([START, STOP.replace("success", "aborted")], "ended aborted"),
        ([START, STOP.replace('"status": "success"', "")], "ended without a status"),
        ([START.replace("60000", "240000"), STOP], "ends before it starts"),
        ([START, STOP, ':::MLLOG {"time_ms": 1', ":::MLLOG {}"], "has 2 damaged lines"),
        ([START, STOP, STOP.replace('{"status": "success"}', '"status"')], "has 1 damaged line"),
        ([START, STOP, STOP.replace("240000", "NaN")], "has 1 damaged line"),
        ([], "has no run_start"),
    ],
)
def test_a_run_of_an_unknown_workload_counts_if_it_is_readable_and_successful(
    lines: list[str], rejection_reason: str
) -> None:
    """Any other run is not known to have reached its target."""
    run = read_mlperf_run(mllog.parse_log_lines([WORKLOAD, *lines]))

    assert run.rejection_reason == rejection_reason
    assert run.minutes == (math.inf if rejection_reason else 3.0)


def test_a_log_that_names_no_workload_does_not_count() -> None:
    """The target of the run is unknown."""
    assert read_mlperf_run(mllog.parse_log_lines([START, STOP])).rejection_reason == "has no submission_benchmark"


minutes = st.floats(0.01, 1e4)


@given(st.lists(minutes, min_size=3, max_size=12), st.randoms(use_true_random=False))
def test_a_score_lies_within_its_runs_and_ignores_their_order(lengths: list[float], chance: random.Random) -> None:
    """The score is a mean of some of the runs, in any order."""
    runs = [MlperfRun(0.0, 60_000 * length) for length in lengths]

    score = compute_score_of_runs(runs).minutes

    assert min(lengths) * (1 - 1e-12) <= score <= max(lengths) * (1 + 1e-12)
    assert score == compute_score_of_runs(chance.sample(runs, len(runs))).minutes


@given(st.lists(minutes, min_size=3, max_size=12))
def test_a_run_that_did_not_converge_counts_as_the_slowest(lengths: list[float]) -> None:
    """Giving up must never pay: the score equals that of the same runs with one extremely long run."""
    runs = [MlperfRun(0.0, 60_000 * length) for length in lengths]
    given_up = MlperfRun(0.0, 1.0, "ended aborted")

    assert (
        compute_score_of_runs([*runs[1:], given_up]).minutes
        == compute_score_of_runs([*runs[1:], MlperfRun(0.0, 1e12)]).minutes
    )
    assert math.isinf(given_up.minutes)


def test_four_runs_of_u_net_may_fail() -> None:
    """Its forty runs vary more, so four are dropped at either end."""
    forty = [MlperfRun(0.0, 60_000.0 * (1 + index)) for index in range(36)] + [
        MlperfRun(rejection_reason="ended aborted")
    ] * 4

    assert compute_score_of_runs(forty, benchmark_name="unet3d").minutes == pytest.approx(sum(range(5, 37)) / 32)
    with pytest.raises(NoScoreError, match="4 of 40 runs do not count, at most 1 may fail"):
        compute_score_of_runs(forty, benchmark_name="ssd")


def test_a_system_without_accelerators_counts_its_processors(write_submission: Callable[..., Path]) -> None:
    """A CPU-only system is a valid system: two hosts with two processors each."""
    folder = write_submission(EXTRA_MINUTES[:5])
    processors = {"accelerators_per_node": "0", "accelerator_model_name": "", "host_processors_per_node": "2"}
    model = {"host_processor_model_name": "Intel(R) Xeon(R) Platinum 8480+"}
    (folder.parents[2] / "systems" / "box.json").write_text(json.dumps(DESCRIPTION | processors | model))

    (result,) = read_round(folder).rows

    assert (result.accelerator_count, result.unit, result.nodes) == (4, "processors", 2)
    assert result.accelerator == "Intel(R) Xeon(R) Platinum 8480+"
    assert result.accelerator_kind == "Xeon Platinum 8480+ (processors)"


def test_a_system_without_accelerators_and_processors_counts_its_hosts(write_submission: Callable[..., Path]) -> None:
    folder = write_submission(EXTRA_MINUTES[:5])
    change = {"accelerators_per_node": 0, "host_processor_model_name": "Xeon"}
    (folder.parents[2] / "systems" / "box.json").write_text(json.dumps(DESCRIPTION | change))

    (result,) = read_round(folder).rows

    assert (result.accelerator_count, result.unit) == (2, "hosts")


def test_a_result_with_fewer_runs_than_its_rules_ask_for_says_so(write_submission: Callable[..., Path]) -> None:
    """RetinaNet needs five runs."""
    (result,) = read_round(write_submission(EXTRA_MINUTES[:3])).rows

    assert result.remarks == "3 runs, the rules ask for 5"


def test_a_published_result_is_accepted_without_the_check(write_submission: Callable[..., Path]) -> None:
    """Two runs have no batch size, which the rules require; their times were published all the same."""
    folder = write_submission(EXTRA_MINUTES[:5], {1: without_batch_size, 3: damaged, 4: aborted})

    with pytest.raises(UserError, match="3 of 5 runs do not count"):
        read_round(folder)
    (result,) = read_round_folder(folder.parents[3], PUBLISHED_RULE_SET).rows

    assert (result.rules, result.runs_not_counted, result.note) == (
        "published", 1, "result_4.txt ended aborted: counted as the slowest run",
    )  # fmt: skip
    assert result.minutes == pytest.approx(read_minutes(folder, (0, 1, 2, 3))[1:].mean())


def read_minutes(folder: Path, run_numbers: tuple[int, ...]) -> np.ndarray:
    """The sorted minutes of some runs of a folder."""
    logs = [mllog.read_log(folder / f"result_{number}.txt") for number in run_numbers]
    return np.array(sorted(read_mlperf_run(log, PUBLISHED_RULE_SET).minutes for log in logs))


def test_the_folder_name_chooses_the_rules_of_its_round(write_submission: Callable[..., Path]) -> None:
    """Logs do not name their round: round 2.1 requires the tensors that were initialised, and round 4.1 does not."""
    folder = write_submission(EXTRA_MINUTES[:5], dict.fromkeys(range(5), without_initialised_tensors)).parents[3]
    named = folder.rename(folder.parent / "training_results_v2.1")

    with pytest.raises(UserError) as raised:
        read_round_folder(named)

    assert "training_results_v2.1: 1 of 1 result not scored: 1 where a log has no" in str(raised.value)
    assert "rules of round 2.1, detected from the folder name training_results_v2.1" in str(raised.value)
    assert read_round_folder(named, RULE_SETS["4.1"]).rows[0].rules == "4.1"


def test_unscored_results_are_counted_by_reason_at_the_top(write_submission: Callable[..., Path]) -> None:
    """A report about half of a round must not look like a report about the round."""
    folder = write_submission(EXTRA_MINUTES[:5])
    for number in range(3):
        copied = shutil.copytree(folder, folder.parents[1] / f"open{number}" / "ssd")
        (copied / "result_0.txt").write_text(lengthened((folder / "result_0.txt").read_text(), 1.0 + number))
        description = DESCRIPTION | {"division": "open"}
        (folder.parents[2] / "systems" / f"open{number}.json").write_text(json.dumps(description))
    missing = shutil.copytree(folder, folder.parents[1] / "undescribed" / "ssd")
    (missing / "result_0.txt").write_text(lengthened((folder / "result_0.txt").read_text(), 9.5))

    results = read_round(folder)

    assert results.unscored_summary == (
        "4 of 5 results not scored: 3 of the open division, 1 without a readable json file"
    )
    assert f"1 result of 1 workload. {results.unscored_summary}. Rules of round 4.1, " in (
        systems_chapter(make_mlperf_study(results)).finding
    )
