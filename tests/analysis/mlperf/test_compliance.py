"""Compliance of logs, compared with MLCommons' own checker: logs of every workload, and edited versions."""

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
from mlperf_logging.benchmark_meta import get_allowed_benchmarks
from mlperf_logging.compliance_checker import mlp_compliance
from mlperf_logging.result_summarizer import result_summarizer as mlcommons

from analysis.mlperf.reading.folders import read_round_folder
from analysis.mlperf.reading.scoring import read_mlperf_run
from analysis.mlperf.rule_sets.rounds import RULE_SETS, detect_rule_set, parse_round
from analysis.mlperf.rule_sets.values import LoggedValueRule
from analysis.reading.logs import mllog
from services.schema.errors import UserError

Line = dict[str, Any]

Workload = tuple[str, str]  # round and benchmark
WORKLOADS = [(name, benchmark) for name, rule_set in RULE_SETS.items() for benchmark in rule_set.workloads]
VALUES = [
    *(1, 0, 16, 42, 168, 1024, 2048, 2703, 5760, 8192, 262144, 1_200_000, 89137319),
    *(0.9, 0.95, 0.999, 1e-8, 1e-9, 1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.85, 1.15, 2, 10, 20, 300, 2e-5, True, [1, 2]),
    *("closed", "adam", "adamw", "adagrad", "lamb", "sgd", "cosine with linear warmup", "onprem"),
]
DEPENDENT_VALUES = {  # values that agree with a global batch of 1
    ("maskrcnn", "opt_base_learning_rate"): 0.02,
    ("llama31_405b", "opt_base_learning_rate"): 8e-5 / 1152,
    ("llama31_405b", "opt_learning_rate_decay_steps"): 1_192_000 * 1152,
    ("llama31_8b", "opt_learning_rate_decay_steps"): 1_200_000 - 1,
}
PACKAGE_EPSILON_KEYS = {
    ("2.0", "bert"): "opt_epsilon",
    ("2.1", "bert"): "opt_lamb_epsilon",
    ("3.0", "bert"): "opt_lamb_epsilon",
}
ACCURACIES = [0.73, 0.81, 0.91, 2.65, 0.05, 0.5, 3.0, {"BBOX": 0.38, "SEGM": 0.34}]
UNUSUAL_VALUES = [None, "", "sgd", -1, 0, 1, 0.1, 0.5, 0.72, 0.925, 2.7, 1e9, float("nan"), float("inf"), [], {}, True]
EPOCH_METADATA = {"epoch_count": 1, "first_epoch_num": 1, "epoch_num": 1, "samples_count": 8}


def first_accepted(allowed: LoggedValueRule, candidates: list[Any]) -> Any:
    """Return the first candidate that the rule accepts."""
    return next(value for value in candidates if allowed.accepts(value))


def line(key: str, value: Any = None, **metadata: Any) -> Line:
    """One event, a second after the one before (see `written`)."""
    return {"namespace": "", "event_type": "POINT_IN_TIME", "key": key, "value": value, "metadata": metadata}


def compliant_log(workload: Workload) -> list[Line]:
    """The shortest log of a workload that our rules accept."""
    round_name, benchmark = workload
    rules = RULE_SETS[round_name].workloads[benchmark]
    placed = {"init_start", "init_stop", "run_start", "run_stop", "eval_accuracy", "submission_benchmark"}
    required = [
        line(key, DEPENDENT_VALUES.get((benchmark, key), first_accepted(own.value_rule, VALUES)))
        for key, own in rules.key_rules("sgd").items()
        if own.occurrence != "any" and key not in (*placed, "weights_initialization")
    ]
    epsilons = [line(PACKAGE_EPSILON_KEYS[workload], 1e-6)] if workload in PACKAGE_EPSILON_KEYS else []
    tensors = [line("weights_initialization", tensor=name) for name in rules.initialised_tensors]
    return [
        *(
            line("submission_benchmark", benchmark),
            *sorted(required, key=lambda each: each["key"] != "global_batch_size"),
        ),
        *(*epsilons, *tensors, line("init_start"), line("init_stop"), line("run_start")),
        *(
            line("block_start", **EPOCH_METADATA),
            line("epoch_start", **EPOCH_METADATA),
            line("eval_start", **EPOCH_METADATA),
        ),
        *evaluations(workload),
        *(
            line("eval_stop", **EPOCH_METADATA),
            line("epoch_stop", **EPOCH_METADATA),
            line("block_stop", **EPOCH_METADATA),
        ),
        line("run_stop", status="success"),
    ]


