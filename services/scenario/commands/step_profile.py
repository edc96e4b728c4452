"""Collectives and compute of one training step of a user's command, as a dry run on the host has measured them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from services.schema.component import FrozenRecord

if TYPE_CHECKING:
    from services.scenario.commands.command_workload import CommandWorkload


class CollectiveCall(FrozenRecord):
    """One call of a collective operation of `torch.distributed`."""

    operation: str  # such as all_reduce
    bytes: int  # size S of the operation on one rank: see `payload_bytes_sent` for what it means
    dtype: str = ""
    group_size: int  # ranks that take part
    is_asynchronous: bool = False
    root_rank: int | None = None  # of a broadcast, in its group; None: other operations, or not known
    reduce_operation: str | None = None  # such as sum, avg or max; None: other operations, or not known

    @property
    def adds_entries(self) -> bool:
        """Whether the entries of all ranks are added, as in a sum or a mean; also if the reduction is not known."""
        return self.reduce_operation in (None, "sum", "avg")


class StepProfile(FrozenRecord):
    """One step of a command in steady state: its collectives, and where in the step each of them is launched.

    All ranks are paced by one step profile. Profiles that each rank measured for itself differed by a quarter, which
    made steps 7 % longer.
    """

    collectives: tuple[CollectiveCall, ...]
    start_collectives: tuple[CollectiveCall, ...] = ()  # before the first step
    launch_shares: tuple[float, ...]  # of the step's compute, before each collective
    wait_shares: tuple[float, ...]  # of the step's compute, before the script waits for each collective
    update_share: float  # of the step's compute, before the optimiser's update
    cpu_s: float  # CPU seconds of a step of one rank on this host
    begins_without_gradient: bool = False  # forward passes without gradient at its begin are no evaluation


class StepProfileOutcome(NamedTuple):
    """Result of a dry run: the step profile, or the reason why there is none."""

    step_profile: StepProfile | None
    reason: str = ""


def _make_no_step_profile(workload: "CommandWorkload", worker_count: int, seed: int) -> StepProfileOutcome:  # noqa: ARG001
    return StepProfileOutcome(None, "no dry run was made")


StepProfiler = Callable[["CommandWorkload", int, int], StepProfileOutcome]
_profilers: list[StepProfiler] = [_make_no_step_profile]


def install_step_profiler(profiler: StepProfiler) -> None:
    """Make `profiler` the function that measures the step profile of a command; only the host can run commands."""
    _profilers[0] = profiler


def measure_step_profile(workload: "CommandWorkload", worker_count: int, seed: int) -> StepProfileOutcome:
    """Return the step profile of a command on so many ranks, measured by the installed profiler."""
    return _profilers[0](workload, worker_count, seed)
