"""Datasets in tables: csv and parquet."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from services.learning.datasets.files.base import FileDataset

ColumnName: TypeAlias = Annotated[str, Field(min_length=1)]


class TableFile(FileDataset):
    """Base class of datasets in a table with one sample per row and named columns."""

    target: ColumnName | tuple[ColumnName, ...] = Field(
        description="column to predict; for a regression also a list of columns"
    )
    features: tuple[ColumnName, ...] | None = Field(
        None, min_length=1, description="columns that a sample consists of; default: all columns except target"
    )
    task: Literal["regression", "classification"] = Field(
        "regression",
        description="regression: the targets are numbers; classification: the target is a class, a number or a word",
    )
    standardise: bool = Field(
        default=True,
        description="whether features and targets of a regression get mean 0 and deviation 1 over the training samples",
    )

    @property
    def target_columns(self) -> tuple[str, ...]:
        """Names of the columns to predict."""
        return (self.target,) if isinstance(self.target, str) else self.target


class CsvFile(TableFile):
    """Table as text (UTF-8), with a header that names the columns."""

    kind: Literal["csv"] = "csv"
    delimiter: str = Field(",", min_length=1, max_length=1, description="character between columns")


class ParquetFile(TableFile):
    """Table in the format of Apache Parquet. Reading it needs pyarrow: pip install pyarrow."""

    kind: Literal["parquet"] = "parquet"
