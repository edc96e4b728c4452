"""Plan of one trial that runs a training command of the user."""

from pathlib import Path
from typing import Literal

from services.plan.node_plan import NodePlan, NodeRole
from services.plan.plan import Plan
from services.scenario.commands.command_workload import CommandWorkload
from services.scenario.commands.step_profile import StepProfile
from services.strategies import CommandStrategy


class CommandPlan(Plan):
    """Plan of a trial in which each worker runs a process of the user's training command."""

    workload_kind: Literal["command"] = "command"
    command: tuple[str, ...]  # with all variables replaced
    workload: CommandWorkload
    step_profile: StepProfile | None  # from a dry run; None: it is not known
    no_step_profile_reason: str = ""
    collective_s: tuple[float, ...] = ()  # predicted virtual seconds of each collective of the step profile
    racks: tuple[tuple[int, ...], ...] = ()  # ranks of workers that are near each other

    @property
    def sample_budget(self) -> int:
        return 0

    @property
    def code_folders(self) -> tuple[Path, ...]:
        return () if self.workload.code_folder is None else (self.workload.code_folder,)

    def host_folders(self, role: NodeRole) -> tuple[Path, ...]:
        if role != "worker":
            return ()
        return (Path(self.workload.folder), *self.code_folders, *map(Path, self.workload.host_packages))

    @property
    def host_python(self) -> str | None:
        interpreter = self.workload.interpreter
        return interpreter.minor_version if interpreter and self.workload.image_facts is None else None

    @property
    def command_strategy(self) -> CommandStrategy:
        """Strategy of the command."""
        if not isinstance(self.strategy, CommandStrategy):
            raise TypeError(f"trial {self.trial}: strategy {self.strategy.kind} runs no command")
        return self.strategy

    @property
    def process_group(self) -> Literal["gloo", "ensayo"]:
        """What runs the collectives of the command."""
        return self.command_strategy.process_group

    def step_compute_s(self, node: NodePlan) -> float | None:
        """Return the declared compute time of a step of a worker in virtual seconds, without its variation.

        Return None if the worker computes as fast as the host.
        """
        return self.workload.batch_per_worker / node.throughput if node.throughput else None
