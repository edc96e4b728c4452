"""Which logs count, against MLCommons' own checker: logs of every workload, and what one edit makes of them."""

import contextlib
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlperf_logging.compliance_checker import mlp_compliance
from mlperf_logging.result_summarizer import result_summarizer as mlcommons

from analysis.mlperf.reading.compliance import WORKLOAD_RULES, LoggedValueRule
from analysis.mlperf.reading.folders import read_round_folder
from analysis.mlperf.reading.scoring import check_run_log
from analysis.reading import mllog

Line = dict[str, Any]

RULESETS = {"unet3d": "4.0.0", "retinanet": "5.0.0", "rgat": "5.0.0"}  # others: 4.1.0
VALUES = [
    *(1, 0, 16, 42, 168, 2048, 89137319, 0.9, 0.95, 0.999, 1e-8, 0.01, 2e-5),
    *("closed", "adam", "adamw", "adagrad", "cosine with linear warmup", "onprem"),
]
ACCURACIES = [0.73, 0.81, 0.91, 2.65]
ODD = [None, "", "sgd", -1, 0, 1, 0.1, 0.5, 0.72, 0.925, 2.7, 1e9, float("nan"), float("inf"), [], {}, True]
DURING = {"epoch_count": 1, "first_epoch_num": 1, "epoch_num": 1, "samples_count": 8}


def fitting(allowed: LoggedValueRule, candidates: list[Any]) -> Any:
    """The first that keeps the rule."""
    return next(value for value in candidates if allowed.accepts(value))


def line(key: str, value: Any = None, **metadata: Any) -> Line:
    """One event, a second after the one before (see `written`)."""
    return {"namespace": "", "event_type": "POINT_IN_TIME", "key": key, "value": value, "metadata": metadata}


def sound(benchmark: str) -> list[Line]:
    """The shortest log of a workload that counts, by our rules."""
    asked = WORKLOAD_RULES[benchmark]
    placed = {"init_start", "init_stop", "run_start", "run_stop", "eval_accuracy", "submission_benchmark"}
    told = [
        line(key, fitting(own.value_rule, VALUES))
        for key, own in asked.key_rules.items()
        if own.occurrence != "any" and key not in placed
    ]
    return [
        *(line("submission_benchmark", benchmark), *told, line("init_start"), line("init_stop"), line("run_start")),
        *(line("block_start", **DURING), line("epoch_start", **DURING), line("eval_start", **DURING)),
        *evaluations(benchmark),
        *(line("eval_stop", **DURING), line("epoch_stop", **DURING), line("block_stop", **DURING)),
        line("run_stop", status="success"),
    ]


def evaluations(benchmark: str) -> Iterator[Line]:
    """One that reaches the target, or two of images, with their two scores each."""
    if benchmark != "stable_diffusion":
        yield line("eval_accuracy", fitting(WORKLOAD_RULES[benchmark].target, ACCURACIES), **DURING)
        return
    for samples, scores in ((8, {"FID": 95.0, "CLIP": 0.1}), (16, {"FID": 80.0, "CLIP": 0.2})):
        yield from (line("eval_accuracy", score, metric=name, samples_count=samples) for name, score in scores.items())


def written(lines: list[Line]) -> str:
    """A log of these events, a second apart."""
    return "".join(f":::MLLOG {json.dumps({'time_ms': 1000 * at} | each)}\n" for at, each in enumerate(lines))


