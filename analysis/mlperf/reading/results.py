"""Which system trained what in which time? One row per result, read from a CSV with every mistake named at once.

The CSV that ships holds the four workloads of MLPerf Training v4.1 that the study looks at; `data/README.md` says where
it comes from, how it was checked and what it lacks. Averages, speedups and efficiencies that are derived from
these rows are not MLPerf metrics.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field, ValidationError

from services.schema.component import FrozenRecord
from services.schema.errors import UserError

SHIPPED = Path(__file__).resolve().parents[1] / "data" / "training_v4.1.csv"

# A description says what is allowed; messages repeat it.
Text: TypeAlias = Annotated[str, Field(min_length=1, description="a word or more")]
Count: TypeAlias = Annotated[int, Field(ge=1, description="a whole number at least 1")]
Natural: TypeAlias = Annotated[int, Field(ge=0, description="a whole number at least 0")]
Positive: TypeAlias = Annotated[float, Field(gt=0, description="a finite number above 0")]


class Result(FrozenRecord):
    """What one system took to train one workload to its target; fields are the columns of the CSV."""

    benchmark: Text  # the name of the workload's folder in a round
    submitter: Text
    system: Text  # with benchmark and submitter it names a row
    accelerator: Text  # as its submitter writes it
    accelerator_count: Count  # over all nodes
    minutes: Positive  # the score: olympic mean over runs, times the scaling factor
    nodes: Count = 1
    framework: str = ""
    runs: Natural = 0  # logs behind the score; 0: not told
    source: str = ""
    system_name: str = ""  # as the submitter calls it; not unique
    availability: str = ""
    rcp_scaling_factor: Positive = 1.0  # already in `minutes`
    runs_not_counted: Natural = 0
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What no two rows may share."""
        return self.benchmark, self.submitter, self.system


COLUMNS = tuple(Result.model_fields)
REQUIRED = tuple(name for name, field in Result.model_fields.items() if field.is_required())


@dataclass(frozen=True)
class Results:
    """All rows of one source."""

    rows: tuple[Result, ...]
    source: str  # the file or folder
    left_out: tuple[str, ...] = ()  # what was there but has no score: which, and why

    @property
    def name(self) -> str:
        """The source without its folder, for people."""
        return Path(self.source).resolve().name

    @property
    def shipped(self) -> bool:
        """Whether they are those that ship, however their path is spelled."""
        return Path(self.source).resolve() == SHIPPED

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """Workloads in the order in which they first appear."""
        return tuple(dict.fromkeys(row.benchmark for row in self.rows))

    def of(self, benchmark: str) -> tuple[Result, ...]:
        """The rows of one workload, small systems first, the fastest of equal size first."""
        rows = (row for row in self.rows if row.benchmark == benchmark)
        return tuple(sorted(rows, key=lambda row: (row.accelerator_count, row.minutes, row.submitter, row.system)))


def read_csv(path: Path = SHIPPED) -> Results:
    """All rows of a CSV with a header.

    Raises:
        UserError: everything that is wrong with the file, each with file, line and column, and what is allowed.
    """
    lines = _lines(path)
    header = _header(path, lines)
    rows: list[Result] = []
    first: dict[tuple[str, str, str], int] = {}
    wrong: list[str] = []
    for number, cells in lines:
        try:
            row = _row(path, number, header, cells)
        except UserError as error:
            wrong.append(str(error))
            continue
        if (before := first.setdefault(row.key, number)) != number:
            wrong.append(f"{path}:{number}: {' '.join(row.key)} stands in line {before} already; a system has one row")
        rows.append(row)
    if wrong:
        raise UserError("\n".join(wrong))
    if not rows:
        raise UserError(f"{path}:2: no row below the header; there is nothing to study")
    return Results(tuple(rows), str(path))


def write_csv(results: Iterable[Result], path: Path) -> None:
    """Rows as `read_csv` reads them."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        table.writerows(row.model_dump().values() for row in results)


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line that is not empty, with the number of the line where they end."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets write a mark before the header
    except UnicodeDecodeError as error:
        line, byte = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        raise UserError(f"{path}: cannot be read: line {line} has byte {byte:#04x}, which is not UTF-8") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise UserError(f"{path}:{reader.line_num}: {error}") from error


def _header(path: Path, lines: Iterator[tuple[int, list[str]]]) -> list[str]:
    number, names = next(lines, (1, []))
    for wrong, why in (
        ([name for name in REQUIRED if name not in names], f"column is missing; needed are {', '.join(REQUIRED)}"),
        ([name for name in names if name not in COLUMNS], f"unknown column; allowed are {', '.join(COLUMNS)}"),
        ([name for name in dict.fromkeys(names) if names.count(name) > 1], "column stands there twice"),
    ):
        if wrong:
            raise UserError(f"{path}:{number}: {', '.join(wrong)}: {why}")
    return names


def _row(path: Path, number: int, header: list[str], cells: list[str]) -> Result:
    if len(cells) != len(header):
        raise UserError(f"{path}:{number}: {len(cells)} cells, but the header has {len(header)}")
    told = {name: cell.strip() for name, cell in zip(header, cells, strict=True) if cell.strip() or name in REQUIRED}
    try:
        return Result.model_validate(told)
    except ValidationError as error:
        raise UserError("\n".join(_mistakes(path, number, error, told))) from None


def _mistakes(path: Path, number: int, error: ValidationError, told: Mapping[str, str]) -> Iterator[str]:
    for found in error.errors():
        name = str(found["loc"][0])
        allowed = Result.model_fields[name].description
        yield f"{path}:{number}: {name}: should be {allowed}, not {told[name]!r}"
