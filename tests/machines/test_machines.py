"""Machines as scripts: what is told to them, and what they answer, side by side in text files.

A line of a script is a command: the machine, a method, arguments; `new` makes the machine. What follows `->` until the
next command is the answer, an action per line. `pytest tests/machines --rewrite` writes the answers anew, for review.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.coordinator.machine import RunStateMachine
from services.coordinator.switch_machine import StrategySwitchStateMachine
from services.parameter_server.placement import ColocatedPlacement
from services.parameter_server.staleness import CutOffWeighting, UniformWeighting
from services.parameter_server.synchronisers import (
    Asp,
    BackupWorkers,
    Bsp,
    Dssp,
    Gba,
    GreedySynchroniser,
    Ssp,
    StragglerCriterion,
)
from services.ps_shard.machine import ShardStateMachine, WorkerPush
from services.runtime.control import EpochReport, StrategySwitchState
from services.scenario.target import QualityTarget
from services.schema.errors import EnsayoError
from services.strategies import AllReduce, ParameterServer, StrategySwitch
from services.strategies.switching.rules import NeverRule

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
SYNCHRONY = {
    "bsp": Bsp(),
    "asp": Asp(),
    "ssp_1": Ssp(staleness=1),
    "dssp_0_to_2": Dssp(low=0, high=2),
    "backup_1": BackupWorkers(backups=1),
    "gba_of_2": Gba(gather=2, oldest=1),
    "greedy": GreedySynchroniser(stragglers=StragglerCriterion(window=1, windows=1)),
}


def new_shard(workers: int, synchrony: str, oldest: int | None = None) -> ShardStateMachine:
    return ShardStateMachine(
        workers, SYNCHRONY[synchrony], UniformWeighting() if oldest is None else CutOffWeighting(oldest=oldest)
    )


def new_run(workers: int, epochs: int, *, lockstep: bool, at_least: float | None = None) -> RunStateMachine:
    names = tuple(f"worker-{rank}" for rank in range(workers))
    target = None if at_least is None else QualityTarget(metric="accuracy", at_least=at_least)
    return RunStateMachine(frozenset({*names, "server-0"}), names, epochs, lockstep, target, "the plan")


def push(shard: ShardStateMachine, now: float = 0.0, **fields: Any) -> list[Any]:
    return shard.handle_push(WorkerPush(**fields), now)


def epoch_ended(run: RunStateMachine, node: str, number: int) -> list[Any]:
    return run.handle_epoch_end(epoch(node, number))


def evaluated(run: RunStateMachine, number: int, accuracy: float) -> list[Any]:
    return run.handle_evaluation(epoch("worker-0", number), {"accuracy": accuracy})


def epoch(node: str, number: int) -> EpochReport:
    """Ten steps and a hundred samples each; the mean loss is the number of the epoch."""
    return EpochReport(node, number, steps=10 * number, samples=100 * number, loss_sum=50.0 * number, loss_samples=50)


def new_switch(workers: int, before: str, after: str) -> StrategySwitchStateMachine:
    """Servers, where there are any, are one."""
    parts = {
        "ring": AllReduce(),
        "bsp": ParameterServer(),
        "asp": ParameterServer(synchrony=Asp()),
        "asp_beside_workers": ParameterServer(synchrony=Asp(), placement=ColocatedPlacement()),
    }
    strategy = StrategySwitch(before=parts[before], after=parts[after], when=NeverRule())
    names = tuple(f"worker-{rank}" for rank in range(workers))
    phases = strategy.training_phases()
    dedicated = tuple(f"server-{shard}" for shard in range(phases.server_count))
    owners = phases.first_server_algorithm.shard_owners(names, dedicated) if phases.first_server_algorithm else ()
    return StrategySwitchStateMachine(phases.switch, names, owners)


def held(switch: StrategySwitchStateMachine, node: str, told: Any, step: int = 0, **fields: Any) -> list[Any]:
    """Of one range; a version is that of the step where nothing else is said."""
    digests = {f"{key}_digests": (fields.pop(key),) if key in fields else () for key in ("params", "state")}
    serves = fields.pop("serves", node.startswith("server"))
    return switch.handle_switch_state(
        StrategySwitchState(node, told, step, is_server=serves, **{"version": step, **fields}, **digests)
    )


MAKE: dict[str, Callable[..., Any]] = {"shard": new_shard, "run": new_run, "switch": new_switch}
TELL: dict[str, Callable[..., list[Any]]] = {
    "push": push,
    "left": lambda machine, who: machine.handle_leave(who),  # a rank of a shard, a node of a run
    "joined": lambda machine, node, plan="the plan": machine.handle_join(node, plan),
    "gate_opened": lambda machine: machine.handle_start_gate_open(),
    "epoch_ended": epoch_ended,
    "evaluated": evaluated,
    "held": held,
    "give_up": lambda machine, reason: machine.abort(reason),
}


def play(script: str) -> str:
    """The script with the answers of the machines that run now."""
    return "".join(_lines(script))


def _lines(script: str) -> Iterator[str]:
    machine: Any = None
    for line in script.splitlines():
        if line.startswith(("->", "   ")):
            continue
        yield f"{line}\n"
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "new":
            kind, _, rest = rest.partition(" ")
            machine = MAKE[kind](**_arguments(rest))
        else:
            yield from _answer(lambda: TELL[word](machine, **_arguments(rest)))  # noqa: B023 - called at once


def _answer(tell: Callable[[], list[Any]]) -> Iterator[str]:
    try:
        told = [_brief(action) for action in tell()] or ["nothing"]
    except EnsayoError as error:
        told = [f"{type(error).__name__}: {error}"]
    for number, action in enumerate(told):
        yield f"{'  ' if number else '->'} {action}\n"


def _brief(action: Any) -> str:
    """Of an epoch only what names it."""
    said = repr(action)
    if (told := getattr(action, "epoch", None)) and isinstance(told, EpochReport):
        said = said.replace(repr(told), f"{told.node_name} {told.epoch}")
    return said


def _arguments(text: str) -> dict[str, Any]:
    """`key=value` words; what is no Python literal is a word."""
    pairs = (word.split("=", 1) for word in text.split(" ") if word)
    return {key: _value(value) for key, value in pairs}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text.replace("_", " ") if text.startswith("another") else text


def test_there_are_scripts() -> None:
    """A runner that finds no file passes without looking at anything."""
    assert {path.stem.partition("_")[0] for path in SCRIPTS} == {"shard", "run", "switch"}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_machine_answers_as_its_script_says(path: Path, pytestconfig: pytest.Config) -> None:
    """A protocol is a conversation: read as one, a wrong answer is seen by somebody who never saw the code."""
    script = path.read_text(encoding="utf-8")

    played = play(script)

    if pytestconfig.getoption("--rewrite"):
        path.write_text(played, encoding="utf-8")
    assert played == path.read_text(encoding="utf-8")
