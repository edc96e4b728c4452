"""What of a record is missing, cut off, from another version, or no number? Told by file and line.

What must be there stands in the plan, in the engine's word that all went well, and in what nodes count at their end.
A trial with any damage is left out of comparisons; the rest of its run is not touched by it.
"""

from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from traceback import extract_tb
from typing import Any, TypeVar

from pydantic import ValidationError

from analysis.reading.batch import Batch
from analysis.reading.mllog import Broken, Event, Log
from analysis.reading.plan_view import Node, PlanView
from analysis.reading.run_folder import RunFolder, TrialFolder

T = TypeVar("T")
DIVERGED = ": training diverged"
DOCUMENTS = ("scenario.yaml", "resolved.yaml")  # as it was given, and with every default
TIMES = ("start_s", "step_s", "data_s", "compute_s", "exchange_s", "wait_s", "update_s")


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong with a file."""

    trial: str  # empty: the file is the run's
    file: str  # below the trial's folder, or the run's
    line: int | None  # from 1; None: the file as a whole
    what: str
    diverged: bool = False  # nothing is wrong with the file: training gave no numbers any more

    def __str__(self) -> str:
        """As compilers say it, so that editors find the place."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"trials/{self.trial}/{place}: {self.what}" if self.trial else f"{place}: {self.what}"


def understood(folder: TrialFolder, read: Callable[[TrialFolder], T]) -> T | Damage:
    """What a reader makes of a trial's files, or what of them it can't understand.

    Only for what reads: whatever fails later, with records that could be read, is a mistake of ours and no damage.
    """
    try:
        return read(folder)
    except ValidationError as error:
        file = folder.plan if error.title == PlanView.__name__ else folder.status
        return Damage(folder.path.name, file.name, None, _invalid(error))
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # whatever strange logs make of a reader
        what = f"not understood ({type(error).__name__} at {_place(error)}: {error}); of another version?"
        return Damage(folder.path.name, "logs", None, what)


def _invalid(error: ValidationError, *within: str) -> str:
    """The first thing that is wrong, by its key in the file; `within`: the keys above what was read."""
    first = error.errors()[0]
    key = ".".join(map(str, (*within, *first["loc"]))) or "the file"
    return f"{key}: {first['msg']}; empty, cut off or written by another version"


def _place(error: Exception) -> str:
    """Where in our own code it arose, so that a mistake of ours can be found: file:line of the innermost frame."""
    packages = Path(__file__).resolve().parents[2]
    frames = [(Path(each.filename), each.lineno) for each in extract_tb(error.__traceback__)]
    ours = [(path, line) for path, line in frames if path.parent.is_relative_to(packages / "analysis")]
    path, line = (ours or frames)[-1]
    return f"{path.relative_to(packages) if ours else path.name}:{line}"


def damage_of_run(folder: RunFolder) -> tuple[Damage, ...]:
    """What is wrong with the files that a run has beside its trials, and which trials have lost their plan."""
    found = [("manifest.json", None if folder.manifest else "no JSON object: empty or cut off")]
    found += [(name, None if folder.document(name) else "no YAML of keys and values") for name in DOCUMENTS]
    absent = [name for name, _ in found if not (folder.path / name).is_file()]
    told = [Damage("", name, None, "missing" if name in absent else what) for name, what in found if what]
    unplanned = (Damage(name, "plan.json", None, "missing") for name in folder.unplanned)
    return (*told, *_of_published(folder), *unplanned)


def _of_published(folder: RunFolder) -> Iterator[Damage]:
    """A scenario that was cut off in the middle is still YAML more often than not."""
    try:
        folder.read_published()
    except ValidationError as error:
        yield Damage("", "scenario.yaml", None, _invalid(error, "published"))


