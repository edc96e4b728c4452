"""Fuzzes one target after the other: `python tests/fuzz/run_fuzzers.py [--seconds 600] [--seed 1] [--target NAME ...]`.

Interesting inputs and crashes of a target lie in `build/fuzz/<target>/` afterwards; the next call continues with them.
"""

import argparse
import multiprocessing
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fuzz_process import TARGETS, run_fuzzer

FOLDER = Path(__file__).parent
SEEDS = FOLDER / "corpus"
WORK_FOLDER = FOLDER.parents[1] / "build" / "fuzz"
DONE = re.compile(r"Done (\d+) runs in (\d+) second")
END_TIMEOUT_S = 300  # for the seeds, and for the input that is read when the time is over


@dataclass(frozen=True)
class FuzzResult:
    """What the fuzzer of one target has done."""

    target_name: str
    runs: int
    seconds: int
    crashes: tuple[Path, ...]

    def format_row(self) -> str:
        """Return the result as a row of a Markdown table."""
        rate = f"{self.runs / self.seconds:,.0f}" if self.seconds else ""
        return f"| `{self.target_name}` | {self.seconds} | {self.runs:,} | {rate} | {len(self.crashes)} |"


def fuzz(target_name: str, seconds: int, seed: int) -> FuzzResult:
    """Fuzz one target for so many seconds, in a process of its own; seed 0 of libFuzzer is a random one."""
    folder = WORK_FOLDER / target_name
    corpus, crashes, log = folder / "corpus", folder / "crashes", folder / "log.txt"
    for each in (corpus, crashes):
        each.mkdir(parents=True, exist_ok=True)
    limits = [f"-max_total_time={seconds}", f"-seed={seed}", f"-artifact_prefix={crashes}/"]
    arguments = [*limits, str(corpus), str(SEEDS / target_name)]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        # A copy of this process: the packages are imported and instrumented once for all targets, which takes long.
        process = multiprocessing.get_context("fork").Process(
            target=run_fuzzer, args=(TARGETS[target_name], crashes, log, scratch, arguments)
        )
        process.start()
        process.join(seconds + END_TIMEOUT_S)
        process.kill()
        process.join()
    text = log.read_text(encoding="utf-8", errors="replace")
    runs, run_s = (int(number) for number in done.groups()) if (done := DONE.search(text)) else (0, seconds)
    paths = [path for path in sorted(crashes.iterdir()) if path.suffix != ".txt"]
    if not done:  # an input has ended the process; if libFuzzer could not keep it, the log is all there is
        paths = paths or [log]
    return FuzzResult(target_name, runs, run_s, tuple(paths))


def main() -> None:
    """Fuzz the chosen targets, print a row for each, and end with 1 if a reader crashes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600, help="wall seconds for each target")
    parser.add_argument("--seed", type=int, default=0, help="of the changes of inputs; 0: another one for each call")
    parser.add_argument("--target", nargs="*", choices=TARGETS, default=list(TARGETS))
    arguments = parser.parse_args()
    print("| target | seconds | executions | per second | crashes |\n| --- | ---: | ---: | ---: | ---: |")  # noqa: T201
    has_crashes = False
    for name in arguments.target:
        result = fuzz(name, arguments.seconds, arguments.seed)
        print(result.format_row(), flush=True)  # noqa: T201
        for crash in result.crashes:
            print(f"  {crash}", flush=True)  # noqa: T201
        has_crashes = has_crashes or bool(result.crashes)
    sys.exit(has_crashes)


if __name__ == "__main__":
    main()
