"""A runner as `ensayo run` is one, without its display: python runner.py SCENARIO ENGINE RUNS KEY=VALUE..."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compose.engines import choose_engine
from compose.runs.run import ScenarioFile, run_scenario
from compose.scenario_files.load import find_scenario, load_scenario
from services.plan import Plan
from services.scenario.scenario import Scenario


class Teller:
    """Says on standard output how far the run is."""

    def event_logged(self, plan: Plan, event: Mapping[str, Any]) -> None:
        print("event", plan.trial, event["key"], flush=True)  # noqa: T201 - this is what tests wait for

    def preparation_started(self, what: str) -> None:
        print("preparing", what, flush=True)  # noqa: T201

    def run_started(self, scenario: Scenario, engine: str, reason: str, plans: tuple[Plan, ...], folder: Path) -> None:
        print("run", plans[0].run, folder, flush=True)  # noqa: T201

    def trial_started(self, plan: Plan, number: int, count: int) -> None:
        print("trial", plan.trial, flush=True)  # noqa: T201

    def trial_ended(self, plan: Plan, status: str, seconds: float) -> None:
        print("ended", plan.trial, status, flush=True)  # noqa: T201


def main() -> int:
    """130 when interrupted, as `ensayo run`."""
    scenario, engine, runs, *settings = sys.argv[1:]
    path = find_scenario(scenario)
    loaded = load_scenario(path, dict(setting.split("=", 1) for setting in settings))
    result = run_scenario(ScenarioFile(loaded, path.read_text(), ""), choose_engine(engine), Path(runs), Teller())
    for status in result.statuses:
        print("because", status.reason, flush=True)  # noqa: T201 - for whoever reads why a test failed
    return 130 if result.interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
