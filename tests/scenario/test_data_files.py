"""Errors in data files: each is reported before anything starts, with file, position, and what is allowed."""

import gzip
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from data_files import SMALL_FILES, declared_dataset, scenario_of, write_cifar10, write_idx, write_images
from PIL import Image

from compose.data_files import optional_packages
from compose.scenario_files.load import load_scenario
from compose.scenario_files.problems import ScenarioError
from services.schema.errors import HostError

Write = Callable[[Path], dict[str, Any]]  # writes files to a folder, and returns the keys of the dataset

PIXELS = np.arange(6 * 4 * 4, dtype=np.uint8).reshape(6, 4, 4)
LABELS = np.array([0, 1, 0, 1, 0, 1], np.uint8)
CSV = "rooms,area,price\n" + "".join(f"{n},{n * n},{n + 1}\n" for n in range(1, 11))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, where scenario and data lie; prepared data go to a cache of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "mine"
    (folder / "data").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def load(folder: Path, keys: dict[str, Any], **changes: Any) -> Any:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(scenario_of(keys, **changes)))
    return load_scenario(path)


def error_of(folder: Path, keys: dict[str, Any], **changes: Any) -> str:
    """Return the first problem that loading a scenario reports, without the position of the key."""
    with pytest.raises(ScenarioError) as raised:
        load(folder, keys, **changes)
    problem = raised.value.problems[0]
    assert problem.position.line > 0
    return f"{problem.key}: {problem.message}"


def idx(images: bytes | None = None, labels: bytes | None = None, **keys: Any) -> Write:
    def write(folder: Path) -> dict[str, Any]:
        write_idx(folder / "data/x", PIXELS)
        write_idx(folder / "data/y", LABELS)
        if images is not None:
            (folder / "data/x").write_bytes(images)
        if labels is not None:
            (folder / "data/y").write_bytes(labels)
        return {"kind": "idx", "path": "data/x", "labels": "data/y"} | keys

    return write


def idx_bytes(*shape: int, content: bytes = b"", code: int = 8) -> bytes:
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, code, len(shape), *shape) + content


def cifar(content: bytes, **keys: Any) -> Write:
    def write(folder: Path) -> dict[str, Any]:
        (folder / "data/x.bin").write_bytes(content)
        return {"kind": "cifar10", "path": "data/x.bin"} | keys

    return write


def cifar_bytes(*labels: int) -> bytes:
    return b"".join(bytes([label]) + bytes(3072) for label in labels)


def npz(**arrays: Any) -> Write:
    keys = {
        key: arrays.pop(key)
        for key in ("x", "y", "classes", "test_x", "test_y")
        if isinstance(arrays.get(key), str | int)
    }
    arrays = {"x": np.ones((6, 2)), "y": np.arange(6.0)} | arrays

    def write(folder: Path) -> dict[str, Any]:
        np.savez(folder / "data/x.npz", **arrays)
        return {"kind": "npz", "path": "data/x.npz"} | keys

    return write


def raw(kind: str, name: str, content: bytes, **keys: Any) -> Write:
    def write(folder: Path) -> dict[str, Any]:
        (folder / "data" / name).write_bytes(content)
        return {"kind": kind, "path": f"data/{name}"} | keys

    return write


def csv(text: str, **keys: Any) -> Write:
    return raw("csv", "x.csv", text.encode(), **({"target": "price"} | keys))


def parquet(table: pd.DataFrame, **keys: Any) -> Write:
    def write(folder: Path) -> dict[str, Any]:
        table.to_parquet(folder / "data/x.parquet")
        return {"kind": "parquet", "path": "data/x.parquet", "target": "price"} | keys

    return write


def text(content: str, test: str | None = None, **keys: Any) -> Write:
    def write(folder: Path) -> dict[str, Any]:
        (folder / "data/x.txt").write_text(content)
        if test is not None:
            (folder / "data/test.txt").write_text(test)
            return {"kind": "text", "path": "data/x.txt", "test_path": "data/test.txt"} | keys
        return {"kind": "text", "path": "data/x.txt"} | keys

    return write


