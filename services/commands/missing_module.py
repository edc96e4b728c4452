"""Advice on a Python module that the interpreter of a user's command can't import."""

import re
from pathlib import Path

from services.scenario.commands.command_workload import CommandWorkload
from services.schema.message_paths import path_for_messages

MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^'.]+)")


def advise_on_missing_module(error_text: str, workload: CommandWorkload) -> str:
    """Return how to install the module that an error of Python names; empty for other errors."""
    match = MISSING_MODULE.search(error_text)
    if match is None:
        return ""
    if workload.image:
        return f"install {match[1]} in the image {workload.image}"
    if workload.requirements:
        return f"add {match[1]} to {path_for_messages(Path(workload.requirements))}"
    python = path_for_messages(Path(workload.interpreter.path)) if workload.interpreter else "the interpreter"
    return f"install {match[1]} in {python}, or set workload.python or workload.requirements"