def evaluations(workload: Workload) -> Iterator[Line]:
    """One evaluation that reaches the target; for images, two evaluations with two scores each."""
    round_name, benchmark = workload
    rules = RULE_SETS[round_name].workloads[benchmark]
    if benchmark != "stable_diffusion":
        yield line("eval_accuracy", first_accepted(rules.target, ACCURACIES), **EPOCH_METADATA)
        return
    position = "step_num" if round_name == "3.1" else "samples_count"
    for samples, scores in ((8, {"FID": 95.0, "CLIP": 0.1}), (16, {"FID": 80.0, "CLIP": 0.2})):
        yield from (line("eval_accuracy", score, metric=name, **{position: samples}) for name, score in scores.items())


def log_text(lines: list[Line]) -> str:
    """A log of these events, a second apart."""
    return "".join(f":::MLLOG {json.dumps({'time_ms': 1000 * at} | event)}\n" for at, event in enumerate(lines))


def mlcommons_minutes(text: str, round_name: str) -> float | str | None:
    """Return the minutes by MLCommons' scorer, None if it rejects the log, or the error that stops the scorer."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder) / "result_0.txt"
        path.write_text(text)
        try:
            loglines = mlcommons._read_result_file(str(path), "training", f"{round_name}.0")
            start, stop = mlcommons._query_run_start_stop(loglines)
        except ValueError:
            return None
        except Exception as error:  # noqa: BLE001 -- any error ends the scoring of the folder
            mlp_compliance.enqueued_configs.clear()  # else these rules apply to the next log
            return repr(error)
        return float(stop - start) / 60_000


def assert_agrees_with_mlcommons(text: str, round_name: str = "4.1") -> None:
    """Our check counts the same logs with the same minutes; a log that stops their scorer is rejected."""
    run = read_mlperf_run(mllog.parse_log_lines(text.splitlines()), RULE_SETS[round_name])
    their_minutes = mlcommons_minutes(text, round_name)
    if isinstance(their_minutes, float):
        assert (run.rejection_reason, run.minutes) == ("", pytest.approx(their_minutes, abs=1e-9)), text
    else:
        assert run.rejection_reason, (their_minutes, text)


@pytest.mark.parametrize("workload", WORKLOADS, ids=" ".join)
def test_a_compliant_log_is_accepted_by_our_check_and_by_mlcommons(workload: Workload) -> None:
    """Every workload of rounds 2.0 to 5.1, by the rules of its round."""
    text = log_text(compliant_log(workload))
    rules = RULE_SETS[workload[0]]

    assert_agrees_with_mlcommons(text, workload[0])
    assert read_mlperf_run(mllog.parse_log_lines(text.splitlines()), rules).rejection_reason == ""


@pytest.mark.parametrize("round_name", RULE_SETS)
def test_every_round_has_the_workloads_that_mlcommons_accepts(round_name: str) -> None:
    """A workload that the checker of a round accepts and Ensayo does not is lost from every report."""
    assert set(RULE_SETS[round_name].workloads) == set(get_allowed_benchmarks("training", round_name))


def without_line(lines: list[Line], at: int, _value: Any) -> list[Line]:
    """Without this line."""
    return [*lines[:at], *lines[at + 1 :]]


def with_changed_value(lines: list[Line], at: int, value: Any) -> list[Line]:
    """With another value."""
    return [*lines[:at], lines[at] | {"value": value}, *lines[at + 1 :]]


def with_repeated_line(lines: list[Line], at: int, _value: Any) -> list[Line]:
    """With this line twice."""
    return [*lines[: at + 1], *lines[at:]]


def with_contradicting_line(lines: list[Line], at: int, value: Any) -> list[Line]:
    """With this line again and another value."""
    return [*lines[: at + 1], lines[at] | {"value": value}, *lines[at + 1 :]]


def with_line_at_end(lines: list[Line], at: int, value: Any) -> list[Line]:
    """With this line at the end of the log."""
    return [*without_line(lines, at, value), lines[at]]


def with_line_at_start(lines: list[Line], at: int, value: Any) -> list[Line]:
    """With this line at the start of the log."""
    return [lines[at], *without_line(lines, at, value)]


def with_less_metadata(lines: list[Line], at: int, value: Any) -> list[Line]:
    """With the first metadata entry removed, with only the last one, or with none."""
    entries = list(lines[at]["metadata"].items())
    remaining = dict(entries[1:] if value else entries[-1:] if value is None else [])
    return [*lines[:at], lines[at] | {"metadata": remaining}, *lines[at + 1 :]]


EDITS = (
    without_line,
    with_changed_value,
    with_repeated_line,
    with_contradicting_line,
    with_line_at_end,
    with_line_at_start,
    with_less_metadata,
)


@settings(max_examples=120, deadline=None)
@given(
    workload=st.sampled_from(WORKLOADS),
    place=st.floats(0, 1, exclude_max=True),
    edit=st.sampled_from(EDITS),
    value=st.sampled_from(UNUSUAL_VALUES),
)
def test_an_edited_log_counts_exactly_if_mlcommons_accepts_it(
    workload: Workload, place: float, edit: Callable[[list[Line], int, Any], list[Line]], value: Any
) -> None:
    """Each rule is met by some edit: missing, doubled, contradicting, too late or early, out of range, no metadata."""
    lines = compliant_log(workload)
    at = int(place * len(lines))
    if lines[at]["key"] in ("submission_benchmark", "submission_division") and edit is with_changed_value:
        return  # the rules of another workload or division, or of none
    if lines[at]["key"] == PACKAGE_EPSILON_KEYS.get(workload):
        return  # the package knows only one of the keys that published logs have

    assert_agrees_with_mlcommons(log_text(edit(lines, at, value)), workload[0])


@pytest.mark.parametrize(
    ("at", "minutes"), [("init_start", 30), ("init_start", 29), ("init_stop", 30)], ids=["30", "29", "late stop"]
)
def test_an_initialisation_of_half_an_hour_is_too_long(at: str, minutes: int) -> None:
    lines = compliant_log(("4.1", "bert"))
    place = next(index for index, event in enumerate(lines) if event["key"] == "init_stop")
    since = 1000 * (place - 1) + 60_000 * minutes - (at == "init_stop")
    lines[place:] = [event | {"time_ms": since + index} for index, event in enumerate(lines[place:])]

    assert_agrees_with_mlcommons(log_text(lines))


def test_the_accuracy_decides_whether_a_run_counts_and_not_its_status() -> None:
    """The checker only requires that there is a status."""
    lines = compliant_log(("4.1", "ssd"))
    aborted = log_text([*lines[:-1], line("run_stop", status="aborted")])
    below = log_text([event | {"value": 0.1} if event["key"] == "eval_accuracy" else event for event in lines])

    assert_agrees_with_mlcommons(aborted)
    assert_agrees_with_mlcommons(below)
    assert read_mlperf_run(mllog.parse_log_lines(aborted.splitlines())).rejection_reason == ""
    assert (
        read_mlperf_run(mllog.parse_log_lines(below.splitlines())).rejection_reason
        == "has no eval_accuracy from 0.34 to below 1"
    )


def test_a_log_of_the_open_division_is_rejected_only_by_our_check() -> None:
    """First of three differences: the checker applies the rules of the open division and accepts the log."""
    lines = [
        event | {"value": "open"} if event["key"] == "submission_division" else event
        for event in compliant_log(("4.1", "ssd"))
    ]

    assert isinstance(mlcommons_minutes(log_text(lines), "4.1"), float)
    assert read_mlperf_run(mllog.parse_log_lines(log_text(lines).splitlines())).rejection_reason == (
        "has submission_division 'open', allowed is closed"
    )


def test_metadata_that_is_not_an_object_is_rejected_only_by_our_check() -> None:
    """Second difference: the checker reads metadata only if a rule requires it."""
    text = log_text([line("tracked_stats") | {"metadata": ["step"]}, *compliant_log(("4.1", "ssd"))])

    assert isinstance(mlcommons_minutes(text, "4.1"), float)
    assert read_mlperf_run(mllog.parse_log_lines(text.splitlines())).rejection_reason == "has 1 damaged line"


def test_a_run_that_ends_before_it_starts_is_rejected_only_by_our_check() -> None:
    """Third difference: the checker compares the order of lines, not of times, and gives a negative score."""
    text = log_text([*compliant_log(("4.1", "ssd"))[:-1], line("run_stop", status="success") | {"time_ms": 1}])

    their_minutes = mlcommons_minutes(text, "4.1")
    assert isinstance(their_minutes, float)
    assert their_minutes < 0
    assert read_mlperf_run(mllog.parse_log_lines(text.splitlines())).rejection_reason == "ends before it starts"


@pytest.mark.parametrize("failed", [0, 4])
def test_the_score_of_u_net_equals_that_of_mlcommons(tmp_path: Path, failed: int) -> None:
    """Four of its forty runs are dropped at either end; the failed ones here were the fastest."""
    folder = tmp_path / "Acme" / "results" / "box" / "unet3d"
    folder.mkdir(parents=True)
    for index in range(40):
        place = index * 7 % 40
        end = line("run_stop", status="success") | {"time_ms": 60_000 * 5 + 222_000 * place}
        events = [*compliant_log(("4.0", "unet3d"))[:-1], end]
        (folder / f"result_{index}.txt").write_text(log_text(events[: -1 if place < failed else None]))
    description = {"number_of_nodes": 1, "accelerators_per_node": 8, "accelerator_model_name": "H100-SXM"}
    (tmp_path / "Acme" / "systems").mkdir()
    (tmp_path / "Acme" / "systems" / "box.json").write_text(json.dumps(description))

    (result,) = read_round_folder(tmp_path).rows

    minutes, _, _ = mlcommons._compute_strong_score_standalone(
        "unet3d", "box", has_power=False, benchmark_folder=str(folder), usage="training", ruleset="4.0.0"
    )
    assert result.minutes == pytest.approx(minutes, abs=1e-9)
    assert (result.runs, result.runs_not_counted) == (40, failed)


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("value", [None, "high"])
def test_an_accuracy_that_is_not_a_number_is_judged_as_by_mlcommons(at: int, value: Any) -> None:
    """The run is rejected even if another accuracy reached the target, unless no rule has to read the value."""
    lines = compliant_log(("4.1", "stable_diffusion"))
    place = [index for index, event in enumerate(lines) if event["key"] == "eval_accuracy"][at]

    assert_agrees_with_mlcommons(log_text(with_changed_value(lines, place, value)))


def test_a_line_without_a_value_stops_only_the_scorer_of_mlcommons() -> None:
    """No rule requires this line; their scorer ends with an error, and the folder gets no score."""
    bare = {"key": "tracked_stats", "metadata": {}}
    text = log_text([bare, *compliant_log(("4.1", "ssd"))])

    assert isinstance(mlcommons_minutes(text, "4.1"), str)
    assert read_mlperf_run(mllog.parse_log_lines(text.splitlines())).rejection_reason == ""


@pytest.mark.parametrize(
    ("folder", "benchmarks", "round_name", "reason"),
    [
        ("training_results_v3.1", ["ssd"], "3.1", "the folder name training_results_v3.1"),
        ("training_results_v2.1/Acme", ["ssd"], "2.1", "the folder name training_results_v2.1"),
        ("v5.0", ["bert"], "5.0", "the folder name v5.0"),
        ("submission_training_4.0", ["bert"], "4.0", "the folder name submission_training_4.0"),
        ("mine", ["bert", "ssd"], "4.1", "the workloads bert, ssd"),
        ("mine", ["bert", "dlrm"], "2.1", "the workloads bert, dlrm"),
        ("mine", ["gpt3", "rnnt"], "3.1", "the workloads gpt3, rnnt"),
        ("results-2026.11", ["llama31_8b"], "5.1", "the workloads llama31_8b"),
    ],
)
def test_the_rules_are_detected_from_the_folder_names_or_the_workloads(
    tmp_path: Path, folder: str, benchmarks: list[str], round_name: str, reason: str
) -> None:
    """Names of folders are certain; workloads only narrow the rounds down."""
    rule_set = detect_rule_set(tmp_path / folder, benchmarks)

    assert {rules.round_name for rules in rule_set.workloads.values()} == {round_name}
    assert rule_set.description == f"rules of round {round_name}, detected from {reason}"


def test_workloads_of_no_common_round_are_each_checked_by_the_nearest_round(tmp_path: Path) -> None:
    """A user's own folder may collect results of many rounds."""
    rule_set = detect_rule_set(tmp_path, ["dlrm", "rgat", "ssd"])

    assert [rule_set.name_rules_of(name) for name in ("dlrm", "rgat", "ssd")] == ["2.1", "5.0", "4.1"]