def images(change: Callable[[Path], object], **keys: Any) -> Write:
    def write(folder: Path) -> dict[str, Any]:
        write_images(folder / "data/x", np.zeros((8, 4, 4, 3), np.uint8), np.arange(8) % 2)
        change(folder / "data/x")
        return {"kind": "images", "path": "data/x"} | keys

    return write


TABLE = pd.DataFrame({"rooms": [1.0, 2.0, 3.0, 4.0, 5.0], "price": [1.0, 2.0, 3.0, 4.0, 5.0]})
SHORT_IDX = (
    "data/x: the header declares the shape (6, 4, 4), which needs 96 bytes after byte 16, but the file has only 90"
)
NOT_IDX = "not an idx file: the first bytes are 50 4b 03 04; allowed are 00 00, a type (0x08, 0x09, 0x0b, 0x0c, 0x0d, "
GZIP_BOMB = gzip.compress(idx_bytes(4_000_000_000, 100, 100))
WIDE = np.zeros((1, 40000), np.uint8)

BROKEN: dict[str, tuple[Write, str]] = {
    "idx: another format": (idx(b"PK\x03\x04abc"), f"path: data/x: {NOT_IDX}"),
    "idx: empty": (idx(b""), "path: data/x: not an idx file: the first bytes are missing"),
    "idx: cut header": (idx(idx_bytes(6, 4, 4)[:9]), "path: data/x: the file ends inside its header, at byte 9"),
    "idx: cut": (
        idx(idx_bytes(6, 4, 4, content=bytes(90))),
        f"path: {SHORT_IDX}",
    ),
    "idx: cut gzip": (
        idx(gzip.compress(idx_bytes(6, 4, 4, content=bytes(96)))[:-9]),
        "path: data/x: the gzip data are damaged: Compressed file ended before the end-of-stream marker was reached",
    ),
    "idx: short gzip": (
        idx(gzip.compress(idx_bytes(6, 4, 4, content=bytes(90)))),
        f"path: {SHORT_IDX}",
    ),
    "idx: too long": (
        idx(idx_bytes(6, 4, 4, content=bytes(97))),
        "path: data/x: there are more bytes after byte 112, where the array of shape (6, 4, 4) ends",
    ),
    "idx: bomb": (
        idx(GZIP_BOMB),
        "path: data/x: the data have 40,000,000,000,000 bytes; at most 200,000,000,000 are allowed",
    ),
    "idx: no elements": (
        idx(idx_bytes(0, 4, 4)),
        "path: data/x: the header declares the shape (0, 4, 4), which has no elements",
    ),
    "idx: labels for samples": (
        idx(idx_bytes(6, content=bytes(6))),
        "path: data/x: the array has one axis; samples have 2 to 4 axes; labels have 1",
    ),
    "idx: samples for labels": (
        idx(labels=idx_bytes(2, 3, content=bytes(6))),
        "labels: data/y: labels are whole numbers in an array with one axis, not uint8 with 2 axes",
    ),
    "idx: fewer labels": (
        idx(labels=idx_bytes(5, content=bytes(5))),
        "labels: data/y: 5 labels, but data/x has 6 samples",
    ),
    "idx: label out of range": (
        idx(labels=idx_bytes(6, content=bytes([0, 1, 0, 7, 0, 1])), classes=2),
        "labels: data/y: sample 3: the label is 7; with 2 classes, labels are 0 to 1",
    ),
    "idx: not finite": (
        idx(idx_bytes(6, 1, content=struct.pack(">6f", 0, 1, float("nan"), 0, 0, 0), code=0x0D)),
        "path: data/x: sample 2 has a number that is not finite",
    ),
    "cifar10: size": (
        cifar(bytes(3073 * 2 + 1)),
        "path: data/x.bin: the file has 6,147 bytes, which is no multiple of 3,073, the size of a CIFAR-10 record",
    ),
    "cifar10: label": (
        cifar(cifar_bytes(0, 9, 10)),
        "path: data/x.bin: sample 2, byte 6,146: the label is 10; with 10 classes, labels are 0 to 9",
    ),
    "cifar10: folder": (cifar(b"", path="data"), "path: data: the folder has no files data_batch_*.bin"),
    "npz: another format": (
        raw("npz", "x", b"abc"),
        "path: data/x: not an npz file, or damaged: File is not a zip file",
    ),
    "npz: missing array": (npz(x="images"), "path: data/x.npz: there is no array 'images'; the file has x, y"),
    "npz: objects": (
        npz(x=np.array([[{}]] * 6, object)),
        "path: data/x.npz: array x has the type object; allowed are numbers and booleans",
    ),
    "npz: words": (npz(x=np.array([["a"]] * 6)), "path: data/x.npz: array x has the type str32; allowed are numbers"),
    "npz: one axis": (
        npz(x=np.ones(6)),
        "path: data/x.npz: array x has one axis; samples need two or more: (samples, ...)",
    ),
    "npz: counts": (npz(y=np.ones(5)), "path: data/x.npz: array y has 5 targets for 6 samples in x"),
    "npz: not finite": (
        npz(x=np.array([[1.0], [np.inf], [1], [1], [1], [1]])),
        "path: data/x.npz: array x: sample 1 has a number that is not finite",
    ),
    "npz: target shape": (
        npz(y=np.ones((6, 2, 2))),
        "path: data/x.npz: array y has the shape (6, 2, 2); targets have (samples,) or (samples, outputs)",
    ),
    "npz: negative label": (
        npz(y=np.array([0, 1, -1, 0, 1, 0])),
        "path: data/x.npz: array y: sample 2: the label is -1; with 2 classes, labels are 0 to 1",
    ),
    "npz: Fortran order": (
        npz(x=np.asfortranarray(np.ones((6, 2)))),
        "path: data/x.npz: array x is stored in Fortran order, in which samples are not contiguous; save",
    ),
    "npz: half of the test data": (
        npz(test_x="x"),
        "test_y: test_x and test_y name two arrays of path; declare both or neither",
    ),
    "csv: empty": (csv(""), "path: data/x.csv: the file is empty; its first line must name the columns"),
    "csv: header only": (csv("rooms,price\n"), "path: data/x.csv: the table has no rows"),
    "csv: no header": (
        csv("1,2\n3,4\n"),
        "path: data/x.csv:1: the first line has only numbers; it must name the columns",
    ),
    "csv: column twice": (
        csv("price,price\n1,2\n"),
        "path: data/x.csv:1: two columns are named 'price'; give each its own name",
    ),
    "csv: column without a name": (csv("rooms,,price\n1,2,3\n"), "path: data/x.csv:1: column 2 has no name"),
    "csv: target": (
        csv(CSV, target="cost"),
        "target: data/x.csv: there is no column 'cost'; the columns are rooms, area, price",
    ),
    "csv: feature": (
        csv(CSV, features=["rooms", "garden"]),
        "features: data/x.csv: there is no column 'garden'; the columns are rooms, area, price",
    ),
    "csv: target as feature": (
        csv(CSV, features=["rooms", "price"]),
        "features: column price is listed twice, among features or as a target, too",
    ),
    "csv: word": (
        csv(CSV.replace("4,16,5", "4,many,5")),
        "path: data/x.csv:5: column area: 'many' is not a finite number; write a number, or leave",
    ),
    "csv: missing value": (
        csv(CSV.replace("4,16,5", "4,,5")),
        "path: data/x.csv:5: column area: the value is missing; write a number, or leave the column out with features",
    ),
    "csv: not finite": (
        csv(CSV.replace("4,16,5", "4,inf,5")),
        "path: data/x.csv:5: column area: 'inf' is not a finite number",
    ),
    "csv: row too short": (csv(CSV.replace("4,16,5", "4,16")), "path: data/x.csv:5: 2 values for 3 columns"),
    "csv: row after a quoted line break": (
        csv('rooms,note,price\n1,"two\nlines",2\n3,4\n', features=["rooms"]),
        "path: data/x.csv:4: 2 values for 3 columns",
    ),
    "csv: quote": (csv(CSV + '"1,2,3\n'), "path: data/x.csv:12: unexpected end of data"),
    "csv: encoding": (
        raw("csv", "x.csv", CSV.encode() + "5,ü,6\n".encode("latin-1"), target="price"),
        "path: data/x.csv:12: a character is not valid UTF-8 (invalid start byte); save the file as UTF-8 text",
    ),
    "csv: missing class": (
        csv(CSV.replace("4,16,5", "4,16,"), task="classification"),
        "path: data/x.csv:5: column price: the class is missing",
    ),
    "csv: two classes per sample": (
        csv(CSV, target=["area", "price"], task="classification"),
        "target: a classification has one target column, not 2",
    ),
    "csv: too few samples": (
        csv("rooms,price\n1,2\n"),
        "test_fraction: test_fraction 0.2 leaves 1 training samples and 0 test samples of 1; at least one of each",
    ),
    "parquet: another format": (
        raw("parquet", "x", b"abc", target="price"),
        "path: data/x: not a parquet file, or damaged: Parquet file size is 3 bytes",
    ),
    "parquet: missing value": (
        parquet(TABLE.assign(rooms=[1.0, 2.0, None, 4.0, 5.0])),
        "path: data/x.parquet: row 3, column rooms: the value is missing; fill it, or leave the column out",
    ),
    "parquet: not finite": (
        parquet(TABLE.assign(rooms=[1.0, 2.0, 3.0, np.inf, 5.0])),
        "path: data/x.parquet: row 4, column rooms: inf is not a finite number",
    ),
    "parquet: words": (
        parquet(TABLE.assign(rooms=list("abcde"))),
        "path: data/x.parquet: column rooms has the type large_string; allowed are numbers and booleans",
    ),
    "parquet: target": (
        parquet(TABLE, target="cost"),
        "target: data/x.parquet: there is no column 'cost'; the columns are rooms, price",
    ),
    "text: empty": (text(""), "path: data/x.txt: the text has no tokens"),
    "text: short": (
        text("abc" * 9, context=30),
        "context: the train part has 22 tokens; a sample needs 31: a context and the next token; use a longer text",
    ),
    "text: encoding": (
        raw("text", "x.txt", "one\ntwü\n".encode("latin-1")),
        "path: data/x.txt:2: byte 6 is not valid UTF-8; save the file as UTF-8 text",
    ),
    "text: unknown character": (
        text("abcd" * 20, "abab" * 5 + "\nab?d" * 3),
        "test_path: data/test.txt:1: column 21: '\\n' does not occur in path; declare a vocabulary, so that",
    ),
    "text: unknown word": (
        text("to be or not to be " * 9, "to be\nor not two be " * 9, level="word"),
        "test_path: data/test.txt:2: column 8: 'two' does not occur in path; declare a vocabulary",
    ),
    "text: large samples": (
        text("abcd" * 20, context=1024, vocabulary=5000),
        "vocabulary: 5,001 tokens in a context of 1024 are 5,121,024 numbers per sample; at most 1,000,000 are",
    ),
    "text: short for the next token": (
        text("abc" * 40, context=24, objective="next_token"),
        "context: the test part has 24 tokens; a sample needs 25: a context and the next token; use a longer text",
    ),
    "text: short for masked tokens": (
        text("abc" * 40, context=25, objective="masked_token"),
        "context: the test part has 24 tokens; a sample needs 25: a context; use a longer text or a smaller context",
    ),
    "text: unknown character in sequences": (
        text("abcd" * 20, "abab" * 5 + "?" * 20, objective="next_token"),
        "test_path: data/test.txt:1: column 21: '?' does not occur in path; declare a vocabulary, so that",
    ),
    "text: large vocabulary of sequences": (
        text("abcd" * 20, context=1024, vocabulary=5000, objective="masked_token"),
        "vocabulary: 5,001 tokens in a context of 1024 are 5,121,024 numbers per sample; at most 1,000,000 are",
    ),
    "text: sequences without tokens": (
        text("", objective="next_token"),
        "path: data/x.txt: the text has no tokens",
    ),
    "text: unknown objective": (
        text("abcd" * 20, objective="next_word"),
        "objective: 'next_word' is not supported; choose 'classification', 'next_token' or 'masked_token'",
    ),
    "images: a file": (
        raw("images", "x.png", b"abc"),
        "path: data/x.png: not a folder; write the path of a folder with",
    ),
    "images: empty": (
        images(lambda x: [each.unlink() for each in x.rglob("*.png")]),
        "path: data/x: the folder has no",
    ),
    "images: no class folder": (
        images(lambda x: (x / "lost.png").write_bytes(b"")),
        "path: data/x/lost.png: pictures lie in sub-folders, one per class: data/x/CLASS/FILE",
    ),
    "images: one class": (
        images(lambda x: [each.unlink() for each in (x / "class1").iterdir()]),
        "path: all pictures are in the one folder class0; at least two classes are needed",
    ),
    "images: another file": (
        images(lambda x: (x / "class1/readme.txt").write_text("hello")),
        "path: data/x/class1/readme.txt: the picture can't be read: cannot identify image file",
    ),
    "images: cut": (
        images(lambda x: (x / "class1/001.png").write_bytes((x / "class1/001.png").read_bytes()[:45])),
        "path: data/x/class1/001.png: the picture can't be read: ",
    ),
    "images: size": (
        images(lambda x: Image.new("RGB", (5, 4)).save(x / "class1/009.png")),
        "path: data/x/class1/009.png: the picture has 4 x 5 pixels, the first picture 4 x 4; declare size to scale",
    ),
    "images: 16 bits": (
        images(lambda x: Image.fromarray(np.zeros((4, 4), np.uint16)).save(x / "class1/009.png")),
        "path: data/x/class1/009.png: pictures of mode I;16 are not supported; convert it to 8 bits",
    ),
    "images: bomb": (
        images(lambda x: Image.new("1", (30000, 2000)).save(x / "class0/009.png")),
        "path: data/x/class0/009.png: 30,000 x 2,000 are 60,000,000 pixels; at most 50,000,000 are allowed",
    ),
    "images: large bomb": (
        images(lambda x: Image.new("1", (30000, 20000)).save(x / "class0/009.png")),
        "path: data/x/class0/009.png: the picture has more than 50,000,000 pixels, the limit",
    ),
    "images: link": (
        images(lambda x: (x / "class0/009.png").symlink_to("/etc/hostname")),
        "path: data/x/class0/009.png: a symbolic link to /etc/hostname, outside of the folder; copy the file into the",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_reported_with_its_position(folder: Path, name: str) -> None:
    """A user must be able to repair the file with the message alone."""
    write, expected = BROKEN[name]

    message = error_of(folder, write(folder))

    assert message.startswith(f"workload.dataset.{expected}"), message


@pytest.mark.parametrize("kind", SMALL_FILES)
def test_a_batch_larger_than_the_data_is_rejected(folder: Path, kind: str) -> None:
    """As for the datasets that come with Ensayo."""
    keys = SMALL_FILES[kind](folder).keys

    message = error_of(folder, keys, workload={"batch": 100_000})

    assert message.startswith(f"workload.batch: batch (100000) is larger than the training set of {kind} (")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"path": "data"}, "path: data: not a regular file; write the path of a file"),
        ({"path": "/dev/zero"}, "path: /dev/zero: not a regular file; write the path of a file"),
        ({"path": "data/x\0.csv"}, "path: 'data/x\\x00.csv' is not a path: it contains the character NUL"),
        ({"path": 5}, "path: should be the path of a file, for example data/mine.csv"),
        ({"path": ""}, "path: must have at least 1 character, not ''"),
        ({"path": {"file": "data/x.csv", "sha256": "abc"}}, "path: data/x.csv: the content has the digest"),
        ({"test_path": "data/no.csv"}, "test_path: data/no.csv: file not found"),
    ],
    ids=str,
)
def test_a_wrong_path_is_rejected(folder: Path, keys: dict[str, Any], expected: str) -> None:
    """Devices never end, and pipes block."""
    (folder / "data/x.csv").write_text(CSV)
    base = {"kind": "csv", "path": "data/x.csv", "target": "price"}

    assert error_of(folder, base | keys).startswith(f"workload.dataset.{expected}")


