"""CPU time to compress and to decompress a vector of 100 MB, with Ensayo and with PyTorch.

Both compute with one thread. CPU time does not contain the time in which other programs use the core.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

import numpy as np

from benchmarks.codecs.cases import CASES
from services.compressors import Compressor, CompressorSeed, fit_to_model
from services.schema.arrays import HostArray

Side: TypeAlias = Literal["Ensayo", "PyTorch"]
Call: TypeAlias = Callable[[], Any]
ENTRIES = 24_414 * 1024  # 100 MB of fp32, in whole buckets
SEED = 1


@dataclass(frozen=True)
class CodecTime:
    """CPU seconds of one call."""

    compress_s: float
    decompress_s: float


CodecSamples: TypeAlias = Mapping[Side, Sequence[CodecTime]]


class EnsayoCodec:
    """A compressor with its state."""

    def __init__(self, compressor: Compressor, vector: HostArray) -> None:
        self._compressor, self._vector = compressor, vector
        self._state = compressor.init_state(vector.size, CompressorSeed(SEED))

    def measure(self) -> CodecTime:
        """Compress the vector, decompress the payload, and return the CPU time of both."""
        started_s = time.process_time()
        payload, self._state = self._compressor.compress(self._vector, self._state)
        compressed_s = time.process_time()
        self._compressor.decompress(payload)
        return CodecTime(compressed_s - started_s, time.process_time() - compressed_s)


def measure_codecs(case_names: Iterable[str], rounds: int) -> dict[str, CodecSamples]:
    """Return one sample of each case and side per round, by case.

    All cases take turns in every round, and the sides of a case begin in turns. The first round is not counted.
    """
    vector = np.random.default_rng(SEED).standard_normal(ENTRIES, dtype="float32")
    measurements = {name: dict(_prepare_sides(name, vector)) for name in case_names}
    samples: dict[str, dict[Side, list[CodecTime]]] = {name: defaultdict(list) for name in measurements}
    for number in range(-1, rounds):
        for name, sides in measurements.items():
            for side in list(sides) if number % 2 else reversed(sides):
                sample = sides[side]()
                if number >= 0:
                    samples[name][side].append(sample)
    return {name: dict(of_sides) for name, of_sides in samples.items()}


def has_torch() -> bool:
    """Return whether PyTorch is installed."""
    return find_spec("torch") is not None


def _prepare_sides(case_name: str, vector: HostArray) -> Iterator[tuple[Side, Callable[[], CodecTime]]]:
    yield "Ensayo", EnsayoCodec(fit_to_model(CASES[case_name].compressor, (vector.shape,)), vector).measure
    if not has_torch():
        return
    from benchmarks.codecs.torch_codecs import TORCH_CODECS, to_tensor  # noqa: PLC0415 - PyTorch may be missing

    if case_name in TORCH_CODECS:
        codec, tensor = TORCH_CODECS[case_name], to_tensor(vector)
        yield "PyTorch", lambda: _measure_torch(codec.compress, codec.decompress, tensor)


def _measure_torch(compress: Callable[[Any], Any], decompress: Callable[[Any], Any], tensor: Any) -> CodecTime:
    started_s = time.process_time()
    payload = compress(tensor)
    compressed_s = time.process_time()
    decompress(payload)
    return CodecTime(compressed_s - started_s, time.process_time() - compressed_s)
