"""Contract of an exporter: a component that writes a run in the file format of another tool."""

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from analysis.reading.run_table import RunLogTables
from services.schema.component import ScenarioComponent


class Exporter(ScenarioComponent):
    """Exporter of a run's trials into the file format of one tool.

    Exporting a run twice gives identical bytes. Data that the format cannot represent, or that a trial did not log, are
    never invented: `write` yields a sentence.
    """

    tool_name: ClassVar[str]  # tool that reads the files
    file_suffix: ClassVar[str]  # ending of the files that the tool opens
    pip_requirement: ClassVar[str] = ""  # of the library that the format needs; empty: it needs none

    @abstractmethod
    def write(self, run_tables: RunLogTables, out_folder: Path) -> Iterator[str]:
        """Write the files of a run into the empty folder `out_folder`.

        Yield a sentence for each part of the run that is left out.
        """
