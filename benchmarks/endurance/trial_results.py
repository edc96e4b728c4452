"""Results of the trials in a folder of runs."""

import json
from collections import Counter
from pathlib import Path


def read_statuses(runs_folder: Path) -> dict[str, str]:
    """Return the status of each trial that has an outcome, by the name of the trial; of one run only."""
    paths = sorted(runs_folder.glob("*/*Z-*/trials/*/status.json"))
    return {path.parent.name: json.loads(text)["status"] for path in paths if (text := path.read_text())}


def list_run_results(runs_folder: Path) -> list[str]:
    """Return the verdict of each run that has a report, or why it failed."""
    results = []
    for path in sorted(runs_folder.glob("*/*Z-*/summary.json")):
        failures = [f"failed: {reason}" for reason in list_failure_reasons(path.parent)]
        results.append("; ".join(failures) or json.loads(path.read_text())["verdict"])
    return results


def list_failure_reasons(run_folder: Path) -> list[str]:
    """Return why trials of a run failed or were aborted."""
    outcomes = [json.loads(path.read_text()) for path in sorted(run_folder.glob("trials/*/status.json"))]
    return [outcome["reason"] for outcome in outcomes if outcome["reason"]]


def count_texts(texts: list[str]) -> str:
    """Return each different text with its number, the most frequent first: `9 valid, 1 invalid`."""
    return ", ".join(f"{count} {text}" for text, count in Counter(texts).most_common()) or "none"