def official(text: str, benchmark: str) -> float | str | None:
    """The minutes that MLCommons' scorer finds; None where it rejects the log, the error that stops the scorer."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder) / "result_0.txt"
        path.write_text(text)
        try:
            loglines = mlcommons._read_result_file(str(path), "training", RULESETS.get(benchmark, "4.1.0"))
            start, stop = mlcommons._query_run_start_stop(loglines)
        except ValueError:
            return None
        except Exception as error:  # noqa: BLE001 -- whatever it is, it takes the whole folder down
            mlp_compliance.enqueued_configs.clear()  # else the next log meets the rules that are left
            return repr(error)
        return float(stop - start) / 60_000


def agrees(text: str, benchmark: str) -> None:
    """Ours counts what theirs counts, with the same minutes; what stops theirs costs us the one run."""
    run, theirs = check_run_log(mllog.parse_log_lines(text.splitlines())), official(text, benchmark)
    if isinstance(theirs, float):
        assert (run.rejection_reason, run.minutes) == ("", pytest.approx(theirs, abs=1e-9)), text
    else:
        assert run.rejection_reason, (theirs, text)


@pytest.mark.parametrize("benchmark", WORKLOAD_RULES)
def test_a_log_with_all_that_is_asked_counts_in_both(benchmark: str) -> None:
    text = written(sound(benchmark))

    agrees(text, benchmark)
    assert check_run_log(mllog.parse_log_lines(text.splitlines())).rejection_reason == ""


def dropped(lines: list[Line], at: int, _value: Any) -> list[Line]:
    """Without this line."""
    return [*lines[:at], *lines[at + 1 :]]


def changed(lines: list[Line], at: int, value: Any) -> list[Line]:
    """With another value."""
    return [*lines[:at], lines[at] | {"value": value}, *lines[at + 1 :]]


def repeated(lines: list[Line], at: int, _value: Any) -> list[Line]:
    """With this line twice."""
    return [*lines[: at + 1], *lines[at:]]


def contradicted(lines: list[Line], at: int, value: Any) -> list[Line]:
    """With this line again, saying something else."""
    return [*lines[: at + 1], lines[at] | {"value": value}, *lines[at + 1 :]]


def late(lines: list[Line], at: int, value: Any) -> list[Line]:
    """With this line at the end of the log."""
    return [*dropped(lines, at, value), lines[at]]


def early(lines: list[Line], at: int, value: Any) -> list[Line]:
    """With this line at the start of the log."""
    return [lines[at], *dropped(lines, at, value)]


def unplaced(lines: list[Line], at: int, value: Any) -> list[Line]:
    """With one name less in the metadata, or with only the last, or without any."""
    told = list(lines[at]["metadata"].items())
    kept = dict(told[1:] if value else told[-1:] if value is None else [])
    return [*lines[:at], lines[at] | {"metadata": kept}, *lines[at + 1 :]]


EDITS = (dropped, changed, repeated, contradicted, late, early, unplaced)


@settings(max_examples=80, deadline=None)
@given(
    benchmark=st.sampled_from(sorted(WORKLOAD_RULES)),
    place=st.floats(0, 1, exclude_max=True),
    edit=st.sampled_from(EDITS),
    value=st.sampled_from(ODD),
)
def test_an_edited_log_counts_where_mlcommons_lets_it_count(
    benchmark: str, place: float, edit: Callable[[list[Line], int, Any], list[Line]], value: Any
) -> None:
    """Each rule is met by some edit: missing, doubled, contradicting, too late, too early, out of range, unplaced."""
    lines = sound(benchmark)
    at = int(place * len(lines))
    if lines[at]["key"] in ("submission_benchmark", "submission_division") and edit is changed:
        return  # the rules of another workload or division, or of none

    agrees(written(edit(lines, at, value)), benchmark)


@pytest.mark.parametrize(
    ("at", "minutes"), [("init_start", 30), ("init_start", 29), ("init_stop", 30)], ids=["30", "29", "late stop"]
)
def test_half_an_hour_is_too_long_to_start(at: str, minutes: int) -> None:
    lines = sound("bert")
    place = next(index for index, each in enumerate(lines) if each["key"] == "init_stop")
    since = 1000 * (place - 1) + 60_000 * minutes - (at == "init_stop")
    lines[place:] = [each | {"time_ms": since + index} for index, each in enumerate(lines[place:])]

    agrees(written(lines), "bert")


def test_an_abort_above_the_target_counts_and_a_success_below_does_not() -> None:
    """The target decides; the checker only asks that a status is there."""
    lines = sound("ssd")
    aborted = written([*lines[:-1], line("run_stop", status="aborted")])
    below = written([each | {"value": 0.1} if each["key"] == "eval_accuracy" else each for each in lines])

    agrees(aborted, "ssd")
    agrees(below, "ssd")
    assert check_run_log(mllog.parse_log_lines(aborted.splitlines())).rejection_reason == ""
    assert (
        check_run_log(mllog.parse_log_lines(below.splitlines())).rejection_reason
        == "has no eval_accuracy from 0.34 to below 1"
    )


def test_a_log_of_the_open_division_does_not_count_here() -> None:
    """One of our three differences: by the open division's rules, which the checker then takes, it would."""
    lines = [each | {"value": "open"} if each["key"] == "submission_division" else each for each in sound("ssd")]

    assert isinstance(official(written(lines), "ssd"), float)
    assert check_run_log(mllog.parse_log_lines(written(lines).splitlines())).rejection_reason == (
        "has submission_division 'open', allowed is closed"
    )