def damage(
    folder: TrialFolder,
    planned: PlanView,
    status: Mapping[str, Any],
    logs: Mapping[str, Log],
    odd: Mapping[str, tuple[Broken, ...]],
) -> tuple[Damage, ...]:
    """All damage of a trial whose plan can be read; `odd`: by node, batches of rows that can't be used.

    That a log is missing, empty or shorter than its node says is damage only where the engine says that all went well.
    """
    found = list(_of_status(folder, status))
    for node, log in logs.items():
        silent = status.get("status") == "success" and not log.events
        lines = [*log.broken, *odd.get(node, ()), *_no_numbers(log)]
        nothing = "empty" if folder.log(node).stat().st_size == 0 else "no event in it"
        told = [(None, nothing)] if silent and not lines else [(line.number, line.what) for line in lines]
        file = f"logs/{node}.log"
        found += [Damage(folder.path.name, file, number, what, what.endswith(DIVERGED)) for number, what in told]
    if status.get("status") == "success":
        named = {each.file for each in found if not each.diverged}
        rest = {f"logs/{node.name}.log": node for node in planned.nodes if f"logs/{node.name}.log" not in named}
        lost = {file: _lost(node, logs) for file, node in rest.items()}
        found += [Damage(folder.path.name, file, None, what) for file, what in lost.items() if what]
    return tuple(found)


def _of_status(folder: TrialFolder, status: Mapping[str, Any]) -> Iterator[Damage]:
    if not status:
        lost = "empty or cut off" if folder.status.is_file() else "missing"
        yield Damage(folder.path.name, folder.status.name, None, f"{lost}: nobody knows how the trial ended")


def _lost(node: Node, logs: Mapping[str, Log]) -> str:
    """What a log lacks whose every line can be read; empty when nothing."""
    log = logs.get(node.name)
    if log is None:
        return "missing"
    if node.role == "coordinator":
        return _lost_switch(log, logs)
    stop = log.last("node_stop")
    if stop is None:
        return "no node_stop in it: its last lines are lost"
    return _lost_steps(log, stop) if node.role == "worker" else ""


def _lost_steps(log: Log, stop: Event) -> str:
    """Workers say at their end how many steps they did; those of before did not, and did one at least."""
    logged = sum(len(_rows(event)) for event in log.of("node_steps"))
    done = stop.value.get("steps") if isinstance(stop.value, dict) else None
    if done is None:
        return "" if logged else "no node_steps in it"
    return "" if logged == done else f"{logged} steps in node_steps where node_stop counts {done}: lines are lost"


def _rows(event: Event) -> Sized:
    rows: Sized = event.value.rows if isinstance(event.value, Batch) else event.value["rows"]
    return rows


def _lost_switch(coordinator: Log, logs: Mapping[str, Log]) -> str:
    told = [node for node, log in logs.items() if log.of("node_switch")]
    if not told or coordinator.of("switch_committed") or coordinator.of("switch_aborted"):
        return ""
    return f"nothing of the switch that {', '.join(told)} tell of: lines are lost"


def _no_numbers(log: Log) -> Iterator[Broken]:
    """The first step, and the first evaluation, that has NaN or infinity where a number belongs."""
    for key, tell in (("node_steps", _in_steps), ("eval_metrics", _in_evaluation)):
        told = ((event.number, tell(event)) for event in log.of(key))
        yield from [Broken(number, what) for number, what in told if what][:1]


def _in_steps(event: Event) -> str:
    value = event.value
    if event.finite:  # looking at every number would take as long as reading them
        return ""
    if not isinstance(value, dict) or not {"columns", "rows"} <= value.keys():
        return ""
    for row in value["rows"]:
        named = dict(zip(value["columns"], row, strict=False))
        for name in (*TIMES, "loss"):
            if _odd(named.get(name)):
                return f"{name} of step {named.get('step')} is {named[name]}{_meaning(name)}"
    return ""


def _in_evaluation(event: Event) -> str:
    if not isinstance(event.value, dict):
        return ""
    name = next((name for name, value in event.value.items() if _odd(value)), None)
    return f"{name} is {event.value[name]}{_meaning('loss')}" if name else ""


def _odd(value: object) -> bool:
    return isinstance(value, float) and not isfinite(value)


def _meaning(name: str) -> str:
    return DIVERGED if name == "loss" else ""
