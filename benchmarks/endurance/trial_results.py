"""Results of the trials in a folder of runs."""

import json
from collections import Counter
from pathlib import Path


def read_statuses(runs_folder: Path) -> dict[str, str]:
    """Return the status of each trial that has an outcome, by the name of the trial; of one run only."""
    paths = sorted(runs_folder.glob("*/*Z-*/trials/*/status.json"))
    return {path.parent.name: json.loads(text)["status"] for path in paths if (text := path.read_text())}


def list_run_results(runs_folder: Path) -> list[str]:
    """Return the verdict of each run that has a report, or its status with the reason if its only trial failed."""
    results = []
    for path in sorted(runs_folder.glob("*/*Z-*/summary.json")):
        failures = [one for one in map(_read_outcome, path.parent.glob("trials/*/status.json")) if one["reason"]]
        summary = json.loads(path.read_text())
        results.append("; ".join(f"{one['status']}: {one['reason']}" for one in failures) or summary["verdict"])
    return results


def count_texts(texts: list[str]) -> str:
    """Return each different text with its number, the most frequent first: `9 valid, 1 invalid`."""
    return ", ".join(f"{count} {text}" for text, count in Counter(texts).most_common()) or "none"


def _read_outcome(path: Path) -> dict[str, str]:
    outcome: dict[str, str] = json.loads(path.read_text())
    return outcome