def test_metadata_that_is_no_object_is_damage_here() -> None:
    """The second difference: the checker looks at metadata only where a rule asks for it."""
    text = written([line("tracked_stats") | {"metadata": ["step"]}, *sound("ssd")])

    assert isinstance(official(text, "ssd"), float)
    assert check_run_log(mllog.parse_log_lines(text.splitlines())).rejection_reason == "has 1 damaged line"


def test_a_run_that_ends_before_it_starts_does_not_count_here() -> None:
    """The third: the checker asks for the order of lines, not of times, and would score it below zero."""
    text = written([*sound("ssd")[:-1], line("run_stop", status="success") | {"time_ms": 1}])

    theirs = official(text, "ssd")
    assert isinstance(theirs, float)
    assert theirs < 0
    assert check_run_log(mllog.parse_log_lines(text.splitlines())).rejection_reason == "ends before it starts"


@pytest.mark.parametrize("failed", [0, 4])
def test_u_net_has_the_score_that_mlcommons_gives(tmp_path: Path, failed: int) -> None:
    """Four of its forty runs are dropped at either end; the failed ones here were the fastest."""
    folder = tmp_path / "Somebody" / "results" / "box" / "unet3d"
    folder.mkdir(parents=True)
    for index in range(40):
        place = index * 7 % 40
        end = line("run_stop", status="success") | {"time_ms": 60_000 * 5 + 222_000 * place}
        events = [*sound("unet3d")[:-1], end]
        (folder / f"result_{index}.txt").write_text(written(events[: -1 if place < failed else None]))
    description = {"number_of_nodes": 1, "accelerators_per_node": 8, "accelerator_model_name": "H100-SXM"}
    (tmp_path / "Somebody" / "systems").mkdir()
    (tmp_path / "Somebody" / "systems" / "box.json").write_text(json.dumps(description))

    (result,) = read_round_folder(tmp_path).rows

    minutes, _, _ = mlcommons._compute_strong_score_standalone(
        "unet3d", "box", has_power=False, benchmark_folder=str(folder), usage="training", ruleset=RULESETS["unet3d"]
    )
    assert result.minutes == pytest.approx(minutes, abs=1e-9)
    assert (result.runs, result.runs_not_counted) == (40, failed)


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("value", [None, "high"])
def test_an_accuracy_that_is_no_number_costs_its_run(at: int, value: Any) -> None:
    """Even beside one that reached the target, unless nobody had to look at it."""
    lines = sound("stable_diffusion")
    place = [index for index, each in enumerate(lines) if each["key"] == "eval_accuracy"][at]

    agrees(written(changed(lines, place, value)), "stable_diffusion")


def test_a_line_without_a_value_stops_their_scorer_and_nothing_here() -> None:
    """No rule asks for this line; theirs ends with an error, and with it the score of the whole folder."""
    bare = {"key": "tracked_stats", "metadata": {}}
    text = written([bare, *sound("ssd")])

    assert isinstance(official(text, "ssd"), str)
    assert check_run_log(mllog.parse_log_lines(text.splitlines())).rejection_reason == ""
