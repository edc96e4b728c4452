"""Table of MLPerf results with one row per system and workload, and functions that read and write it as CSV.

The shipped CSV has the four workloads of MLPerf Training v4.1 that the study covers. `data/README.md` describes its
origin, checks and gaps. Averages, speedups and efficiencies derived from these rows are not MLPerf metrics. The
reader reports all mistakes of a CSV file at once.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, ValidationError

from analysis.mlperf.reading.accelerators import accelerator_kind, software_stack
from analysis.mlperf.rule_sets.rounds import RuleSet
from analysis.report.wording import format_count
from services.schema.component import FrozenRecord
from services.schema.errors import UserError

SHIPPED_RESULTS_PATH = Path(__file__).resolve().parents[1] / "data" / "training_v4.1.csv"

# Error messages repeat the descriptions: each one says what is allowed.
NonEmptyText: TypeAlias = Annotated[str, Field(min_length=1, description="a word or more")]
PositiveCount: TypeAlias = Annotated[int, Field(ge=1, description="a whole number at least 1")]
NonNegativeCount: TypeAlias = Annotated[int, Field(ge=0, description="a whole number at least 0")]
PositiveNumber: TypeAlias = Annotated[float, Field(gt=0, description="a finite number above 0")]
DeviceUnit: TypeAlias = Annotated[
    Literal["accelerators", "processors", "hosts"], Field(description="accelerators, processors or hosts")
]


class MlperfResult(FrozenRecord):
    """Time in which a system trained a workload to the quality target.

    The fields are the columns of a CSV file of results. `accelerator_count` counts the devices that `unit` names. In a
    system without accelerators, these are processors or hosts.
    """

    benchmark: NonEmptyText  # name of the workload's folder in a round
    submitter: NonEmptyText
    system: NonEmptyText  # unique together with benchmark and submitter
    accelerator: NonEmptyText  # in the submitter's spelling; the processor of a system without accelerators
    accelerator_count: PositiveCount  # over all nodes, in `unit`
    minutes: PositiveNumber  # score: olympic mean of the run times, times the scaling factor
    nodes: PositiveCount = 1
    framework: str = ""
    runs: NonNegativeCount = 0  # number of logs that the score was computed from; 0: unknown
    source: str = ""
    system_name: str = ""  # in the submitter's words; not unique
    availability: str = ""
    rcp_scaling_factor: PositiveNumber = 1.0  # already in `minutes`
    runs_not_counted: NonNegativeCount = 0
    note: str = ""
    unit: DeviceUnit = "accelerators"  # a system without accelerators counts processors or hosts
    runs_required: NonNegativeCount = 0  # number of runs that the rules ask for; 0: unknown
    rules: str = ""  # round whose rules the logs were checked with; "published" if they were not checked

    @property
    def accelerator_kind(self) -> str:
        """Kind of the accelerators: model and form factor.

        For a system without accelerators, the name of the processor and the unit of the count.
        """
        kind = accelerator_kind(self.accelerator)
        return kind if self.unit == "accelerators" else f"{kind} ({self.unit})"

    @property
    def stack(self) -> tuple[str, str]:
        """Submitter and software stack. Results of one stack differ in the system alone, not in who wrote the code."""
        return self.submitter, software_stack(self.framework)

    @property
    def remarks(self) -> str:
        """Text on runs that are missing or were not counted; empty if there are none."""
        missing = f"{self.runs} runs, the rules ask for {self.runs_required}"
        return "; ".join(filter(None, (self.note, missing if self.runs < self.runs_required else "")))

    @property
    def unique_row_key(self) -> tuple[str, str, str]:
        """Key of the row: benchmark, submitter and system. No two rows of a table have the same key."""
        return self.benchmark, self.submitter, self.system


CSV_COLUMNS = tuple(MlperfResult.model_fields)
REQUIRED_COLUMNS = tuple(name for name, field in MlperfResult.model_fields.items() if field.is_required())


@dataclass(frozen=True)
class UnscoredResult:
    """Result that is not scored, and the reason."""

    path: str  # folder of the logs
    reason: str
    category: str  # reason without names and numbers, worded to follow a count: "of the open division"


@dataclass(frozen=True)
class MlperfResults:
    """All results that were read from one CSV file or result folder."""

    rows: tuple[MlperfResult, ...]
    source: str  # path of the file or folder
    unscored_results: tuple[UnscoredResult, ...] = ()
    rule_set: RuleSet | None = None  # rules that the logs were checked with; None for a CSV file

    @property
    def source_name(self) -> str:
        """Name of the source file or folder, without its path."""
        return Path(self.source).resolve().name

    @property
    def is_shipped_with_ensayo(self) -> bool:
        """Whether the results were read from the CSV file that ships with Ensayo."""
        return Path(self.source).resolve() == SHIPPED_RESULTS_PATH

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """Names of the workloads, in the order of their first rows."""
        return tuple(dict.fromkeys(row.benchmark for row in self.rows))

    @property
    def unscored_summary(self) -> str:
        """Number of results that are not scored, by reason: "3 of 80 results not scored: 3 of the open division"."""
        if not self.unscored_results:
            return ""
        counts = Counter(each.category for each in self.unscored_results).most_common()
        reasons = ", ".join(f"{count} {category}" for category, count in counts)
        total = len(self.rows) + len(self.unscored_results)
        return f"{len(self.unscored_results)} of {format_count(total, 'result')} not scored: {reasons}"

    def results_of(self, benchmark: str) -> tuple[MlperfResult, ...]:
        """Return the results of one workload, sorted by number of accelerators, then by time."""
        rows = (row for row in self.rows if row.benchmark == benchmark)
        return tuple(sorted(rows, key=lambda row: (row.accelerator_count, row.minutes, row.submitter, row.system)))


def read_results_csv(csv_path: Path = SHIPPED_RESULTS_PATH) -> MlperfResults:
    """Read results from a CSV file with a header line.

    Raises:
        UserError: the file has mistakes. The message lists each mistake with file, line, column and allowed values.
    """
    lines = _read_csv_lines(csv_path)
    header = _read_header(csv_path, lines)
    rows: list[MlperfResult] = []
    line_by_row_key: dict[tuple[str, str, str], int] = {}
    mistakes: list[str] = []
    for line_number, cells in lines:
        try:
            row = _parse_result_row(csv_path, line_number, header, cells)
        except UserError as error:
            mistakes.append(str(error))
            continue
        if (earlier_line := line_by_row_key.setdefault(row.unique_row_key, line_number)) != line_number:
            mistakes.append(
                f"{csv_path}:{line_number}: {' '.join(row.unique_row_key)} is already in line {earlier_line}; "
                "write one row per system and workload"
            )
        rows.append(row)
    if mistakes:
        raise UserError("\n".join(mistakes))
    if not rows:
        raise UserError(f"{csv_path}:2: no row below the header; add at least one result")
    return MlperfResults(tuple(rows), str(csv_path))


def write_results_csv(results: Iterable[MlperfResult], csv_path: Path) -> None:
    """Write results to a CSV file that `read_results_csv` can read."""
    with csv_path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(CSV_COLUMNS)
        table.writerows(row.model_dump().values() for row in results)


def _read_csv_lines(csv_path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and cells of each non-empty CSV row.

    A row of several lines has the number of the last line.
    """
    try:
        text = csv_path.read_text(encoding="utf-8-sig")  # spreadsheets write a byte order mark before the header
    except UnicodeDecodeError as error:
        line, byte = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        raise UserError(f"{csv_path}: cannot be read: line {line} has byte {byte:#04x}, which is not UTF-8") from error
    except OSError as error:
        raise UserError(f"{csv_path}: cannot be read: {error.strerror}") from error
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise UserError(f"{csv_path}:{reader.line_num}: {error}") from error