def test_a_round_without_rules_is_not_checked_by_those_of_another_round(tmp_path: Path) -> None:
    rule_set = detect_rule_set(tmp_path / "training_results_v1.1", ["ssd"])

    assert rule_set.workloads == {}
    assert "no rules known for round 1.1 (from folder name training_results_v1.1)" in rule_set.description
    assert rule_set.description.endswith("choose rules with --rules ROUND")


def test_a_workload_of_another_round_is_rejected_with_the_rounds_that_have_it() -> None:
    log = mllog.parse_log_lines(log_text(compliant_log(("4.0", "resnet"))).splitlines())

    assert read_mlperf_run(log, RULE_SETS["4.1"]).rejection_reason == (
        "has submission_benchmark 'resnet', which only these rounds have: 2.0, 2.1, 3.0, 3.1, 4.0"
    )


@pytest.mark.parametrize(("text", "name"), [("2.1", "2.1"), ("v3.1", "3.1"), ("4.0.0", "4.0"), ("V5", "5.0")])
def test_a_round_may_be_written_in_several_ways(text: str, name: str) -> None:
    assert parse_round(text) == name


@pytest.mark.parametrize("text", ["9.9", "", "latest"])
def test_an_unknown_round_is_rejected_with_the_known_ones(text: str) -> None:
    with pytest.raises(UserError, match=rf"--rules {text}: unknown round; allowed are 2.0, 2.1, .*, 5.1"):
        parse_round(text)


