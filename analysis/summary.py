"""What are all numbers of a run? summary.json, as DESIGN section 6 has it (schema: summary.schema.json)."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis import fidelity
from analysis.checks.rungs import declared, rung_of
from analysis.checks.verdict import Level, Verdict, worst_level
from analysis.folder import RunFolder, write_json
from analysis.metrics.balance import Balance, balance
from analysis.metrics.proof import Proof, proofs
from analysis.metrics.speedup import Curve, curves
from analysis.result import Group, Status, TrialResult, groups, measure
from analysis.table import RunTable

SCHEMA = "ensayo-summary-1"
WORST_FIRST: tuple[Status, ...] = ("failed", "aborted", "missed_target", "success")


@dataclass(frozen=True)
class Summary:
    """The run in numbers."""

    schema: str
    scenario: str
    engine: str
    dilation: float
    verdict: Level
    status: Status
    trials: list[TrialResult]
    curves: list[Curve]
    balance: list[Balance]
    run: str  # addition to the contract, like the next
    question: str
    rungs: dict[str, list[str]]  # property of links -> what enforced it, over all trials
    proofs: list[Proof]

    @property
    def groups(self) -> tuple[Group, ...]:
        """The finished trials, repeats together."""
        return groups(self.trials)

    @property
    def strategies(self) -> tuple[str, ...]:
        """Labels in the order of the scenario; the baseline is not one of them."""
        return tuple(dict.fromkeys(trial.strategy for trial in self.trials if not trial.baseline))

    @property
    def conditions(self) -> tuple[str, ...]:
        """The combinations of swept keys other than workers; one empty phrase where nothing else was swept."""
        return tuple(dict.fromkeys(trial.condition for trial in self.trials))

    @property
    def target(self) -> str | None:
        """The target as a phrase, "accuracy >= 0.95"."""
        return next((trial.target for trial in self.trials if trial.target), None)

    def as_dict(self) -> dict[str, Any]:
        """What stands in summary.json; numbers that JSON cannot say are null."""
        content = asdict(self)
        for curve in content["curves"]:
            del curve["draws"]
        return {key: _plain(value) for key, value in content.items()}


def summarise(run: RunTable, verdicts: Mapping[str, Mapping[str, Verdict]]) -> Summary:
    """Measures every trial (`verdicts` by trial id) and compares them."""
    trials = [measure(trial, verdicts[trial.plan.trial].values()) for trial in run.trials]
    found = curves(groups(trials))
    return Summary(
        schema=SCHEMA,
        scenario=run.folder.scenario,
        engine=next((str(trial.status["engine"]) for trial in run.trials if "engine" in trial.status), "unknown"),
        dilation=max((trial.plan.dilation for trial in run.trials), default=1.0),
        verdict=worst_level(trial.verdict for trial in trials),
        status=min((trial.status for trial in trials), key=WORST_FIRST.index, default="aborted"),
        trials=trials,
        curves=list(found),
        balance=[pick for curve in found for pick in balance(curve)],
        run=run.folder.path.resolve().name,
        question=run.folder.question,
        rungs=_rungs(run),
        proofs=list(proofs(run.trials)),
    )


def _rungs(run: RunTable) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for trial in run.trials:
        shaping = trial.status.get("shaping") or {}
        for node in trial.plan.nodes:
            for what in declared(trial.plan, node):
                found.setdefault(what, set()).add(rung_of(shaping.get(node.name) or {}, what) or "unknown")
    return {what: sorted(rungs) for what, rungs in found.items()}


def judge(run: RunTable) -> dict[str, dict[str, Verdict]]:
    """The verdicts of every trial, by its id."""
    return {trial.plan.trial: fidelity.judge(trial) for trial in run.trials}


def write(folder: RunFolder, summary: Summary) -> Path:
    """Writes summary.json."""
    return write_json(folder.summary, summary.as_dict())


def _plain(value: Any) -> Any:
    """The same without NaN and infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
