"""Ensayo: rehearse distributed training on one machine. The face: the command line, and the names a program needs.

    import ensayo

    rehearsal = ensayo.rehearsal(ensayo.find("quickstart"), engine="simulated")
    print(rehearsal.verdict, rehearsal.folder / "report.html")

Names are imported when they are first used: `ensayo --help` needs none of them.
"""

from importlib import import_module
from typing import Any

NAMES = {  # name here -> where it lives
    "Scenario": "services.scenario.scenario:Scenario",
    "Trial": "services.scenario.scenario:TrialSpec",
    "Plan": "services.plan.plan:Plan",
    "find": "compose.scenario_files.load:find_scenario",
    "load": "compose.scenario_files.load:load_scenario",
    "schema": "compose.scenario_files.json_schema:scenario_schema",
    "plan": "services.plan.plan:make_plan",
    "rehearse": "ensayo.rehearsal:rehearse",
    "report": "analysis.report.report:write_report",
    "compare": "analysis.comparison.changes:compare_runs",
}

__all__ = list(NAMES)


def __getattr__(name: str) -> Any:
    """Import one of the names above."""
    if name not in NAMES:
        raise AttributeError(f"ensayo has no {name}; it has {', '.join(NAMES)}")
    module, _, attribute = NAMES[name].partition(":")
    return getattr(import_module(module), attribute)
