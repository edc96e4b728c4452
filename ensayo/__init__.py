"""Ensayo: rehearse distributed training on one machine. The face: the command line, and the names a program needs.

    import ensayo

    rehearsal = ensayo.rehearse(ensayo.find("quickstart"), engine="simulated")
    print(rehearsal.verdict, rehearsal.folder / "report.html")

Names are imported when they are first used: `ensayo --help` needs none of them.
"""

from importlib import import_module
from typing import Any

NAMES = {  # name here -> where it lives
    "Scenario": "services.scenario:Scenario",
    "Trial": "services.scenario:Trial",
    "Plan": "services.plan:Plan",
    "find": "compose.load:find",
    "load": "compose.load:load",
    "schema": "compose.schema:schema",
    "plan": "services.plan:make_plan",
    "rehearse": "ensayo.rehearse:rehearse",
    "report": "analysis.report:write",
    "compare": "analysis.compare:compare",
}

__all__ = list(NAMES)


def __getattr__(name: str) -> Any:
    """Import one of the names above."""
    if name not in NAMES:
        raise AttributeError(f"ensayo has no {name}; it has {', '.join(NAMES)}")
    module, _, attribute = NAMES[name].partition(":")
    return getattr(import_module(module), attribute)
