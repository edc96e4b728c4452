"""Results of the benchmark of compressors: rates, goals and the table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from benchmarks.codecs.cases import CASES
from benchmarks.codecs.timing import ENTRIES, CodecSamples, CodecTime
from benchmarks.markdown import markdown_table
from services.compressors import fit_to_model

VECTOR_MB = 4 * ENTRIES / 1e6
MAX_TIME_RATIO = 1.2  # Ensayo over PyTorch, to compress
NO_COUNTERPART = "–"
HEADER = (
    "compressor",
    "ratio of sizes",
    "compress, MB/s",
    "decompress, MB/s",
    "PyTorch: compress, MB/s",
    "PyTorch: decompress, MB/s",
    "time to compress / PyTorch, median (range)",
)


def codec_table(samples: Mapping[str, CodecSamples]) -> Iterator[str]:
    """Yield the lines of the table of rates."""
    yield from markdown_table(HEADER, (_codec_row(name, of_sides) for name, of_sides in samples.items()))


def goal_lines(samples: Mapping[str, CodecSamples]) -> Iterator[str]:
    """Yield a line for each goal: the measured value, the limit, and whether it is met."""
    for name, of_sides in samples.items():
        if goal := CASES[name].goal_mb_per_s:
            rate = VECTOR_MB / median(sample.compress_s for sample in of_sides["Ensayo"])
            yield f"- {name}, compress: {rate:,.0f} MB/s, at least {goal:,.0f}: {_mark(is_met=rate >= goal)}"
        if ratios := _time_ratios(of_sides):
            ratio = median(ratios)
            is_met = ratio <= MAX_TIME_RATIO
            yield f"- {name}, time / PyTorch: {ratio:.2f}, at most {MAX_TIME_RATIO}: {_mark(is_met=is_met)}"


def are_goals_met(lines: Iterable[str]) -> bool:
    """Return whether all goals are met, given their lines."""
    return all(line.endswith(": met") for line in lines)


def _mark(*, is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def _codec_row(case_name: str, samples: CodecSamples) -> tuple[str, ...]:
    compressor, ratios = fit_to_model(CASES[case_name].compressor, ((ENTRIES,),)), _time_ratios(samples)
    size_ratio = 4 * ENTRIES / compressor.compressed_size_bytes(ENTRIES, "float32")
    spread = f"{median(ratios):.2f} ({min(ratios):.2f} - {max(ratios):.2f})" if ratios else NO_COUNTERPART
    rates = (rate for side in ("Ensayo", "PyTorch") for rate in _format_rates(samples.get(side, ())))
    return (case_name, f"{size_ratio:.3g}", *rates, spread)


def _time_ratios(samples: CodecSamples) -> list[float]:
    """Return the time of Ensayo over that of PyTorch to compress, in each round; empty without PyTorch."""
    if "PyTorch" not in samples:
        return []
    pairs = zip(samples["Ensayo"], samples["PyTorch"], strict=True)
    return [ours.compress_s / theirs.compress_s for ours, theirs in pairs]


def _format_rates(samples: Sequence[CodecTime]) -> tuple[str, str]:
    """Return the median rates of compression and decompression."""
    if not samples:
        return NO_COUNTERPART, NO_COUNTERPART
    compress_s = median(sample.compress_s for sample in samples)
    decompress_s = median(sample.decompress_s for sample in samples)
    return f"{VECTOR_MB / compress_s:,.0f}", f"{VECTOR_MB / decompress_s:,.0f}"


REMARKS = """\
Rates are MB of the uncompressed vector per second of CPU time: medians over the rounds. The vector has 100 MB of
normally distributed fp32 values and is in the memory of the host. All compressors take turns in every round, in one
process with one thread and the allocator settings of nodes. A rate includes random numbers, selection of entries and
packing of bits. `identity` copies nothing, so its rate has no meaning.

The code for PyTorch is written by hand, in eager mode (`benchmarks/codecs/torch_codecs.py`); compressors without such
code have no values for PyTorch. Its `top_k` is `torch.topk`, and its `int8` draws 32-bit random numbers.

NumPy converts to `fp16` without the processor's instruction for it, which PyTorch uses. Two conversions by operations
on whole numbers, block by block in preallocated memory and with equal bits, were not clearly faster: 2.7 and 1.8
against 2.4 GB/s of CPU time. `bf16` rounds with five operations on whole numbers per block, and searches for NaN. Of
these, one shift and the conversion to 16 bits alone reach 9.9 GB/s, less than half of PyTorch, which does all in one
pass. So no sequence of NumPy's operations can reach 1.2 times the time of PyTorch.
"""
