"""State machines tested by scripts: text files with the inputs of a machine and its expected outputs.

A line of a script is a command with arguments; `new` creates the machine. The lines from `->` to the next command are
the expected output, one action per line. `pytest tests/machines --rewrite` writes the outputs anew, for review.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.coordinator.machine import RunStateMachine
from services.coordinator.membership_machine import MembershipStateMachine
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
from services.ps_shard.machine import ShardStateMachine
from services.ps_shard.shard_actions import WorkerPush
from services.runtime.control import EvaluationPointReport, SwitchStageReport
from services.runtime.membership import RecoveryReport
from services.scenario.recovery import RecoverySettings
from services.scenario.target import QualityTarget
from services.schema.errors import EnsayoError
from services.schema.units import Duration
from services.strategies import AllReduce, ParameterServer, StrategySwitch
from services.strategies.switching.rules import NeverRule

SCRIPTS = sorted(Path(__file__).parent.glob("*/*.txt"))  # one folder per machine
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


def new_run(workers: int, points: int, *, synchronous: bool, at_least: float | None = None) -> RunStateMachine:
    names = tuple(f"worker-{rank}" for rank in range(workers))
    target = None if at_least is None else QualityTarget(metric="accuracy", at_least=at_least)
    return RunStateMachine(frozenset({*names, "server-0"}), names, points, synchronous, target, "the plan")


def push(shard: ShardStateMachine, now: float = 0.0, **fields: Any) -> list[Any]:
    return shard.handle_push(WorkerPush(**fields), now)


def point_reached(run: RunStateMachine, node: str, number: int, params: str = "params") -> list[Any]:
    return run.handle_evaluation_point(point_report(node, number, params.encode()))


def evaluated(run: RunStateMachine, number: int, accuracy: float) -> list[Any]:
    return run.handle_evaluation(point_report("worker-0", number), {"accuracy": accuracy})


def point_report(node: str, number: int, params: bytes = b"params") -> EvaluationPointReport:
    """Return a report with ten steps and 100 samples per point; the mean loss is the number of the point."""
    return EvaluationPointReport(
        node, number, 10 * number, 100 * number, loss_sum=50.0 * number, loss_samples=50, parameters=params
    )


def new_switch(workers: int, before: str, after: str) -> StrategySwitchStateMachine:
    """Return a machine for a switch between two strategies with at most one dedicated server."""
    strategies = {
        "ring": AllReduce(),
        "bsp": ParameterServer(),
        "asp": ParameterServer(synchrony=Asp()),
        "asp_beside_workers": ParameterServer(synchrony=Asp(), placement=ColocatedPlacement()),
    }
    strategy = StrategySwitch(before=strategies[before], after=strategies[after], when=NeverRule())
    names = tuple(f"worker-{rank}" for rank in range(workers))
    phases = strategy.training_phases()
    dedicated = tuple(f"server-{shard}" for shard in range(phases.server_count))
    owners = phases.first_server_algorithm.shard_owners(names, dedicated) if phases.first_server_algorithm else ()
    return StrategySwitchStateMachine(phases.switch, names, owners)


def state_reported(
    switch: StrategySwitchStateMachine, node: str, stage: Any, step: int = 0, **fields: Any
) -> list[Any]:
    """Report the state of a node that has one range of the vector; the version defaults to the step."""
    digests = {f"{key}_digests": (fields.pop(key),) if key in fields else () for key in ("params", "state")}
    is_server = fields.pop("is_server", node.startswith("server"))
    return switch.handle_node_report(
        SwitchStageReport(node, stage, step, is_server=is_server, **{"version": step, **fields}, **digests)
    )


def new_membership(
    workers: int, policy: Any, servers: int = 0, *, are_servers_idle: bool = False
) -> MembershipStateMachine:
    """Return a machine whose nodes are watched from time 0 on, with a timeout of a second."""
    settings = RecoverySettings(on_failure=policy, heartbeat_timeout=Duration("1s"))
    workers_and_servers = (
        tuple(f"{role}-{k}" for k in range(n)) for role, n in (("worker", workers), ("server", servers))
    )
    machine = MembershipStateMachine(settings, *workers_and_servers, are_servers_idle=are_servers_idle)
    machine.start_watching(0.0)
    return machine


def heartbeats(membership: MembershipStateMachine, at: float, nodes: Any) -> list[Any]:
    """Record heartbeats of several nodes, such as "worker-0,worker-1"."""
    for node in nodes.split(","):
        membership.handle_heartbeat(node, at)
    return []


def can_continue(membership: MembershipStateMachine, node: str, epoch: int, steps: Any = ()) -> list[Any]:
    kept = steps if isinstance(steps, tuple) else (steps,)
    return membership.handle_recovery_report(RecoveryReport(node, epoch, kept))


CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "shard": new_shard,
    "run": new_run,
    "switch": new_switch,
    "membership": new_membership,
}
COMMANDS: dict[str, Callable[..., list[Any]]] = {
    "push": push,
    "left": lambda machine, member: machine.handle_leave(member) or [],  # the rank of a worker, or the name of a node
    "joined": lambda machine, node, plan="the plan": machine.handle_join(node, plan),
    "gate_opened": lambda machine: machine.handle_start_gate_open(),
    "point_reached": point_reached,
    "evaluated": evaluated,
    "state_reported": state_reported,
    "heartbeats": heartbeats,
    "excused": lambda membership, late, at: membership.excuse_silence(late, at) or [],
    "checked": lambda membership, at: membership.find_lost_nodes(at),
    "rejoined": lambda membership, node, at: membership.handle_rejoin(node, at),
    "can_continue": can_continue,
    "active": lambda membership: sorted(membership.active_members),
    "switched": lambda machine, synchronous: machine.handle_strategy_switch(needs_common_step=synchronous) or [],
    "lost": lambda run, node: run.handle_node_loss(node),
    "workers_changed": lambda run, nodes: run.change_workers(tuple(nodes.split(","))) or [],
    "abort": lambda machine, reason: machine.abort(reason),
}


def run_script(script: str) -> str:
    """Return the script with the actual outputs of its machines."""
    return "".join(_script_lines(script))


def _script_lines(script: str) -> Iterator[str]:
    machine: Any = None
    for line in script.splitlines():
        if line.startswith(("->", "   ")):
            continue
        yield f"{line}\n"
        if not line or line.startswith("#"):
            continue
        command, _, rest = line.partition(" ")
        if command == "new":
            kind, _, rest = rest.partition(" ")
            machine = CONSTRUCTORS[kind](**_arguments(rest))
        else:
            yield from _output_lines(lambda: COMMANDS[command](machine, **_arguments(rest)))  # noqa: B023 - called at once


def _output_lines(run_command: Callable[[], list[Any]]) -> Iterator[str]:
    try:
        outputs = [_action_text(action) for action in run_command()] or ["nothing"]
    except EnsayoError as error:
        outputs = [f"{type(error).__name__}: {error}"]
    for number, output in enumerate(outputs):
        yield f"{'  ' if number else '->'} {output}\n"


def _action_text(action: Any) -> str:
    """Return the text of an action; a worker's report is shortened to its node and number."""
    text = repr(action)
    if (report := getattr(action, "report", None)) and isinstance(report, EvaluationPointReport):
        text = text.replace(repr(report), f"{report.node_name} {report.number}")
    return text


def _arguments(text: str) -> dict[str, Any]:
    """Return the arguments written as `key=value`; a value that is no Python literal is a string."""
    pairs = (word.split("=", 1) for word in text.split(" ") if word)
    return {key: _value(value) for key, value in pairs}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text.replace("_", " ") if text.startswith("another") else text


def test_scripts_exist_for_every_machine() -> None:
    """Without this check a runner that finds no script would pass without testing anything."""
    assert {path.parent.name for path in SCRIPTS} == CONSTRUCTORS.keys()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}_{path.stem}")
def test_machine_produces_the_outputs_of_its_script(path: Path, pytestconfig: pytest.Config) -> None:
    """A script reads as a sequence of messages, so a reader can spot a wrong reply without knowing the code."""
    script = path.read_text(encoding="utf-8")

    actual = run_script(script)

    if pytestconfig.getoption("--rewrite"):
        path.write_text(actual, encoding="utf-8")
    assert actual == path.read_text(encoding="utf-8")
