"""The shipped table agrees with its README, and errors in a table are reported with their line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.mlperf.chapters.systems import systems_in_all_workloads
from analysis.mlperf.figures.frame import colour_by_accelerator_kind, marker_by_accelerator_kind, sort_accelerator_kinds
from analysis.mlperf.reading.accelerators import accelerator_kind
from analysis.mlperf.reading.results import (
    CSV_COLUMNS,
    MlperfResult,
    MlperfResults,
    read_results_csv,
    write_results_csv,
)
from analysis.mlperf.references import pair_with_reference, pick_smallest_reference
from analysis.mlperf.study import make_mlperf_study
from services.schema.errors import UserError

HEADER = "benchmark,submitter,system,accelerator,accelerator_count,minutes"


@pytest.fixture
def table(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a CSV."""

    def write(text: str) -> Path:
        path = tmp_path / "mine.csv"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("benchmark", "systems", "submitter", "system", "accelerators", "minutes", "most"),
    [
        ("bert", 29, "Krai", "7920T_2xA5000_hdd", 2, 366.185250, 3472),
        ("llama2_70b_lora", 28, "Dell", "XE9640x4H100-SXM-80GB", 4, 61.870463, 1024),
        ("ssd", 26, "Dell", "R760x2H100NVL-PCIe-94GB", 2, 172.839311, 2528),
        ("stable_diffusion", 25, "Dell", "XE8640x4H100-SXM-80GB", 4, 60.562356, 1024),
    ],
)
def test_counts_and_references_of_the_shipped_results_are_those_of_their_readme(
    benchmark: str, systems: int, submitter: str, system: str, accelerators: int, minutes: float, most: int
) -> None:
    """Every speedup stands on the reference; these are the paper's systems with the times of their logs."""
    (workload,) = (
        candidate for candidate in make_mlperf_study(read_results_csv()).workloads if candidate.benchmark == benchmark
    )

    reference = workload.reference

    assert len(workload.systems) == systems
    assert (reference.submitter, reference.system, reference.accelerator_count) == (submitter, system, accelerators)
    assert reference.minutes == minutes
    assert max(compared.result.accelerator_count for compared in workload.systems) == most


def test_twelve_systems_trained_all_four_workloads() -> None:
    """As the README of the data counts them: by submitter and folder of the system."""
    everywhere = systems_in_all_workloads(make_mlperf_study(read_results_csv()))

    assert len(everywhere) == 12
    assert ("Quanta_Cloud_Technology", "D74H-7U") in everywhere


def test_all_spellings_of_an_accelerator_map_to_its_kind() -> None:
    """FlexAI spells the H100 on SXM differently from all other submitters."""
    kinds = {row.accelerator: accelerator_kind(row.accelerator) for row in read_results_csv().rows}

    assert kinds["NVIDIA H100 80GB HBM3"] == kinds["NVIDIA H100-SXM5-80GB"] == "H100 SXM"
    assert kinds["H100 NVL Tensor Core GPU (PCIe)"] == "H100 NVL"
    assert kinds["NVIDIA A100 - PCIe - 80 GB"] == "A100 PCIe"
    assert kinds["NVIDIA GeForce RTX 4090"] == "RTX 4090"
    assert kinds["TPU-v5p"] == accelerator_kind("tpu-v5p") == "TPU v5p"
    assert len(set(kinds.values())) == 9


def test_an_unknown_accelerator_keeps_its_name() -> None:
    """Another round may have accelerators of other vendors."""
    assert accelerator_kind("AMD Instinct MI325X 256GB HBM3E DLC") == "MI325X"
    assert accelerator_kind("Graphcore Bow") == "Graphcore Bow"
    assert accelerator_kind("GPU") == "GPU"


def test_every_accelerator_kind_has_its_own_colour_and_marker() -> None:
    """Colours repeat after eight kinds, with other markers; v4.1 has nine kinds."""
    results = read_results_csv().rows
    many = [results[0].model_copy(update={"accelerator": f"X{kind}", "system": f"{kind}"}) for kind in range(40)]
    studied = make_mlperf_study(MlperfResults((*results, *many), "many.csv"))

    looks = set(
        zip(colour_by_accelerator_kind(studied).values(), marker_by_accelerator_kind(studied).values(), strict=True)
    )

    assert len(looks) == len(sort_accelerator_kinds(studied)) == 49


def test_written_results_can_be_read_again(tmp_path: Path) -> None:
    """The study writes the rows that it read, so that it can be repeated from them."""
    shipped = read_results_csv()
    write_results_csv(shipped.rows, tmp_path / "again.csv")

    assert read_results_csv(tmp_path / "again.csv").rows == shipped.rows


def test_six_columns_are_enough(table: Callable[[str], Path]) -> None:
    """A user's own table has no framework or source; a byte order mark comes from a spreadsheet."""
    path = table(f"\ufeff{HEADER}\r\nbert,We,box,H100,8,5.5\r\n\r\n")

    assert read_results_csv(path).rows == (
        MlperfResult(
            benchmark="bert", submitter="We", system="box", accelerator="H100", accelerator_count=8, minutes=5.5
        ),
    )


