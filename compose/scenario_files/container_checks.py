"""Check that containers can read the files, and import the packages, of a user's command."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from compose.commands.packages import explain_packages_missing_in_containers
from compose.commands.unreadable_files import explain_unreadable_file
from compose.scenario_files.swept_trial import SweptTrial
from services.scenario.commands.command_workload import CommandWorkload
from services.scenario.run_settings import EngineName
from services.scenario.sweep import SweepPoint
from services.schema.conflicts import KeyConflict

# Key of the workload that names the files -> reason why containers can't use them; empty if they can.
CONTAINER_CHECKS: Mapping[str, Callable[[CommandWorkload], str]] = {
    "requires": explain_packages_missing_in_containers,
    "folder": explain_unreadable_file,
}


def find_files_unreadable_in_containers(
    trials: Sequence[SweptTrial], resolve_engine_name: Callable[[], EngineName]
) -> Iterator[tuple[KeyConflict, SweepPoint]]:
    """Yield a conflict for each key of a command whose files or packages containers can't use.

    Commands whose packages are missing are left out: their trials are skipped, or fail for that reason.

    Args:
        trials: all trials to check.
        resolve_engine_name: returns the engine that will run the trials; it is called only if there may be a conflict.
    """
    workloads = [trial.trial.scenario.workload for trial in trials]
    conflicts = dict.fromkeys(
        KeyConflict(("workload", key), reason)
        for workload in workloads
        if isinstance(workload, CommandWorkload) and not workload.missing_modules
        for key, explain in CONTAINER_CHECKS.items()
        if (reason := explain(workload))
    )
    if conflicts and resolve_engine_name() == "docker":
        yield from ((conflict, {}) for conflict in conflicts)
