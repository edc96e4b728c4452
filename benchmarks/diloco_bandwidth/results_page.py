"""Results pages of the bandwidths for 95 % compute utilisation: published values beside those that were found."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from analysis.report.wording import format_number, format_percentage, format_signed_percentage, join_names
from benchmarks.diloco_bandwidth.published import (
    AIMED_UTILISATION,
    GRID_RATIO,
    MODELS,
    PERIOD_STEPS,
    PUBLISHED_GBPS,
    WORKERS,
    StudyModel,
    grid_gbps,
    nearest_grid_number,
)
from benchmarks.diloco_bandwidth.real_time import MAX_STEP_ERROR, SIZE_DIVISOR, RealTimeCell
from benchmarks.diloco_bandwidth.search import FoundBandwidth
from benchmarks.diloco_bandwidth.trials import BACKWARD_SHARE
from benchmarks.markdown import markdown_table
from services.compressors import Fp4

RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results" / "diloco-bandwidth.md"
REAL_TIME_PAGE = RESULTS_PAGE.with_name("diloco-bandwidth-containers.md")
BF16_BITS, BITS_PER_BYTE = 16, 8
METHOD_NAMES = {
    "data_parallel": "data-parallel",
    "diloco": "DiLoCo",
    "streaming": "streaming DiLoCo",
    "streaming_overlap_4bit": "streaming DiLoCo, overlap, 4 bits",
}
INTRODUCTION = f"""# Bandwidth for {AIMED_UTILISATION:.0%} compute utilisation