def _read_header(csv_path: Path, lines: Iterator[tuple[int, list[str]]]) -> list[str]:
    line_number, names = next(lines, (1, []))
    for mistakes, problem in (
        (
            [name for name in REQUIRED_COLUMNS if name not in names],
            f"column is missing; required are {', '.join(REQUIRED_COLUMNS)}",
        ),
        ([name for name in names if name not in CSV_COLUMNS], f"unknown column; allowed are {', '.join(CSV_COLUMNS)}"),
        ([name for name in dict.fromkeys(names) if names.count(name) > 1], "column appears twice; keep one of them"),
    ):
        if mistakes:
            raise UserError(f"{csv_path}:{line_number}: {', '.join(mistakes)}: {problem}")
    return names


def _parse_result_row(csv_path: Path, line_number: int, header: list[str], cells: list[str]) -> MlperfResult:
    if len(cells) != len(header):
        raise UserError(f"{csv_path}:{line_number}: {len(cells)} cells, but the header has {len(header)}")
    named_cells = zip(header, map(str.strip, cells), strict=True)
    texts = {name: text for name, text in named_cells if text or name in REQUIRED_COLUMNS}
    if texts["accelerator_count"] == "0" and "nodes" in texts:  # a system without accelerators counts its hosts
        texts |= {"accelerator_count": texts["nodes"], "unit": "hosts"}
    try:
        return MlperfResult.model_validate(texts)
    except ValidationError as error:
        raise UserError("\n".join(_error_texts(csv_path, line_number, error, texts))) from None


def _error_texts(csv_path: Path, line_number: int, error: ValidationError, cells: Mapping[str, str]) -> Iterator[str]:
    for detail in error.errors():
        name = str(detail["loc"][0])
        allowed = MlperfResult.model_fields[name].description
        yield f"{csv_path}:{line_number}: {name}: should be {allowed}, not {cells[name]!r}"
