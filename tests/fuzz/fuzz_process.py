"""Fuzzing of one target with Atheris, in a child process.

libFuzzer ends a process at its first crash. This process writes the input of each different crash to a file, and
continues.
Import this module before the packages of Ensayo: it adds the instructions that measure coverage to them.
"""

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import atheris

OWN_PACKAGES = ["analysis", "compose", "ensayo", "services"]

# Atheris prints a line for each module.
with redirect_stderr(StringIO()), atheris.instrument_imports(include=OWN_PACKAGES):
    from fuzz_targets import TARGETS, FuzzTarget

__all__ = ["TARGETS", "CrashRecorder", "run_fuzzer"]


class CrashRecorder:
    """Callback of the fuzzer, which records one input for each place at which a reader crashes."""

    def __init__(self, target: FuzzTarget, crash_folder: Path) -> None:
        self._target = target
        self._crash_folder = crash_folder

    def __call__(self, content: bytes) -> None:
        """Read one input; record it if the reader crashes at a new place."""
        try:
            self._target.check(content)
        except Exception as error:  # noqa: BLE001 - every error that is not documented is a crash
            self._record(content, error)

    def _record(self, content: bytes, error: Exception) -> None:
        name = f"crash-{type(error).__name__}-{_place_of(error)}"
        path = self._crash_folder / name
        if not path.exists():
            path.write_bytes(content)
            text = "".join(traceback.format_exception(error))
            path.with_name(f"{name}.txt").write_text(text, encoding="utf-8", errors="replace")


def _place_of(error: Exception) -> str:
    """Return file and line in the packages of Ensayo, or in the target, where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if any(f"/{package}/" in frame.filename for package in OWN_PACKAGES)]
    frame = (own or frames)[-1]
    return f"{Path(frame.filename).stem}-{frame.lineno}"


def run_fuzzer(target: FuzzTarget, crash_folder: Path, log: Path, scratch: str, arguments: Sequence[str]) -> None:
    """Fuzz a target until a limit of libFuzzer is reached, then end this process.

    Args:
        target: reader to fuzz.
        crash_folder: folder of the inputs with which the reader crashes.
        log: file to which libFuzzer writes its log.
        scratch: folder of temporary files and caches.
        arguments: of libFuzzer.
    """
    with log.open("w") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    tempfile.tempdir = os.environ["XDG_CACHE_HOME"] = scratch
    limits = (f"-max_len={target.max_bytes}", "-timeout=600", "-report_slow_units=600", "-rss_limit_mb=4096")
    atheris.Setup([target.name, *arguments, *limits], CrashRecorder(target, crash_folder))
    atheris.Fuzz()
