"""Row `starts`: starts of a run with four nodes, most of which are interrupted at a random moment.

The share of a run after which it is interrupted comes from a seed.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from benchmarks.endurance.growth import list_growth_lines
from benchmarks.endurance.leftovers import REMOVAL_S, EngineTotals, Leftovers, RunPlace, count_engine_totals, open_place
from benchmarks.endurance.row import ResultLine, RowContext
from benchmarks.endurance.runs import find_nodes, find_run_folders, make_scenario, start_ensayo, start_run, wait_for_end
from ensayo.exit_codes import ExitCode
from services.schema.component import FrozenRecord

Interruption = Literal["none", "ctrl_c", "terminate", "kill_runner", "kill_node"]
INTERRUPTIONS: tuple[Interruption, ...] = get_args(Interruption)
INTERRUPTION_TEXTS: Mapping[Interruption, str] = {
    "none": "not interrupted",
    "ctrl_c": "Ctrl-C (SIGINT to the process group)",
    "terminate": "SIGTERM",
    "kill_runner": "`kill -9` of `ensayo run`",
    "kill_node": "`kill -9` of a random node",
}
END_OF_NODES_S = 30.0  # in which the nodes of a killed runner end
NODE_POLL_INTERVAL_S = 0.05
SCENARIO = make_scenario("starts", workers=3)  # and a coordinator
START_COUNT, SEED = 200, 1
# A busy host can make a verdict invalid, which is no error of the run.
FINISHED = (ExitCode.OK, ExitCode.INVALID)
EXPECTED_EXIT_CODES: Mapping[Interruption, tuple[int, ...]] = {
    "none": FINISHED,
    "ctrl_c": (ExitCode.INTERRUPTED, -signal.SIGINT),  # the latter before the command line has been read
    "terminate": (ExitCode.INTERRUPTED, -signal.SIGTERM),
    "kill_runner": (-signal.SIGKILL,),
    "kill_node": (ExitCode.FAILED, *FINISHED),  # a node that is killed while it is removed fails no trial
}


class StartRecord(FrozenRecord):
    """What one start left on the host."""

    number: int
    interruption: Interruption
    moment_s: float  # wall seconds after the start of the process
    came_too_late: bool  # the run had ended before the interruption
    exit_code: int
    end_s: float  # wall seconds from the end of the process until nothing was left, or ran if the runner was killed
    after_end: Leftovers
    after_clean: Leftovers  # of a killed runner: after the clean-up; of others as `after_end`
    problem: str  # empty if the start was as it must be
    failure: str = ""  # why an uninterrupted run failed, for example because this host was busy
    run_s: float  # wall seconds of the process
    engine_totals: EngineTotals | None = None  # None: without containers


@dataclass(frozen=True)
class StartSeries:
    """Starts of one scenario at one place."""

    place: RunPlace
    engine_name: str

    def run_start(self, number: int, uninterrupted_s: float) -> StartRecord:
        """Start the run with this number, interrupt it, and return what is left.

        Args:
            number: determines how and after which share of the run it is interrupted.
            uninterrupted_s: wall seconds of the latest run that was not interrupted.
        """
        generator = random.Random(f"{SEED}-{number}")
        interruption = INTERRUPTIONS[number % len(INTERRUPTIONS)]
        moment_s = generator.uniform(0, uninterrupted_s)
        earlier_folders, started_s = find_run_folders(self.place), time.monotonic()
        process = start_run(self.place, self.engine_name, SCENARIO)
        came_too_late = not self._interrupt(process, interruption, moment_s, generator)
        exit_code = wait_for_end(process)
        run_s = time.monotonic() - started_s
        last_line = (self.place.output.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]
        last_line = last_line.replace(f"{Path.cwd()}/", "")  # the results page names no path of this machine
        if interruption == "kill_runner" and not came_too_late:
            after_end, end_s = self.place.wait_until_nothing_runs(END_OF_NODES_S)
            for folder in find_run_folders(self.place) - earlier_folders:
                wait_for_end(start_ensayo(self.place, "clean", str(folder)))
            after_clean = self.place.find_leftovers()
        else:
            after_end, end_s = self.place.wait_until_nothing_is_left(REMOVAL_S)
            after_clean = after_end
        is_whole = came_too_late or interruption == "none"
        failure = self._read_failure() if is_whole and exit_code == ExitCode.FAILED else ""
        expected = (exit_code,) if failure else EXPECTED_EXIT_CODES["none" if is_whole else interruption]
        return StartRecord(
            number=number,
            interruption=interruption,
            moment_s=round(moment_s, 2),
            came_too_late=came_too_late,
            exit_code=exit_code,
            end_s=round(end_s, 2),
            after_end=after_end,
            after_clean=after_clean,
            problem="; ".join(_list_problems(exit_code, expected, last_line, after_end, after_clean)),
            failure=failure,
            run_s=round(run_s, 1),
            engine_totals=count_engine_totals(self.place.engine) if self.place.engine else None,
        )

    def _read_failure(self) -> str:
        """Return why the only trial of the latest run failed; empty if it did not."""
        paths = self.place.runs_folder.glob("latest/trials/*/status.json")
        return next((str(json.loads(path.read_bytes())["reason"]) for path in paths), "")

    def _interrupt(
        self, process: subprocess.Popen[bytes], interruption: Interruption, moment_s: float, generator: random.Random
    ) -> bool:
        """Wait for the moment and interrupt the run; return whether the run had not ended before."""
        if interruption == "none":
            return True
        with suppress(subprocess.TimeoutExpired):
            process.wait(moment_s)
        if process.poll() is not None:
            return False
        match interruption:
            case "ctrl_c":  # a terminal signals the whole process group
                os.killpg(process.pid, signal.SIGINT)
            case "terminate":
                process.terminate()
            case "kill_runner":
                process.kill()
            case "kill_node":
                return self._kill_random_node(process, generator)
        return True

    def _kill_random_node(self, process: subprocess.Popen[bytes], generator: random.Random) -> bool:
        """Kill a node with SIGKILL as soon as one runs; return whether one did before the end of the run."""
        while process.poll() is None:
            if (nodes := find_nodes(self.place)) and generator.choice(nodes).kill():
                return True
            time.sleep(NODE_POLL_INTERVAL_S)
        return False


def _list_problems(
    exit_code: int, expected: tuple[int, ...], last_line: str, after_end: Leftovers, after_clean: Leftovers
) -> Iterator[str]:
    if exit_code not in expected:
        codes = " or ".join(f"{code:d}" for code in expected)
        yield f"exit code {exit_code}, expected {codes}, last line of the output: {last_line}"
    if not after_end.runs_nothing:
        yield f"still running: {after_end}"
    if not after_clean.is_nothing:
        yield f"left: {after_clean}"


def measure_starts(context: RowContext) -> Iterator[ResultLine]:
    """Make the starts that are missing, each of which is saved, and yield the results of all."""
    path = context.state_folder / "starts.jsonl"
    records = read_start_records(path)
    with open_place(context.folder, has_containers=True) as place:
        series = StartSeries(place, "docker")
        for number in range(len(records), START_COUNT):
            whole_s = [record.run_s for record in records if record.interruption == "none"]
            records.append(series.run_start(number, whole_s[-1] if whole_s else 0.0))
            with path.open("a") as file:
                file.write(records[-1].model_dump_json() + "\n")
            sys.stderr.write(f"start {number}: {records[-1].interruption}, {records[-1].problem or 'ok'}\n")
    yield from list_start_lines(records)


def read_start_records(path: Path) -> list[StartRecord]:
    """Return the records in a file, if it exists."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [StartRecord.model_validate_json(line) for line in lines]


