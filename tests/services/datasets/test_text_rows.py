"""Samples of a text: each objective cuts the stored tokens into the samples and targets that its models need."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_files import declared_dataset, scenario_of

from compose.scenario_files.load import load_scenario
from services.learning.datasets import LearningTask, TrainTestData
from services.schema.arrays import HostArray

TEXT = "sea shells she sells by the sea shore.\nshe sells shells? " * 4
LENGTH = 7
TRAIN_END = len(TEXT) - round(0.2 * len(TEXT))
PARTS = {"train": TEXT[:TRAIN_END], "test": TEXT[TRAIN_END:]}
MODELS = {"next_token": "gpt_mini", "masked_token": "bert_mini", "classification": "linear"}

token_objectives = pytest.mark.parametrize("objective", ["next_token", "masked_token"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with the text; prepared data go to a cache of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path


def load_text(objective: str | None, **more_keys: Any) -> TrainTestData:
    """Return the samples of the text with an objective; with None, the scenario declares none."""
    keys = {"kind": "text", "path": "text.txt", "context": LENGTH} | more_keys
    if objective:
        keys["objective"] = objective
    model = {"kind": MODELS[objective or "classification"]}
    return declared_dataset(load_scenario(scenario_of(keys, workload={"model": model, "batch": 2}))).load("float32")


def decode(tokens: HostArray) -> list[str]:
    """Return the text of each row of tokens, whose numbers follow the frequency of the characters."""
    by_frequency = sorted(set(TEXT), key=lambda character: (-TEXT.count(character), character))
    return ["".join(by_frequency[token - 1] for token in row) for row in tokens]


def cut(text: str) -> list[str]:
    """Return all whole sequences of a text."""
    return [text[start : start + LENGTH] for start in range(0, len(text) - LENGTH + 1, LENGTH)]


@pytest.mark.parametrize("part", ["train", "test"])
def test_targets_of_the_next_token_are_one_position_later(part: str) -> None:
    """Every position of a sequence is a target, so that sequences need not overlap."""
    data = load_text("next_token")
    x, y = (getattr(data, f"{part}_{name}")[:] for name in "xy")

    assert decode(x) == cut(PARTS[part][:-1])
    assert decode(y) == cut(PARTS[part][1:])
    assert (x[:, 1:] == y[:, :-1]).all()


@pytest.mark.parametrize("part", ["train", "test"])
def test_targets_of_masked_tokens_are_the_sequence_itself(part: str) -> None:
    """The model masks tokens in each step, and must predict those of the text."""
    data = load_text("masked_token")

    for rows in (getattr(data, f"{part}_x"), getattr(data, f"{part}_y")):
        assert decode(rows[:]) == cut(PARTS[part])


@token_objectives
def test_models_of_tokens_get_sequences_of_whole_numbers(objective: str) -> None:
    """The vocabulary has one token more than the text, for masks: it never occurs in a sample."""
    data = load_text(objective)

    assert data.task == LearningTask(inputs=(LENGTH,), outputs=1 + len(set(TEXT)), loss=objective)
    for rows in (data.train_x, data.train_y, data.test_x, data.test_y):
        for selection in (slice(1, 3), np.array([2, 0, 2]), np.empty(0, np.int64), slice(None)):
            selected = rows[selection]
            assert type(selected) is np.ndarray
            assert selected.dtype == rows.dtype == np.int64
            assert selected.shape[1:] == rows.shape[1:] == data.task.inputs
        assert rows[np.array([2, 0])].tolist() == rows[:][[2, 0]].tolist()
        assert rows.shape[0] == len(rows) == len(rows[:])
        assert 1 <= rows[:].min() <= rows[:].max() < data.task.outputs


@token_objectives
def test_a_test_text_gives_the_test_sequences(folder: Path, objective: str) -> None:
    """The whole text of `path` is then training data, and rare tokens of both texts share one number."""
    (folder / "test.txt").write_text("she saw seven shells")
    data = load_text(objective, test_path="test.txt", vocabulary=5)
    rare, by_frequency = 5, "s elh"  # the four most frequent characters of TEXT and one that is rare

    assert len(data.train_x) == (len(TEXT) - (objective == "next_token")) // LENGTH
    assert data.task.outputs == 6
    expected = [min(by_frequency.find(character) % 6 + 1, rare) for character in "she saw seven "]
    assert data.test_x[:].reshape(-1).tolist() == expected


def test_the_longest_masked_sequence_is_the_whole_part(folder: Path) -> None:
    """The next token needs one token more than a masked one."""
    (folder / "test.txt").write_text("sea she")

    assert load_text("masked_token", test_path="test.txt").test_x.shape == (1, LENGTH)


def test_a_text_without_an_objective_has_classes_as_before() -> None:
    """Scenarios that do not declare an objective keep their samples, bit by bit."""
    default, declared = load_text(None), load_text("classification")
    vocabulary = 1 + len(set(TEXT))

    assert default.task == declared.task
    assert default.task == LearningTask(inputs=(LENGTH, vocabulary), outputs=vocabulary, loss="cross_entropy")
    assert len(default.train_x) == TRAIN_END - LENGTH
    assert decode(default.train_x[:].argmax(axis=-1)) == [
        PARTS["train"][k : k + LENGTH] for k in range(TRAIN_END - LENGTH)
    ]
    assert decode(default.train_y[:][:, None]) == [*PARTS["train"][LENGTH:]]
    for name in ("train_x", "train_y", "test_x", "test_y"):
        assert getattr(default, name)[:].tobytes() == getattr(declared, name)[:].tobytes()
