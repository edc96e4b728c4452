"""Parsing of log lines: our own, those of MLCommons, and broken ones."""

from pathlib import Path

import pytest

from analysis.reading.logs import mllog

LINE = '{"namespace": "", "time_ms": 1500.5, "event_type": "POINT_IN_TIME", "key": "seed", "value": 7, "metadata": {}}'

# Two lines of MLCommons training_results_v4.1, NVIDIA, Llama 2 70B LoRA (Apache-2.0).
MLCOMMONS_LINES = """\
:::MLLOG {"namespace": "", "time_ms": 1726854659260, "event_type": "POINT_IN_TIME", "key": "eval_accuracy", "value": 0.9219510555267334, "metadata": {"file": "/workspace/ft-llm/custom_callbacks.py", "lineno": 307, "samples_count": 3456}}
:::MLLOG {"namespace": "", "time_ms": 1726854659260, "event_type": "INTERVAL_END", "key": "run_stop", "value": 0.9219510555267334, "metadata": {"file": "/workspace/ft-llm/custom_callbacks.py", "lineno": 321, "samples_count": 3456, "status": "success"}}
"""  # noqa: E501


def test_text_before_the_token_is_dropped() -> None:
    log = mllog.parse_log_lines([f"worker-0-1  | :::MLLOG {LINE}\n"])

    assert log.events[0].key == "seed"
    assert log.events[0].time_ms == 1500.5


def test_an_interrupted_line_gives_the_event_that_follows_it() -> None:
    """Two processes that share a pipe can cut each other off; MLCommons' parser takes the last token as well."""
    log = mllog.parse_log_lines([f':::MLLOG {{"namespace": "", "ti:::MLLOG {LINE}'])

    assert log.events[0].value == 7


@pytest.mark.parametrize("broken", ["{", "[]", "7", '{"key": "seed"}', '{"key": "seed", "time_ms": "soon"}'])
def test_broken_lines_are_counted_and_skipped(broken: str) -> None:
    log = mllog.parse_log_lines([f":::MLLOG {broken}", f":::MLLOG {LINE}"])

    assert (len(log.events), log.unusable_line_count) == (1, 1)


@pytest.mark.parametrize(
    ("original", "replacement", "problem"),
    [
        ("1500.5", "Infinity", "time_ms should be a finite number, not inf"),
        ("1500.5", "NaN", "time_ms should be a finite number, not nan"),
        ('"metadata": {}', '"metadata": ["step"]', "metadata should be an object, not ['step']"),
        ('"metadata": {}', '"metadata": "step"', "metadata should be an object, not 'step'"),
        ('"metadata": {}', '"metadata": []', "metadata should be an object, not []"),
    ],
)
def test_events_with_unusable_fields_are_damage(original: str, replacement: str, problem: str) -> None:
    """Readers subtract times and look up names in metadata."""
    (broken,) = mllog.parse_log_lines([f":::MLLOG {LINE.replace(original, replacement)}"]).unusable_lines

    assert broken.problem == f"not an event: {problem}"


def test_lines_without_the_token_do_not_count_as_broken() -> None:
    assert mllog.parse_log_lines(["Traceback (most recent call last):"]).unusable_line_count == 0


def test_bytes_that_are_not_utf8_are_tolerated(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    path.write_bytes(b"\xff\xfe noise\n:::MLLOG " + LINE.encode() + b"\n:::MLLOG \xff\n")

    log = mllog.read_log(path)

    assert (len(log.events), log.unusable_line_count) == (1, 1)


def test_a_missing_file_is_an_empty_log(tmp_path: Path) -> None:
    assert mllog.read_log(tmp_path / "none.log").events == ()


def test_lines_of_mlcommons_are_parsed_like_our_own() -> None:
    log = mllog.parse_log_lines(MLCOMMONS_LINES.splitlines())

    assert log.unusable_line_count == 0
    assert log.last_event("run_stop").metadata["status"] == "success"
    assert log.events_with_key("eval_accuracy")[0].metadata["samples_count"] == 3456


def test_a_line_survives_reading_and_writing() -> None:
    log = mllog.parse_log_lines([f":::MLLOG {LINE}"])

    assert mllog.parse_log_lines([event.format_line() for event in log.events]) == log
    assert len(log.events) == 1