def list_start_lines(records: Sequence[StartRecord]) -> Iterator[ResultLine]:
    """Yield the results of starts: unexpected ends, what was left, and the growth of the engine."""
    is_complete = len(records) == START_COUNT
    yield ResultLine(what="starts", result=f"{len(records)}", limit=f"{START_COUNT}", is_met=is_complete)
    for interruption in INTERRUPTIONS:
        count = sum(record.interruption == interruption for record in records)
        late = sum(record.interruption == interruption and record.came_too_late for record in records)
        too_late = f", {late} of them after the end of the run" if late else ""
        yield ResultLine(what=f"starts, {INTERRUPTION_TEXTS[interruption]}", result=f"{count}{too_late}")
    killed = [one for one in records if one.interruption == "kill_runner" and not one.came_too_late]
    others = [one for one in records if one not in killed]
    yield _limit_to_none("starts with another exit code", [one for one in records if "exit code" in one.problem])
    yield _limit_to_none(
        "starts after which something was left", [one for one in others if not one.after_end.is_nothing]
    )
    yield _limit_to_none(
        f"killed runners whose nodes still ran after {END_OF_NODES_S:g} s",
        [one for one in killed if not one.after_end.runs_nothing],
    )
    slowest_s = max((one.end_s for one in killed), default=0.0)
    yield ResultLine(what="longest time until no node of a killed runner ran", result=f"{slowest_s:.1f} s")
    with_leftovers = sum(not one.after_end.is_nothing for one in killed)
    yield ResultLine(what="killed runners that left containers, networks or keys", result=f"{with_leftovers}")
    yield _limit_to_none(
        "killed runners with leftovers after `ensayo clean RUN`",
        [one for one in killed if not one.after_clean.is_nothing],
    )
    failures = [one for one in records if one.failure]
    yield ResultLine(what="uninterrupted runs that failed", result=_count_with_reasons(one.failure for one in failures))
    yield from list_growth_lines([one.engine_totals for one in records if one.engine_totals])


def _limit_to_none(what: str, records: Sequence[StartRecord]) -> ResultLine:
    result = _count_with_reasons(f"start {one.number}: {one.problem}" for one in records)
    return ResultLine(what=what, result=result, limit="0", is_met=not records)


def _count_with_reasons(reasons: Iterable[str]) -> str:
    texts = list(reasons)
    return f"{len(texts)}" + (f": {'; '.join(texts)}" if texts else "")
