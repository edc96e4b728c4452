"""May this trial be believed? Runs all checks and writes fidelity.json."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from analysis.checks import CHECKS, Level, Verdict, worst
from analysis.checks.training.exit_codes import exit_codes
from analysis.checks.training.record import record
from analysis.checks.verdict import LINKS, SLOWER
from analysis.metrics.proof import Proof, together
from analysis.reading.run_folder import RunFolder, TrialFolder, read_json, write_json
from analysis.reading.run_table import TrialTable


def judge(trial: TrialTable) -> dict[str, Verdict]:
    """Every check's verdict by the check's name; a trial that did not end well, or can't be read, by that alone."""
    if trial.unreadable:
        return {record.__name__: record(trial)}
    checks = CHECKS if trial.status.get("status") == "success" else (exit_codes,)
    return {check.__name__: check(trial) for check in checks}


def write(folder: TrialFolder, trial: TrialTable, verdicts: dict[str, Verdict], shown: Iterable[Proof]) -> None:
    """Writes what was declared beside what was achieved, and the verdict with its reasons; `shown`: its proofs."""
    write_json(folder.fidelity, as_dict(trial, verdicts, shown))


def remedies(trial: TrialTable, verdicts: dict[str, Verdict]) -> list[str]:
    """What to do about it, by the checks that failed; a simulated trial needs no faster host."""
    useless = (SLOWER, LINKS) if trial.status.get("engine") == "simulated" else ()
    told = dict.fromkeys(verdict.remedy for verdict in verdicts.values())
    return [remedy for remedy in told if remedy and remedy not in useless]


def advice(folder: RunFolder) -> list[str]:
    """The remedies of all trials of a run that has its report, each once."""
    told = (read_json(trial.fidelity).get("remedies") or [] for trial in folder.trials)
    return list(dict.fromkeys(remedy for each in told for remedy in each))


def as_dict(trial: TrialTable, verdicts: dict[str, Verdict], shown: Iterable[Proof]) -> dict[str, Any]:
    """The content of fidelity.json."""
    return {
        "declared": {
            "nodes": [node.model_dump(exclude={"role", "rank"}) for node in trial.plan.nodes],
            "network": trial.plan.network.model_dump(mode="json"),
            "events": [event.model_dump(mode="json") for event in trial.plan.events],
            "strict": trial.plan.strict,
            "thresholds": trial.plan.fidelity.model_dump(mode="json"),
        },
        "achieved": {
            "shaping": trial.status.get("shaping", {}),
            "throttling": trial.status.get("throttling", {}),
            "host": trial.status.get("host", {}),
            "events": json.loads(trial.events.to_json(orient="records")),
            "unread_log_lines": trial.skipped_lines,
        },
        "proof": [asdict(proof) for proof in together(shown)],
        "verdict": worst(verdicts.values()),
        "reasons": [verdict.reason for verdict in verdicts.values() if verdict.level != Level.VALID],
        "remedies": remedies(trial, verdicts),
        "checks": {name: {"level": found.level, "found": found.reason} for name, found in verdicts.items()},
    }