def test_a_folder_is_no_csv_file(folder: Path) -> None:
    """A folder has a digest, since some formats are folders; the reader of a file rejects it."""
    keys = {"kind": "csv", "path": "data", "target": "price"}

    assert error_of(folder, keys) == "workload.dataset.path: data: not a regular file; write the path of a file"


def test_a_file_with_another_digest_is_rejected(folder: Path) -> None:
    """A published scenario can state which data it needs."""
    (folder / "data/x.csv").write_text(CSV)
    digest = "0" * 64

    message = error_of(folder, {"kind": "csv", "path": {"file": "data/x.csv", "sha256": digest}, "target": "price"})

    assert message.startswith("workload.dataset.path: data/x.csv: the content has the digest ")
    assert message.endswith(f", not {digest}; restore the file, or remove sha256")


def test_paths_are_relative_to_the_scenario_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with scenario and data can be moved; symbolic links are resolved once."""
    (folder / "data/real.csv").write_text(CSV)
    (folder / "data/link.csv").symlink_to("real.csv")
    monkeypatch.chdir("/")

    dataset = declared_dataset(load(folder, {"kind": "csv", "path": "data/link.csv", "target": "price"}))

    assert dataset.path.file == str(folder / "data/real.csv")


def test_paths_of_a_dict_are_relative_to_the_current_folder(folder: Path) -> None:
    """A scenario in a notebook has no file."""
    (folder / "data/x.csv").write_text(CSV)

    scenario = load_scenario(scenario_of({"kind": "csv", "path": "data/x.csv", "target": "price"}))

    assert declared_dataset(scenario).path.file == str(folder / "data/x.csv")


def test_a_sweep_over_files_reads_all_of_them_and_keeps_short_labels(folder: Path) -> None:
    """The label of a trial is the value in the scenario, without absolute path and digest."""
    (folder / "data/a.csv").write_text(CSV)
    (folder / "data/b.csv").write_text(CSV + "11,121,12\n" * 10)
    keys = {"kind": "csv", "path": "data/a.csv", "target": "price"}

    trials = load(folder, keys, sweep={"workload.dataset.path": ["data/a.csv", "data/b.csv"]}).trials()

    assert [trial.labels["workload.dataset.path"] for trial in trials] == ["data/a.csv", "data/b.csv"]
    assert [trial.scenario.workload.dataset.describe().train_samples for trial in trials] == [8, 16]


def test_a_sweep_over_whole_datasets_and_cases_resolves_their_files(folder: Path) -> None:
    """All ways to sweep a file work alike."""
    (folder / "data/a.csv").write_text(CSV)
    a = {"kind": "csv", "path": "data/a.csv", "target": "price"}
    cases = {"one": {"workload.dataset": a}, "other": {"workload.dataset": {"kind": "diabetes"}}}

    by_values = load(folder, a, sweep={"workload.dataset": [a, {"kind": "diabetes"}]}).trials()
    by_cases = load(folder, a, sweep={"data": {"cases": cases}}).trials()

    by_paths = load(
        folder, a, sweep={"data": {"paths": ["workload.dataset"], "values": [a, {"kind": "diabetes"}]}}
    ).trials()

    for trials in (by_values, by_cases, by_paths):
        assert [trial.scenario.workload.dataset.describe().train_samples for trial in trials] == [8, 354]
    assert [trial.labels["data"] for trial in by_cases] == ["one", "other"]


def test_a_sweep_with_a_wrong_key_is_rejected(folder: Path) -> None:
    """Resolving files must not hide other mistakes."""
    (folder / "data/a.csv").write_text(CSV)
    keys = {"kind": "csv", "path": "data/a.csv", "target": "price"}

    message = error_of(folder, keys, sweep={"workload.dataset.path": {"values": ["data/a.csv"], "label": "x"}})

    assert message.startswith("sweep.workload.dataset.path.label: unknown key; allowed keys are paths, values, cases")


def test_a_broken_file_of_a_sweep_is_reported_at_the_sweep(folder: Path) -> None:
    """Only some combinations of the sweep are wrong."""
    (folder / "data/a.csv").write_text(CSV)
    (folder / "data/b.csv").write_text(CSV.replace("16", "x"))
    keys = {"kind": "csv", "path": "data/a.csv", "target": "price"}

    missing = error_of(folder, keys, sweep={"workload.dataset.path": ["data/a.csv", "data/c.csv"]})
    broken = error_of(folder, keys, sweep={"workload.dataset.path": ["data/a.csv", "data/b.csv"]})

    assert missing == "workload.dataset.path: data/c.csv: file not found"
    assert broken.startswith("workload.dataset.path: data/b.csv:5: column area: 'x' is not a finite number")
    assert broken.endswith("(with workload.dataset.path = data/b.csv)")


def test_a_missing_package_is_reported_with_the_command_that_installs_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most users need neither pyarrow nor Pillow."""

    def fail(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(optional_packages, "import_module", fail)
    for kind, package in (("parquet", "pyarrow"), ("images", "pillow")):
        keys = SMALL_FILES[kind](folder).keys
        expected = f"this file format needs the package {package}: pip install {package}"
        assert error_of(folder, keys) == f"workload.dataset.path: {expected}"


def test_test_files_are_checked_against_the_training_files(folder: Path) -> None:
    """Shapes and classes of both must be equal."""
    write_idx(folder / "data/x", PIXELS)
    write_idx(folder / "data/y", LABELS)
    write_idx(folder / "data/wide", np.zeros((6, 4, 5), np.uint8))
    write_idx(folder / "data/z", LABELS + 1)
    keys = {"kind": "idx", "path": "data/x", "labels": "data/y"}

    shape = error_of(folder, keys | {"test_path": "data/wide", "test_labels": "data/y"})
    label = error_of(folder, keys | {"test_path": "data/x", "test_labels": "data/z"})

    assert shape == (
        "workload.dataset.test_path: data/wide: a sample has the shape (1, 4, 5) and the type uint8; samples of path "
        "have (1, 4, 4) and uint8"
    )
    assert label == "workload.dataset.test_labels: data/z: sample 1: the label is 2; with 2 classes, labels are 0 to 1"


def test_test_files_give_the_test_samples(folder: Path) -> None:
    """Nothing of the training file is used for testing."""
    rng = np.random.default_rng(0)
    write_cifar10(
        folder / "data/data_batch_1.bin", rng.integers(0, 255, (20, 3, 32, 32)).astype(np.uint8), np.arange(20) % 10
    )
    write_cifar10(
        folder / "data/data_batch_2.bin", rng.integers(0, 255, (10, 3, 32, 32)).astype(np.uint8), np.arange(10)
    )
    write_cifar10(folder / "data/test_batch.bin", rng.integers(0, 255, (5, 3, 32, 32)).astype(np.uint8), np.arange(5))
    (folder / "train.csv").write_text("colour,size\nred,1\nblue,2\nred,3\n")
    (folder / "test.csv").write_text("size,colour\n5,blue\n")
    table = {"kind": "csv", "path": "train.csv", "test_path": "test.csv", "target": "colour", "task": "classification"}

    images_data = declared_dataset(load(folder, {"kind": "cifar10", "path": "data"})).load("float32")
    table_data = declared_dataset(load(folder, table, workload={"batch": 2})).load("float32")

    assert (len(images_data.train_x), len(images_data.test_x)) == (30, 5)
    assert images_data.test_y[:].tolist() == [0, 1, 2, 3, 4]
    assert table_data.train_y[:].tolist() == [1, 0, 1]
    assert table_data.test_y[:].tolist() == [0]
    np.testing.assert_allclose(table_data.test_x[:], [[3 / np.std([1, 2, 3])]], rtol=1e-6)


def test_an_unknown_class_in_a_test_table_is_rejected(folder: Path) -> None:
    """The model has no output for it."""
    (folder / "train.csv").write_text("colour,size\nred,1\nblue,2\nred,3\n")
    (folder / "test.csv").write_text("size,colour\n5,green\n")
    table = {"kind": "csv", "path": "train.csv", "test_path": "test.csv", "target": "colour", "task": "classification"}

    message = error_of(folder, table, workload={"batch": 2})

    expected = "test.csv: row 1, column colour: 'green' is no class of path; its classes are blue, red"
    assert message == f"workload.dataset.test_path: {expected}"


def test_a_constant_column_becomes_zero(folder: Path) -> None:
    """It has no deviation to divide by."""
    (folder / "data/x.csv").write_text("same,area,price\n" + "".join(f"7,{n},{n}\n" for n in range(10)))

    data = declared_dataset(load(folder, {"kind": "csv", "path": "data/x.csv", "target": "price"})).load("float32")

    assert set(data.train_x[:][:, 0].tolist()) == {0.0}
    assert np.isfinite(data.test_x[:]).all()


def test_large_offsets_lose_no_digits_in_fp32(folder: Path) -> None:
    """Years or coordinates differ only in their last digits; the mean is subtracted in fp64."""
    (folder / "data/x.csv").write_text("year,price\n" + "".join(f"{2**30 + n},{n}\n" for n in range(50)))

    data = declared_dataset(load(folder, {"kind": "csv", "path": "data/x.csv", "target": "price"})).load("float32")

    np.testing.assert_allclose(data.train_x[:], data.train_y[:], rtol=1e-6)


def test_the_vocabulary_of_a_text_can_be_limited(folder: Path) -> None:
    """Rare tokens, and tokens that only the test text has, share the last number."""
    write = text("a" * 30 + "b" * 20 + "c" * 10 + "d", "abcdxyz" * 3, vocabulary=3, context=2)

    dataset = declared_dataset(load(folder, write(folder)))
    data = dataset.load("float32")

    assert dataset.describe().task.outputs == 4
    assert data.test_y[:5].tolist() == [3, 3, 3, 3, 3]
    assert data.test_x[np.array([0])].argmax(axis=2).tolist() == [[1, 2]]


def test_pictures_are_scaled_and_converted(folder: Path) -> None:
    """Grey pictures have one channel."""
    rng = np.random.default_rng(0)
    write_images(folder / "data/x", rng.integers(0, 255, (8, 9, 7, 3)).astype(np.uint8), np.arange(8) % 2)
    keys = {"kind": "images", "path": "data/x", "size": [4, 6], "colour": "grey"}

    data = declared_dataset(load(folder, keys, workload={"batch": 4})).load("float32")

    assert data.task.inputs == (1, 4, 6)


def test_a_zip_bomb_is_rejected_before_it_is_expanded(folder: Path) -> None:
    """The header of the array states its size."""
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**9, 1000)}
    with zipfile.ZipFile(folder / "data/x.npz", "w") as archive, archive.open("x.npy", "w") as member:
        np.lib.format.write_array_header_2_0(member, header)
    keys = {"kind": "npz", "path": "data/x.npz"}

    assert error_of(folder, keys) == (
        "workload.dataset.path: data/x.npz: array x: the data have 8,000,000,000,000 bytes; at most 200,000,000,000 "
        "are allowed"
    )


def test_an_unreadable_file_is_reported(folder: Path) -> None:
    """Permission is checked by the kernel; root may read everything."""
    path = folder / "data/x.csv"
    path.write_text(CSV)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read every file")

    message = error_of(folder, {"kind": "csv", "path": "data/x.csv", "target": "price"})

    assert message == "workload.dataset.path: data/x.csv: the file can't be read: Permission denied"


def test_a_cache_that_is_not_writable_is_an_error_of_the_host(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scenario is right."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    (folder / "data/x.csv").write_text(CSV)

    with pytest.raises(HostError, match=r"prepared data can't be written: .*; free disk space, or name another folder"):
        load(folder, {"kind": "csv", "path": "data/x.csv", "target": "price"})