def test_a_row_without_accelerators_counts_its_hosts(table: Callable[[str], Path]) -> None:
    """Zero accelerators are valid where the row has its number of hosts; a count of processors has its unit beside."""
    path = table(
        f"{HEADER},nodes,unit\nbert,We,cpus,Xeon,0,50,4,\nbert,We,more,Xeon,16,30,8,processors\nbert,We,box,H100,8,5,1,\n"
    )

    rows = read_results_csv(path).rows

    assert [(row.accelerator_count, row.unit, row.accelerator_kind) for row in rows] == [
        (4, "hosts", "Xeon (hosts)"), (16, "processors", "Xeon (processors)"), (8, "accelerators", "H100"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (
            f"{HEADER},unit\nbert,We,box,H100,8,5,chips\n",
            [":2: unit: should be accelerators, processors or hosts, not 'chips'"],
        ),
        ("", [f":1: {', '.join(HEADER.split(','))}: column is missing; required are "]),
        (HEADER, [":2: no row below the header"]),
        (HEADER.replace("minutes", "mins"), [":1: minutes: column is missing"]),
        (f"{HEADER},notes\n", [f":1: notes: unknown column; allowed are {', '.join(CSV_COLUMNS)}"]),
        (f"{HEADER},minutes\n", [":1: minutes: column appears twice; keep one of them"]),
        (f"{HEADER}\nbert,We,box,H100,8\n", [":2: 5 cells, but the header has 6"]),
        (f"{HEADER}\nbert,We,box,H100,8,nan\n", [":2: minutes: should be a finite number above 0, not 'nan'"]),
        (f"{HEADER}\nbert,We,box,H100,8,inf\n", [":2: minutes: should be a finite number above 0, not 'inf'"]),
        (f"{HEADER}\nbert,We,box,H100,8,-1\n", [":2: minutes: should be a finite number above 0, not '-1'"]),
        (f"{HEADER}\nbert,We,box,H100,8,\n", [":2: minutes: should be a finite number above 0, not ''"]),
        (f"{HEADER}\nbert,We, ,H100,8,1\n", [":2: system: should be a word or more, not ''"]),
        (
            f"{HEADER}\nbert,We,box,H100,eight,5\nbert,We,box2,H100,0,soon\n",
            [
                ":2: accelerator_count: should be a whole number at least 1, not 'eight'",
                ":3: accelerator_count: should be a whole number at least 1, not '0'",
                ":3: minutes: should be a finite number above 0, not 'soon'",
            ],
        ),
        (
            f"{HEADER}\nbert,We,box,H100,8,5\n\nbert,We,box,H100,8,6\n",
            [":4: bert We box is already in line 2; write one row per system and workload"],
        ),
        (f'{HEADER}\nbert,We,"box,H100,8,5\n', [":2: unexpected end of data"]),
    ],
)
def test_every_error_of_a_table_is_reported_with_line_and_column(
    table: Callable[[str], Path], text: str, messages: list[str]
) -> None:
    """A value that is guessed or dropped silently changes a reference, and with it every number."""
    path = table(text)

    with pytest.raises(UserError) as raised:
        read_results_csv(path)

    lines = str(raised.value).splitlines()
    assert len(lines) == len(messages)
    for line, message in zip(lines, messages, strict=True):
        assert line.startswith(f"{path}{message}")


def test_an_unreadable_or_missing_table_is_reported_by_name(tmp_path: Path) -> None:
    """A workbook instead of its export as CSV."""
    (tmp_path / "book.csv").write_bytes(b"PK\x03\x04\xff\xfe")

    for name in ("book.csv", "absent.csv"):
        with pytest.raises(UserError, match=rf"{name}: cannot be read"):
            read_results_csv(tmp_path / name)


sizes = st.lists(st.tuples(st.integers(1, 4096), st.floats(0.1, 1e3)), min_size=1, max_size=10)


@given(sizes)
def test_efficiency_is_the_ratio_of_accelerator_minutes_to_the_reference(
    systems: list[tuple[int, float]],
) -> None:
    """E' is the reference's accelerator-minutes divided by the system's own, whatever the sizes are."""
    rows = [
        MlperfResult(
            benchmark="b", submitter="s", system=str(index), accelerator="a", accelerator_count=count, minutes=took
        )
        for index, (count, took) in enumerate(systems)
    ]
    reference = pick_smallest_reference(rows)

    for compared in pair_with_reference(rows, reference):
        cost = compared.result.accelerator_count * compared.result.minutes
        assert compared.efficiency * cost == pytest.approx(reference.accelerator_count * reference.minutes)
        assert compared.accelerator_ratio >= 1
        if compared.result is reference:
            assert (compared.speedup, compared.efficiency) == (1.0, 1.0)
        if compared.accelerator_ratio == 1:
            assert compared.speedup >= 1