How much bandwidth between two workers is enough for a compute utilisation of {AIMED_UTILISATION:.0%}? This page has
the values of table 4 of A. Douillard et al., "Streaming DiLoCo with overlapping communication", arXiv:2501.18512, 2025,
and those of the scenario `diloco-bandwidth` in virtual time. Both sides are simulated: the paper describes its
simulator, and here the nodes, collectives and links of Ensayo run in virtual time. `make bench-diloco-bandwidth`
computes this page; it needs no GPU and no container."""
ORIGINS = """\
Values that the paper does not state are marked as chosen. One choice was made with knowledge of the published
bandwidths (with which compute an overlapped exchange overlaps, [reason](#where-differences-come-from)); no other value
depends on them."""
RULES = """\
- **Gbit/s**: payload, as in the paper. Links of Ensayo count whole Ethernet frames, so the declared uplink is
  1514 / 1448 of it.
- **here**: the lowest rate of the grid of the published values at which the utilisation is at least 95%.
- **error**: steps of the grid from the published rate to the rate found here.
- **utilisation**: 1 - (exchange + waiting) / step time ([definition](../reports.md#compute-utilisation)), over the
  middle half of a trial."""
REMAINDERS = """\
- **The grid.** The published values lie on rates with equal ratios of 1.21, which this benchmark has inferred from
  them. A rate that is slightly too low counts as the next one.
- **Data-parallel.** The gradient of a layer is sent when the backward pass has computed the layer, in buckets of one
  layer. So nothing is sent during the first layer of the backward pass, and the last bucket follows the compute.
- **DiLoCo.** The paper states that the reduction of outer gradients overlaps with the backward pass, too. Here, an
  exchange begins with the backward pass of the next step (`overlap_steps: 0.667`), and all its bytes may be sent during
  this pass. In the paper's simulator, they may depend on layers in another way.
- **Four bits.** `fp4` sends 4 bytes of scale for every 1,024 entries, which the paper does not describe: 0.8% more."""


def render_page(rows: Sequence[FoundBandwidth]) -> str:
    """Return the page of a search in virtual time."""
    sections = [
        INTRODUCTION,
        "\n".join(["## Outcome", "", *_outcome_lines(rows)]),
        "\n".join(["## All cells", "", RULES, "", *format_table(rows)]),
        "\n".join(["## What enters", "", ORIGINS, "", *_origin_lines()]),
        "\n".join(["## Where differences come from", "", REMAINDERS, *_difference_lines()]),
    ]
    return "\n\n".join(sections) + "\n"


def format_table(rows: Iterable[FoundBandwidth]) -> Iterator[str]:
    """Yield the lines of the table of all cells."""
    header = ("method", "model", "published, Gbit/s", "here, Gbit/s", "error, grid steps")
    yield from markdown_table((*header, "utilisation here", "utilisation at the published rate"), map(_cells, rows))


def _cells(row: FoundBandwidth) -> tuple[str, ...]:
    return (
        *(METHOD_NAMES[row.cell.method], row.cell.model.name),
        *(f"{row.cell.published_gbps:g}", format_number(row.gbps), f"{row.error_steps:+d}" if row.error_steps else "0"),
        format_percentage(row.utilisation.share, 1),
        format_percentage(row.utilisation_at_published.share, 1),
    )


def _outcome_lines(rows: Sequence[FoundBandwidth]) -> Iterator[str]:
    """Yield how many cells are near the published values, which are not, and whether all trials are valid."""
    near, equal = [row for row in rows if row.meets_aim], [row for row in rows if not row.error_steps]
    below = [row for row in rows if row.error_steps < 0]
    yield (
        f"- **Bandwidth**: {len(near)} of {len(rows)} cells are at most one step of the grid away from the published "
        f"rate (one step is {GRID_RATIO - 1:.0%}; published rates are rounded). The rate found here is equal in "
        f"{len(equal)} cells, higher in {len(rows) - len(equal) - len(below)}, and lower in {len(below)}."
    )
    for row in rows:
        if not row.meets_aim:
            yield f"- **Missed**: {_describe(row)}."
    worst = min(rows, key=lambda row: row.utilisation_at_published.share)
    lowest_share = format_percentage(worst.utilisation_at_published.share, 1)
    yield (
        f"- **Utilisation at the published rates**: at least {lowest_share} "
        f"({METHOD_NAMES[worst.cell.method]}, {worst.cell.model.name})."
    )
    reasons = {
        measured.verdict_reasons for row in rows for measured in (row.utilisation, row.utilisation_at_published)
    } - {""}
    yield f"- **Trials**: {'; '.join(sorted(reasons)) or 'all verdicts are valid'}."


def _describe(row: FoundBandwidth) -> str:
    return (
        f"{METHOD_NAMES[row.cell.method]}, {row.cell.model.name}: {format_number(row.gbps)} instead of "
        f"{row.cell.published_gbps:g} Gbit/s"
    )


def _origin_lines() -> Iterator[str]:
    """Yield which values enter the trials, and where they come from."""
    models = "; ".join(
        f"{model.name}: {model.layers} layers, {model.step_s:g} s per step, {model.fragments} fragments"
        for model in MODELS
    )
    values = (
        (
            f"{WORKERS} workers; every parameter is exchanged each {PERIOD_STEPS} steps, data-parallel each step",
            "paper",
        ),
        (models, "paper; fragments of three layers"),
        ("vectors in bf16, with 4 bits in E3M0", "paper"),
        ("the exchange overlaps with the backward pass, two thirds of the compute of a step", "paper"),
        ("with overlap, an exchange also overlaps with the whole next step", "chosen; τ = 1 in the paper"),
        ("all layers are equal; links have no delay; a ring, which sends each vector once per direction", "chosen"),
        ("scales of `fp4`: one for 1,024 entries", "chosen"),
    )
    yield from markdown_table(("value", "source"), values)


def _difference_lines() -> Iterator[str]:
    """Yield two consequences of closed forms: limits of data-parallel training, and the overlap that was not chosen."""
    shares = join_names(
        [f"{format_percentage(perfectly_overlapped_share(model), 1)} ({model.name})" for model in MODELS]
    )
    yield (
        "- **Data-parallel at the published rates.** If the whole exchange overlapped with the backward pass, "
        f"the utilisation would be {shares}. So even then, some models would not reach the aim. The cause is not "
        "known; other numbers of parameters are one possibility."
    )
    rates = join_names(
        [f"{format_number(needed_gbps_beside_one_step(model))} Gbit/s ({model.name})" for model in MODELS]
    )
    yield (
        "- **Overlap.** An overlapped exchange overlaps with the backward pass, as with the other methods, and with "
        f"the whole next step. With one step alone, {rates} would be needed by the closed form, which is farther away "
        "from the published values."
    )


def perfectly_overlapped_share(model: StudyModel) -> float:
    """Return the utilisation at the published rate if a gradient is sent during the whole backward pass."""
    gbps = grid_gbps(nearest_grid_number(PUBLISHED_GBPS["data_parallel"][model.name]))
    exchange_steps = BF16_BITS * model.parameters / (1e9 * gbps) / model.step_s
    return 1 / (1 + max(0.0, exchange_steps - BACKWARD_SHARE))


def needed_gbps_beside_one_step(model: StudyModel) -> float:
    """Return the lowest rate at which fragments in `fp4` reach the utilisation if they are sent beside one step."""
    fragment_bits = BITS_PER_BYTE * Fp4().compressed_size_bytes(model.parameters // model.fragments, "float32")
    allowed_steps = 1 + (1 / AIMED_UTILISATION - 1) * PERIOD_STEPS / model.fragments
    return fragment_bits / (allowed_steps * model.step_s) / 1e9


def render_real_time_page(rows: Sequence[RealTimeCell], engine_name: str, origin: str) -> str:
    """Return the page of cells on an engine in real time."""
    met = sum(row.meets_aim for row in rows)
    conditions = (
        f"Measured on {origin}. Cells of [diloco-bandwidth.md](diloco-bandwidth.md) at the published bandwidths, with "
        f"models and bandwidths divided by {SIZE_DIVISOR:,}, so that exchanges take as long as there. {met} of "
        f"{len(rows)} cells are within {MAX_STEP_ERROR:.0%} of virtual time in the mean step time."
    )
    lines = [
        f"# Compute utilisation of DiLoCo on the engine `{engine_name}`",
        "",
        conditions,
        "",
        *format_real_time_table(rows),
    ]
    return "\n".join(lines) + "\n"


def format_real_time_table(rows: Iterable[RealTimeCell]) -> Iterator[str]:
    """Yield the lines of the table of cells in real time."""
    header = ("method", "model", "Mbit/s", "mean step in virtual time, ms", "in real time, ms", "error")
    columns = (*header, "utilisation in virtual time", "in real time", "dilation", "verdict")
    yield from markdown_table(columns, map(_real_time_cells, rows))


def _real_time_cells(row: RealTimeCell) -> tuple[str, ...]:
    return (
        *(METHOD_NAMES[row.cell.method], row.cell.model.name, format_number(1000 * row.gbps / SIZE_DIVISOR)),
        *(format_number(1000 * measured.mean_step_s) for measured in (row.virtual, row.real)),
        format_signed_percentage(row.step_error),
        *(format_percentage(measured.share, 1) for measured in (row.virtual, row.real)),
        *(f"{row.real.dilation:g}", row.real.verdict_reasons or "valid"),
    )
