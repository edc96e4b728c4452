"""From a scenario file to a judged run: the one place where starting nodes and reading their logs meet."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from compose.engines import choose_engine
from compose.runs.run import RunObserver, ScenarioRun, ScenarioSource, run_scenario
from compose.scenario_files.load import load_scenario, read_question
from ensayo.exit_codes import Exit
from ensayo.progress_display import Silent


@dataclass(frozen=True)
class Rehearsal:
    """A run that is over and judged."""

    folder: Path
    verdict: str  # valid, degraded or invalid
    doubts: tuple[str, ...]  # why trials can't be believed, or did not succeed: "trial: reason"
    exit_code: Exit


def rehearse(
    path: Path,
    engine: str | None = None,
    runs: Path = Path("runs"),
    settings: Mapping[str, str] | None = None,
    observer: RunObserver | None = None,
    command: str = "",
) -> Rehearsal:
    """Run all trials of the scenario at `path` and write the report.

    Args:
        path: of the scenario file.
        engine: runs the nodes; when absent the scenario's, else the best that this host has.
        runs: folder of all runs.
        settings: other values for some keys: dotted path -> YAML.
        observer: is told how it goes.
        command: that somebody typed, for the record.

    Raises:
        UserError: the scenario or the engine is not possible; nothing was started.
        HostError: this host lacks what the engine needs.
    """
    scenario = load_scenario(path, settings, engine)
    choice = choose_engine(engine or scenario.engine)
    source = ScenarioSource(scenario, path.read_text(encoding="utf-8"), read_question(path), command)
    return judged(run_scenario(source, choice, runs, observer or Silent(Console())))


def judged(done: ScenarioRun) -> Rehearsal:
    """Write the report of a run, whether it came to its end or not."""
    from analysis.report import report  # noqa: PLC0415 - pandas and matplotlib take a second, which the nodes can use

    report.write_report(done.folder)
    summary = json.loads((done.folder / "summary.json").read_text(encoding="utf-8"))
    failures = (f"{status.trial}: {status.reason}" for status in done.statuses if status.reason)
    doubts = (f"{trial['id']}: {reason}" for trial in summary["trials"] for reason in trial["reasons"])
    return Rehearsal(done.folder, summary["verdict"], (*failures, *doubts), _exit(done, summary["verdict"]))


def _exit(done: ScenarioRun, verdict: str) -> Exit:
    """The worst that happened."""
    if done.interrupted:
        return Exit.INTERRUPTED
    if any(status.status != "success" for status in done.statuses):
        return Exit.FAILED
    return Exit.INVALID if verdict == "invalid" else Exit.OK
