"""Run a scenario as `ensayo run` does, without its display: python runner.py SCENARIO ENGINE RUNS KEY=VALUE..."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compose.engines import choose_engine
from compose.runs.run import run_scenario
from compose.runs.run_folder import ScenarioFile
from compose.scenario_files.load import find_scenario, load_scenario
from services.plan import Plan
from services.scenario.scenario import Scenario


class PrintingObserver:
    """Observer that prints the progress of the run on standard output."""

    def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None:
        print("event", plan.trial, log_event["key"], flush=True)  # noqa: T201 - tests wait for these lines

    def engine_preparation_started(self, description: str) -> None:
        print("preparing", description, flush=True)  # noqa: T201

    def run_started(
        self, scenario: Scenario, engine_name: str, why_this_engine: str, plans: tuple[Plan, ...], run_folder: Path
    ) -> None:
        print("run", plans[0].run, run_folder, flush=True)  # noqa: T201

    def trial_started(self, plan: Plan, trial_number: int, trial_count: int) -> None:
        print("trial", plan.trial, flush=True)  # noqa: T201

    def trial_disturbed(self, plan: Plan, disturbance: str, next_attempt: str, pause_s: float) -> None:
        print("disturbed", plan.trial, disturbance, flush=True)  # noqa: T201

    def trial_ended(self, plan: Plan, trial_status: str, wall_s: float) -> None:
        print("ended", plan.trial, trial_status, flush=True)  # noqa: T201


def main() -> int:
    """Run the scenario; return 0, or 130 after an interrupt, as `ensayo run` does."""
    scenario, engine, runs, *settings = sys.argv[1:]
    path = find_scenario(scenario)
    loaded_scenario = load_scenario(path, dict(setting.split("=", 1) for setting in settings))
    result = run_scenario(
        ScenarioFile(loaded_scenario, path.read_text(), ""), choose_engine(engine), Path(runs), PrintingObserver()
    )
    for status in result.statuses:
        print("because", status.reason, flush=True)  # noqa: T201 - shown when a test fails
    return 130 if result.interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
