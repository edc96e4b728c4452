"""What an export is: a run, written for somebody else's tool."""

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from analysis.reading.run_table import RunTable
from services.schema.component import Component


class Exporter(Component):
    """Writes the trials of a run for one tool. The same run gives the same bytes.

    What a tool has no place for, or what a trial never logged, is said in a sentence and never made up.
    """

    reader: ClassVar[str]  # the tool that it is written for
    suffix: ClassVar[str]  # of the files that the tool opens
    package: ClassVar[str] = ""  # the extra of this project that brings what the writer needs; empty: nothing more

    @abstractmethod
    def write(self, run: RunTable, out: Path) -> Iterator[str]:
        """Writes into `out`, an empty folder; gives a sentence for each thing that is left out."""
