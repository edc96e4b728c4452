"""Runs of a small scenario in which nodes are killed, frozen or started again."""

import json
from pathlib import Path
from typing import Any

import yaml
from scripted_engine import RunObserverStub

from compose.engines import EngineChoice, create_engine
from compose.runs.run import FinishedRun, run_scenario
from compose.runs.run_folder import ScenarioFile
from compose.scenario_files.load import load_scenario
from services.runtime.run_log import LOG_LINE_PREFIX

Document = dict[str, Any]


def run_faults(
    folder: Path,
    engine_name: str,
    events: list[Document],
    strategies: dict[str, Document],
    observer: RunObserverStub | None = None,
    **keys: Any,
) -> FinishedRun:
    """Run a small scenario with these events: two workers, steps of 50 ms, 40 steps."""
    document = {
        "name": "faults",
        "workload": {
            "dataset": {"kind": "synthetic_regression", "samples": 400, "features": 4, "outputs": 2},
            "model": {"kind": "mlp", "hidden": [8]},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch": 8,
            "epochs": 1,
        },
        "cluster": {"workers": 2, "worker": {"throughput": "80/s"}},
        "strategies": strategies,
        "baseline": False,
        "events": events,
        **keys,
    }
    path = folder / "faults.yaml"
    path.write_text(yaml.safe_dump(document))
    source = ScenarioFile(load_scenario(path, {}), path.read_text(), "")
    choice = EngineChoice(create_engine(engine_name), "asked for")
    return run_scenario(source, choice, folder / "runs", observer or RunObserverStub())


def logged_events(run: FinishedRun, strategy: str, key: str) -> list[tuple[str, Document]]:
    """Return the events with a key in all logs of a strategy's trial, each with the name of its node."""
    found = []
    for log in sorted(run.folder.glob(f"trials/*-{strategy}-*/logs/*.log")):
        lines = (line for line in log.read_text().splitlines() if line.startswith(LOG_LINE_PREFIX))
        events = (json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in lines)
        found += [(log.stem, event) for event in events if event["key"] == key]
    return found
