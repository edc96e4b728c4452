"""Packages that a user's command needs, and that its interpreter or its containers lack."""

from pathlib import Path

from services.plan import CommandPlan, Plan
from services.scenario.commands.command_workload import CommandWorkload
from services.schema.message_paths import path_for_messages


def explain_missing_packages(plan: Plan) -> str | None:
    """Return the packages that the interpreter of a command lacks, and the remedy; None if it lacks none."""
    if not isinstance(plan, CommandPlan) or not (missing := plan.workload.missing_modules):
        return None
    interpreter = plan.workload.interpreter
    python = path_for_messages(Path(interpreter.path)) if interpreter else "python"
    names, verb = " and ".join(missing), "is" if len(missing) == 1 else "are"
    if requirements := plan.workload.requirements:
        place = path_for_messages(Path(requirements))
        return f"{names} {verb} not in the environment of {place}; add the packages that contain {names} to this file"
    if image := plan.workload.image:
        return f"{names} {verb} not installed in the image {image}; install the packages that contain {names} there"
    return (
        f"{names} {verb} not installed for {python}; install the packages that contain {names} there, or set "
        "workload.python or workload.requirements"
    )


def explain_packages_missing_in_containers(workload: CommandWorkload) -> str:
    """Return which required package containers can't import, although the interpreter finds it, and the remedy.

    The result is empty if there is none. Containers see only the folders of the interpreter's installed packages, not
    those that it finds through `.pth` files, such as the packages of another environment.
    """
    interpreter = workload.interpreter
    if interpreter is None or not interpreter.outside:
        return ""
    name, folder = next(iter(interpreter.outside.items()))
    installed = " and ".join(path_for_messages(Path(path)) for path in interpreter.packages)
    return (
        f"{path_for_messages(Path(interpreter.path))} finds {name} in {path_for_messages(Path(folder))}, but "
        f"containers import only from {installed}; install {name} there, set workload.requirements, or use engine local"
    )
