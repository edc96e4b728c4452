"""Run all checks of a trial, and write their verdicts to its file fidelity.json."""

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from analysis.checks import CHECKS, CheckVerdict, VerdictLevel, worst_verdict_level
from analysis.checks.verdict import SLOW_HOST_REMEDY, WRONG_LINKS_REMEDY
from analysis.metrics.achieved_properties import DeclaredVsAchieved, merge_over_trials
from analysis.reading.run_folder import RunFolder, TrialFolder, read_json, write_json
from analysis.reading.run_table import TrialLogTables
from services.scenario.commands.simulated_advice import leave_out_simulated_engine


def run_trial_checks(trial: TrialLogTables) -> dict[str, CheckVerdict]:
    """Run the checks of a trial and return a mapping from the name of each check to its verdict.

    Only `record` runs for a trial whose record is damaged, and only `exit_codes` for a trial without success.
    """
    if trial.is_unreadable:
        names = ["record"]
    elif trial.status.get("status") == "success":
        names = list(CHECKS)
    else:
        names = ["exit_codes"]
    verdicts = {name: CHECKS[name](trial) for name in names}
    if trial.plan.workload_kind != "command":
        return verdicts
    return {name: _leave_out_simulated_engine(verdict) for name, verdict in verdicts.items()}


def _leave_out_simulated_engine(verdict: CheckVerdict) -> CheckVerdict:
    """Return a verdict on a command without the advice to use an engine that can't run it."""
    reason, remedy = leave_out_simulated_engine(verdict.reason), leave_out_simulated_engine(verdict.remedy)
    return replace(verdict, reason=reason, remedy=remedy)


def write_fidelity_json(
    trial_folder: TrialFolder,
    trial: TrialLogTables,
    check_verdicts: dict[str, CheckVerdict],
    achieved_properties: Iterable[DeclaredVsAchieved],
) -> None:
    """Write the file fidelity.json of a trial.

    The file contains the declared and achieved values of the cluster, and the verdict with its reasons.
    """
    write_json(trial_folder.fidelity_json_path, build_fidelity_json(trial, check_verdicts, achieved_properties))


def list_failed_check_remedies(trial: TrialLogTables, check_verdicts: dict[str, CheckVerdict]) -> list[str]:
    """Return what the user can do about the verdicts `degraded` and `invalid` of a trial's checks.

    Each remedy occurs once.

    A faster host or other links do not help a simulated trial.
    """
    useless = (SLOW_HOST_REMEDY, WRONG_LINKS_REMEDY) if trial.status.get("engine") == "simulated" else ()
    remedies = dict.fromkeys(verdict.remedy for verdict in check_verdicts.values())
    return [remedy for remedy in remedies if remedy and remedy not in useless]


def read_failed_check_remedies(run_folder: RunFolder) -> list[str]:
    """Return what the user can do about the invalid trials of a run.

    The remedies are those recorded in the fidelity.json of each trial. Each remedy occurs once.
    """
    by_trial = (read_json(folder.fidelity_json_path).get("remedies") for folder in run_folder.trial_folders)
    recorded = [remedy for remedies in by_trial if isinstance(remedies, list) for remedy in remedies]
    return list(dict.fromkeys(remedy for remedy in recorded if isinstance(remedy, str)))


def build_fidelity_json(
    trial: TrialLogTables, check_verdicts: dict[str, CheckVerdict], achieved_properties: Iterable[DeclaredVsAchieved]
) -> dict[str, Any]:
    """Return the content of a trial's file fidelity.json.

    The content is the declared and achieved values of the cluster, the verdict, its reasons, and remedies for the user.
    """
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
            "unread_log_lines": trial.unusable_line_count,
        },
        "proof": [asdict(proof) for proof in merge_over_trials(achieved_properties)],
        "verdict": worst_verdict_level(check_verdicts.values()),
        "reasons": [verdict.reason for verdict in check_verdicts.values() if verdict.level != VerdictLevel.VALID],
        "remedies": list_failed_check_remedies(trial, check_verdicts),
        "checks": {name: {"level": verdict.level, "found": verdict.reason} for name, verdict in check_verdicts.items()},
    }
