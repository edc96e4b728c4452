"""Command line of the benchmarks that compare a study with virtual time, and a few of its parts with other engines."""

import argparse
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from compose.engines import ENGINE_CLASSES

VIRTUAL_TIME_ENGINE = "simulated"
EXIT_USAGE = 2


@dataclass(frozen=True)
class StudyArguments:
    """What a benchmark of a study measures, and where it writes the results."""

    engine: str
    parts: tuple[str, ...]  # names that the user gave, or the default ones; empty: all parts of the study
    are_parts_chosen: bool  # by the user
    machine: str | None  # name on the results page; None: no page is written

    @property
    def is_virtual(self) -> bool:
        """Whether the trials run in virtual time."""
        return self.engine == VIRTUAL_TIME_ENGINE

    def find_problem(self, part: str, known_names: Iterable[str], whole: str) -> str:
        """Return why the trials cannot start; empty if they can.

        Args:
            part: what a part of the study is called, such as "cell".
            known_names: names of all parts.
            whole: what the results page has in virtual time, such as "all cells".
        """
        names = list(known_names)
        if unknown := _find_unknown(self.parts, names):
            return f"unknown {part} {unknown}; {part}s are {', '.join(names)}"
        if self.machine is None:
            return ""
        if self.is_virtual and self.are_parts_chosen:
            return f"--write writes the page of {whole}; remove --{part}s"
        if not self.is_virtual and not self.machine:
            return f"--write needs the name of this machine on engine {self.engine}"
        return ""


def parse_study_arguments(
    program: str, description: str | None, part: str, real_time_parts: str, command_line: Sequence[str] | None
) -> StudyArguments:
    """Return the arguments of a benchmark; engines that need real time have default parts, separated by commas."""
    parser = argparse.ArgumentParser(
        prog=program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=sorted(ENGINE_CLASSES), default=VIRTUAL_TIME_ENGINE)
    parser.add_argument(f"--{part}s", dest="parts", default="", help=f"comma-separated, such as {real_time_parts}")
    parser.add_argument(
        "--write",
        metavar="MACHINE",
        nargs="?",
        const="",
        help="also write the results page; on docker and local with this machine name",
    )
    arguments = parser.parse_args(command_line)
    text = arguments.parts or ("" if arguments.engine == VIRTUAL_TIME_ENGINE else real_time_parts)
    names = tuple(name for name in text.split(",") if name)
    return StudyArguments(arguments.engine, names, bool(arguments.parts), arguments.write)


def _find_unknown(names: Iterable[str], known_names: Container[str]) -> str:
    return next((name for name in names if name not in known_names), "")
