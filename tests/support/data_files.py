"""Small data files in every format, with the samples that they contain."""

import gzip
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from services.learning.datasets.files import FileDataset
from services.schema.arrays import HostArray

IDX_CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
WORDS = "the quick brown fox jumps over the lazy dog , and the dog sleeps . " * 12


@dataclass(frozen=True)
class SmallFile:
    """Data file of one format."""

    keys: dict[str, Any]  # of the dataset
    x: HostArray  # samples that a model sees, in the order of the file, before standardisation
    y: HostArray
    is_standardised: bool = False


def write_idx(path: Path, array: HostArray, *, compress: bool = False) -> Path:
    """Write an array in the format of MNIST."""
    code = IDX_CODES[array.dtype.str[1:]]
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    content = header + array.astype(array.dtype.newbyteorder(">")).tobytes()
    path.write_bytes(gzip.compress(content) if compress else content)
    return path


def write_cifar10(path: Path, pixels: HostArray, labels: HostArray) -> Path:
    """Write images in the binary format of CIFAR-10."""
    records = np.concatenate([labels.astype(np.uint8)[:, np.newaxis], pixels.reshape(len(labels), -1)], axis=1)
    path.write_bytes(records.tobytes())
    return path


def write_images(folder: Path, pixels: HostArray, labels: HostArray) -> Path:
    """Write pictures (n, height, width, 3) into one folder per class."""
    for number, (picture, label) in enumerate(zip(pixels, labels, strict=True)):
        class_folder = folder / f"class{label}"
        class_folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(class_folder / f"{number:03}.png")
    return folder


def _classes(count: int, classes: int) -> HostArray:
    return np.arange(count) % classes


def _small_idx(folder: Path) -> SmallFile:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    labels = _classes(60, 3)
    write_idx(folder / "images.idx3-ubyte.gz", pixels, compress=True)
    write_idx(folder / "labels.idx1-ubyte", labels.astype(np.uint8))
    keys = {"kind": "idx", "path": "images.idx3-ubyte.gz", "labels": "labels.idx1-ubyte"}
    return SmallFile(keys, pixels[:, np.newaxis] / 255, labels)


def _small_cifar10(folder: Path) -> SmallFile:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 3, 32, 32), dtype=np.uint8)
    labels = _classes(40, 10)
    write_cifar10(folder / "images.bin", pixels, labels)
    return SmallFile({"kind": "cifar10", "path": "images.bin"}, pixels / 255, labels)


def _small_npz(folder: Path) -> SmallFile:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((50, 4, 2)).astype(np.float32), rng.standard_normal(50)
    np.savez_compressed(folder / "arrays.npz", inputs=x, y=y)
    keys = {"kind": "npz", "path": "arrays.npz", "x": "inputs", "scale": "standardised"}
    return SmallFile(keys, x.astype(float), y[:, np.newaxis], is_standardised=True)


def _table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((50, 3)) * [1, 5, 100], columns=["rooms", "area", "age"])
    table["price"] = table["rooms"] + rng.standard_normal(50)
    return table


def _small_csv(folder: Path) -> SmallFile:
    table = _table()
    table.to_csv(folder / "table.csv", index=False)
    keys = {"kind": "csv", "path": "table.csv", "target": "price"}
    return SmallFile(
        keys, table[["rooms", "area", "age"]].to_numpy(), table[["price"]].to_numpy(), is_standardised=True
    )


def _small_parquet(folder: Path) -> SmallFile:
    table = _table().assign(colour=np.array(["red", "blue"])[_classes(50, 2)])
    table.to_parquet(folder / "table.parquet", row_group_size=20)
    keys = {"kind": "parquet", "path": "table.parquet", "target": "colour", "task": "classification"}
    keys |= {"features": ["age", "rooms"], "standardise": False}
    return SmallFile(keys, table[["age", "rooms"]].to_numpy(), (table["colour"] == "red").to_numpy().astype(int))


def _small_text(folder: Path) -> SmallFile:
    (folder / "text.txt").write_text(WORDS)
    words = WORDS.split()
    by_frequency = sorted(set(words), key=lambda word: (-words.count(word), word))
    tokens = np.array([1 + by_frequency.index(word) for word in words])
    contexts = np.lib.stride_tricks.sliding_window_view(tokens, 3)[:-1]
    keys = {"kind": "text", "path": "text.txt", "level": "word", "context": 3}
    return SmallFile(keys, (contexts[..., np.newaxis] == np.arange(1 + len(by_frequency))).astype(float), tokens[3:])


def _small_images(folder: Path) -> SmallFile:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 6, 5, 3), dtype=np.uint8)
    labels = np.sort(_classes(30, 3))  # in the order of the folders
    write_images(folder / "pictures", pixels, labels)
    order = np.random.default_rng(0).permutation(30)  # in which pictures are stored
    return SmallFile({"kind": "images", "path": "pictures"}, pixels.transpose(0, 3, 1, 2)[order] / 255, labels[order])


SMALL_FILES: dict[str, Callable[[Path], SmallFile]] = {
    "idx": _small_idx,
    "cifar10": _small_cifar10,
    "npz": _small_npz,
    "csv": _small_csv,
    "parquet": _small_parquet,
    "text": _small_text,
    "images": _small_images,
}


def scenario_of(keys: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a scenario that trains on a data file."""
    workload = {
        "dataset": keys,
        "model": {"kind": "linear"},
        "optimiser": {"kind": "sgd", "rate": 0.05},
        "batch": 8,
        "epochs": 2,
    }
    return {
        "name": "mine",
        "workload": workload | changes.pop("workload", {}),
        "cluster": {"workers": 2, "worker": {"throughput": "1000/s"}},
        "strategies": {"ring": {"kind": "all_reduce"}},
        "baseline": False,
    } | changes


def declared_dataset(scenario: Any) -> FileDataset:
    """Return the dataset of a loaded scenario."""
    dataset: FileDataset = scenario.workload.dataset
    return dataset
