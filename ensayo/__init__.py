"""Ensayo rehearses distributed training on one machine; this package is its command line and Python API.

    import ensayo

    rehearsal = ensayo.rehearse("quickstart", engine="simulated", settings={"sweep.workers": [1, 2]})
    print(rehearsal.verdict, rehearsal.folder / "report.html")

Names are imported when they are first used, since `ensayo --help` needs none of them.
"""

from importlib import import_module
from typing import Any

NAMES = {  # public name -> module:attribute
    "Scenario": "services.scenario.scenario:Scenario",
    "Trial": "services.scenario.scenario:TrialSpec",
    "Plan": "services.plan.plan:Plan",
    "Cluster": "ensayo.declaration.sections:Cluster",
    "Worker": "ensayo.declaration.sections:Worker",
    "Server": "ensayo.declaration.sections:Server",
    "Link": "ensayo.declaration.sections:Link",
    "declare": "ensayo.declaration.document:declare",
    "find": "compose.scenario_files.load:find_scenario",
    "load": "compose.scenario_files.load:load_scenario",
    "schema": "compose.scenario_files.json_schema:scenario_schema",
    "plan": "ensayo.planning:predict_trials",
    "rehearse": "ensayo.rehearsal:rehearse",
    "resume": "ensayo.rehearsal:resume",
    "report": "analysis.report.report:write_report",
    "compare": "analysis.comparison.run_changes:compare_runs",
    "EnsayoError": "services.schema.errors:EnsayoError",
    "UserError": "services.schema.errors:UserError",
    "ScenarioError": "compose.scenario_files.problems:ScenarioError",
    "HostError": "services.schema.errors:HostError",
}

__all__ = list(NAMES)


def __getattr__(name: str) -> Any:
    """Import and return the object with the given public name of the package."""
    if name not in NAMES:
        raise AttributeError(f"module ensayo has no attribute {name}; its public names are {', '.join(NAMES)}")
    module, _, attribute = NAMES[name].partition(":")
    return getattr(import_module(module), attribute)