def test_a_log_without_one_initialised_tensor_names_the_tensor() -> None:
    """Rounds 2.0 and 2.1 require a line for each tensor."""
    lines = [each for each in compliant_log(("2.1", "dlrm")) if each["metadata"].get("tensor") != "embeddings"]
    log = mllog.parse_log_lines(log_text(lines).splitlines())

    assert read_mlperf_run(log, RULE_SETS["2.1"]).rejection_reason == ("has weights_initialization without embeddings")


@pytest.mark.parametrize("round_name", ["2.0", "2.1", "3.0"])
@pytest.mark.parametrize("epsilon_key", ["opt_epsilon", "opt_lamb_epsilon"])
def test_bert_of_early_rounds_may_log_its_epsilon_under_both_keys(round_name: str, epsilon_key: str) -> None:
    """39 of 42 results of round 2.1 have the key that today's package knows only for round 2.0."""
    known_key = PACKAGE_EPSILON_KEYS[round_name, "bert"]
    text = log_text(compliant_log((round_name, "bert")))
    log = mllog.parse_log_lines(text.replace(known_key, epsilon_key).splitlines())
    bare_log = mllog.parse_log_lines(text.replace(known_key, "epsilon").splitlines())

    assert read_mlperf_run(log, RULE_SETS[round_name]).rejection_reason == ""
    assert read_mlperf_run(bare_log, RULE_SETS[round_name]).rejection_reason == (
        "has neither opt_epsilon nor opt_lamb_epsilon"
    )
