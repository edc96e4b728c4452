"""What are all numbers of a run? summary.json, as DESIGN section 6 has it (schema: summary.schema.json)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.checks import fidelity
from analysis.checks.network.mechanisms import declared, rung_of
from analysis.checks.verdict import Level, Verdict, worst_level
from analysis.metrics.balance import Balance, balance
from analysis.metrics.comparison import Difference, differences
from analysis.metrics.proof import Proof, proofs
from analysis.metrics.speedup import Curve, curves
from analysis.metrics.switch import Switch, stale_s
from analysis.metrics.worth import ends, worth
from analysis.reading.damage import Damage
from analysis.reading.run_folder import RunFolder, write_json
from analysis.reading.run_table import RunTable
from analysis.reading.switch_record import NEVER
from analysis.results.result import Group, Labels, Status, TrialResult, groups, measure
from services.scenario.published import Published

SCHEMA = "ensayo-summary-1"
RULES = ("when", "fraction")  # keys of a switching strategy that say when it switches
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
    published: tuple[Published, ...] = ()  # what others found of the same
    damage: list[str] = field(default_factory=list)  # what of the run's files could not be read: "file:line: what"
    not_run: list[str] = field(default_factory=list)  # trials that were to run and have not: it broke off, or goes on

    @property
    def groups(self) -> tuple[Group, ...]:
        """The finished trials, repeats together."""
        return groups(self.trials)

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """Every pair of strategies that can be compared by seed."""
        return differences(self.groups)

    @cached_property
    def strategies(self) -> tuple[str, ...]:
        """Labels in the order of the scenario; the baseline is not one of them."""
        return tuple(dict.fromkeys(trial.strategy for trial in self.trials if not trial.baseline))

    @cached_property
    def conditions(self) -> tuple[str, ...]:
        """The combinations of swept keys other than workers; one empty phrase where nothing else was swept."""
        return tuple(dict.fromkeys(trial.condition for trial in self.trials))

    @property
    def target(self) -> str | None:
        """The target as a phrase, "accuracy >= 0.95"."""
        return next((trial.target for trial in self.trials if trial.target), None)

    def published_of(self, strategy: str) -> tuple[Published, ...]:
        """What others found of one strategy."""
        return tuple(each for each in self.published if each.strategy == strategy)

    def as_dict(self) -> dict[str, Any]:
        """What stands in summary.json; numbers that JSON cannot say are null."""
        content = asdict(self)
        for curve in content["curves"]:
            del curve["draws"]
        content["published"] = [each.model_dump() for each in self.published]
        return {key: _plain(value) for key, value in content.items()}


def summarise(run: RunTable, verdicts: Mapping[str, Mapping[str, Verdict]]) -> Summary:
    """Measures every trial (`verdicts` by trial id) and compares them."""
    trials = [measure(trial, verdicts[trial.plan.trial].values()) for trial in run.trials]
    return gather(run, trials, proofs(run.trials))


def gather(run: RunTable, trials: list[TrialResult], shown: tuple[Proof, ...]) -> Summary:
    """Compares the trials of a run; `shown`: the proofs of all of them."""
    trials = _beside_what_they_left(trials, run)
    found = curves(groups(trials))
    return Summary(
        schema=SCHEMA,
        scenario=run.folder.scenario,
        engine=next((str(trial.status["engine"]) for trial in run.trials if "engine" in trial.status), "unknown"),
        dilation=max((trial.plan.dilation for trial in run.trials), default=1.0),
        verdict=worst_level([*(trial.verdict for trial in trials), *[Level.INVALID] * bool(run.unread)]),
        status=min((trial.status for trial in trials), key=WORST_FIRST.index, default="aborted"),
        trials=trials,
        curves=list(found),
        balance=[pick for curve in found for pick in balance(curve)],
        run=run.folder.path.resolve().name,
        question=run.folder.question,
        rungs=_rungs(run),
        proofs=list(shown),
        published=run.folder.published,
        damage=_folded(run.damage),
        not_run=list(run.folder.not_run),
    )


def _folded(found: Sequence[Damage]) -> list[str]:
    """One line for all lines of a file with the same damage: a log of another version is strange from end to end."""
    alike: dict[tuple[str, str, str], list[Damage]] = {}
    for each in found:
        alike.setdefault((each.trial, each.file, each.what), []).append(each)
    return [f"{first}{f' (and {len(rest)} more lines)' if rest else ''}" for first, *rest in alike.values()]


def _beside_what_they_left(trials: list[TrialResult], run: RunTable) -> list[TrialResult]:
    """Trials that switched know what that was worth, beside trials of the strategy before."""
    strategies = {trial.plan.trial: trial.plan.strategy for trial in run.trials}

    def went_on(other: TrialResult, trial: TrialResult) -> bool:
        """Whether it is of the strategy before, by itself or by a rule that never fired."""
        if other.switch and other.switch.outcome == NEVER:
            return _but_for_when(other, strategies) == _but_for_when(trial, strategies)
        alike = other.labels.items() <= trial.labels.items()
        return alike and strategies[other.id] == strategies[trial.id].get("before")

    def stayed(trial: TrialResult) -> TrialResult | None:
        sound = (each for each in trials if each.finished and each.id != trial.id)
        beside = (each for each in sound if (each.seed, each.workers) == (trial.seed, trial.workers))
        return next((each for each in beside if went_on(each, trial)), None)

    pairs = [(trial, stayed(trial)) for trial in trials if trial.finished and trial.switch]
    return [_judged(trial, trial.switch, pairs) if trial.switch else trial for trial in trials]


def _but_for_when(trial: TrialResult, strategies: Mapping[str, dict[str, Any]]) -> tuple[dict[str, Any], Labels]:
    """Strategy and labels of a trial without the rule that says when it switches."""
    rules = tuple(f"strategies.{trial.strategy}.{key}" for key in RULES)
    strategy = {key: value for key, value in strategies[trial.id].items() if key not in RULES}
    return strategy, {key: value for key, value in trial.labels.items() if not key.startswith(rules)}


def _judged(trial: TrialResult, found: Switch, pairs: Sequence[tuple[TrialResult, TrialResult | None]]) -> TrialResult:
    """One that switched, beside the one that stayed and has its seed, and the repeats beside theirs."""
    if found.gain is None:
        return trial
    alike = [pair for pair in pairs if (pair[0].strategy, pair[0].labels) == (trial.strategy, trial.labels)]
    stayed = next((them for ours, them in alike if ours.id == trial.id), None)
    told = worth(trial, stayed, ends([(ours, them) for ours, them in alike if them]))
    needed, needed_before = trial.samples_to_target, stayed.samples_to_target if stayed else None
    stale = stale_s(found, needed, needed_before) if needed and needed_before else None
    return replace(trial, switch=replace(found, verdict=told.verdict, quality=told.quality, stale_s=stale))


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
