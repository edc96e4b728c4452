"""Summary of a run: all numbers that summary.json contains (schema: summary.schema.json)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.checks.network.mechanisms import declared_link_properties, shaping_mechanism_name
from analysis.checks.verdict import VerdictLevel, worst_level
from analysis.claims.run_claims import RunClaim, check_claims_of_run
from analysis.metrics.achieved_properties import DeclaredVsAchieved
from analysis.metrics.comparisons.rate_crossings import RateCrossing, find_rate_crossings, pair_with_uncompressed
from analysis.metrics.comparisons.strategy_comparison import StrategyTimeGap, compare_strategies
from analysis.metrics.comparisons.worker_choice import RuleAndWorkerCount, choose_worker_counts_of_curve
from analysis.metrics.speedup import SpeedupCurve, speedup_curves
from analysis.metrics.strategy_changes.strategy_switch import StrategySwitchResult, staleness_cost_s_per_batch
from analysis.metrics.strategy_changes.strategy_switch_verdict import find_final_model_qualities, judge_strategy_switch
from analysis.reading.damage import FileProblem
from analysis.reading.logs.switch_record import NEVER_SWITCHED
from analysis.reading.plan_view import describe_swept_values, swept_values_of_labels
from analysis.reading.run_folder import RunFolder, write_json
from analysis.reading.run_table import RunLogTables
from analysis.report.wording import describe_payload
from analysis.results.switch_phases import name_phase_strategies
from analysis.results.trial_group import TrialGroup, group_trials
from analysis.results.trial_result import SweepLabels, TrialResult, TrialStatus
from services.scenario.published_curves import PublishedCurve

SUMMARY_SCHEMA = "ensayo-summary-1"
SWITCH_TIME_KEYS = ("when", "fraction")  # keys of a switching strategy that determine when it switches
STATUSES_WORST_FIRST: tuple[TrialStatus, ...] = ("failed", "aborted", "missed_target", "success")


@dataclass(frozen=True)
class SkippedTrial:
    """Trial that was not run, because this host lacks a device that its workers declare."""

    trial: str
    strategy: str
    workers: int
    condition: str  # swept keys and values except workers, as one phrase
    reason: str


@dataclass(frozen=True)
class CompressedTraffic:
    """Traffic of a strategy whose all-reduce is compressed."""

    strategy: str  # with " after the switch" for the second phase of a strategy that switches
    workers: int
    ratio: float  # bytes of an exchange, divided by those of a ring all-reduce without compression


@dataclass(frozen=True)
class RunSummary:
    """All results of a run.

    The names of the fields are the keys of summary.json and must not change.
    """

    schema: str
    scenario: str
    engine: str
    dilation: float
    verdict: VerdictLevel
    status: TrialStatus
    trials: list[TrialResult]
    curves: list[SpeedupCurve]
    balance: list[RuleAndWorkerCount]
    # Keys that were added later:
    run: str
    question: str
    rungs: dict[str, list[str]]  # property of links -> mechanisms that enforced it, over all trials
    proofs: list[DeclaredVsAchieved]
    published: tuple[PublishedCurve, ...] = ()  # published results that the scenario quotes
    damage: list[str] = field(default_factory=list)  # problems of the run's files: "file:line: problem"
    not_run: list[str] = field(default_factory=list)  # planned trials that have not run
    skipped: list[SkippedTrial] = field(default_factory=list)  # trials that this host cannot run
    payloads: list[str] = field(default_factory=list)  # each declared payload of a trial, beside its trained model
    claims: list[RunClaim] = field(
        default_factory=list
    )  # of the study that the scenario names, checked with the curves
    compressed_traffic: list[CompressedTraffic] = field(default_factory=list)  # by strategy and number of workers
    rate_crossings: list[RateCrossing] = field(default_factory=list)  # of compressed strategies, if a rate is swept

    # Whether a sample is a step of one worker: a command has no `batch_per_worker`, or 1.
    samples_are_steps: bool = False

    @property
    def trial_groups(self) -> tuple[TrialGroup, ...]:
        """Groups of finished trials that differ only by their seed."""
        return group_trials(self.trials)

    @cached_property
    def strategy_time_gaps(self) -> tuple[StrategyTimeGap, ...]:
        """Differences in time between all pairs of strategies that share at least two seeds."""
        return compare_strategies(self.trial_groups)

    @cached_property
    def strategies(self) -> tuple[str, ...]:
        """Labels of the strategies in the order of the scenario, without the baseline on one worker."""
        return tuple(dict.fromkeys(trial.strategy for trial in self.trials if not trial.baseline))

    @cached_property
    def swept_values(self) -> tuple[str, ...]:
        """Combinations of swept values, such as "uplink 10mbit".

        There is one empty text if only worker counts are swept.
        """
        return tuple(dict.fromkeys(trial.condition for trial in self.trials))

    @property
    def target(self) -> str | None:
        """Training target of the run as a phrase, such as "accuracy ≥ 0.95".

        None if the run has no target.
        """
        return next((trial.target for trial in self.trials if trial.target), None)

    @property
    def published_speeds(self) -> tuple[PublishedCurve, ...]:
        """Published speedups in samples per second that the scenario quotes."""
        return tuple(curve for curve in self.published if curve.speedup_of == "samples_per_second")

    @property
    def published_times_to_target(self) -> tuple[PublishedCurve, ...]:
        """Published speedups in time to a target that the scenario quotes."""
        return tuple(curve for curve in self.published if curve.speedup_of == "time_to_target")

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as the content of summary.json, with None instead of NaN and infinity."""
        content = asdict(self)
        for curve in content["curves"]:
            del curve["draws"]
        content["published"] = [result.model_dump() for result in self.published]
        return {key: _replace_non_finite_by_none(value) for key, value in content.items()}


def build_run_summary(
    run_tables: RunLogTables, trial_results: list[TrialResult], achieved_properties: tuple[DeclaredVsAchieved, ...]
) -> RunSummary:
    """Compare the measured trials of a run and return its summary."""
    strategy_settings = {trial.plan.trial: trial.plan.strategy for trial in run_tables.trials}
    trial_results = name_phase_strategies(_judge_time_saved_by_switch(trial_results, run_tables), strategy_settings)
    trial_groups = group_trials(trial_results)
    found_curves = speedup_curves(trial_groups)
    engine = next((str(trial.status["engine"]) for trial in run_tables.trials if "engine" in trial.status), "unknown")
    mechanisms = _collect_shaping_mechanisms(run_tables)
    study = run_tables.folder.study_of_claims
    verdicts = [trial.verdict for trial in trial_results]
    if run_tables.unread_trial_damage or run_tables.folder.trials_without_plan or not trial_results:
        verdicts.append(VerdictLevel.INVALID)
    return RunSummary(
        schema=SUMMARY_SCHEMA,
        scenario=run_tables.folder.scenario_name,
        engine=engine,
        dilation=max((trial.plan.dilation for trial in run_tables.trials), default=1.0),
        verdict=worst_level(verdicts),
        status=min((trial.status for trial in trial_results), key=STATUSES_WORST_FIRST.index, default="aborted"),
        trials=trial_results,
        curves=list(found_curves),
        balance=[pick for curve in found_curves for pick in choose_worker_counts_of_curve(curve)],
        run=run_tables.folder.path.resolve().name,
        question=run_tables.folder.first_scenario_comment,
        rungs=mechanisms,
        proofs=list(achieved_properties),
        published=run_tables.folder.published_speedups,
        damage=_merge_file_problems(run_tables.file_damage),
        not_run=list(run_tables.folder.trials_not_run),
        skipped=[_read_skipped_trial(record) for record in run_tables.folder.skipped_trials],
        payloads=list(
            dict.fromkeys(describe_payload(trial.plan.payload) for trial in run_tables.trials if trial.plan.payload)
        ),
        claims=check_claims_of_run(
            study,
            found_curves,
            trial_groups,
            is_simulated=engine == "simulated",
            has_declared_links=bool(mechanisms),
        )
        if study
        else [],
        compressed_traffic=list(dict.fromkeys(_list_compressed_traffic(run_tables))),
        rate_crossings=find_rate_crossings(
            trial_groups, pair_with_uncompressed(trial.plan for trial in run_tables.trials)
        ),
        samples_are_steps=any(trial.plan.samples_per_worker_step == 1 for trial in run_tables.trials),
    )


def _list_compressed_traffic(run_tables: RunLogTables) -> Iterator[CompressedTraffic]:
    """Yield the traffic of each training phase in which an all-reduce is compressed."""
    for plan in (trial.plan for trial in run_tables.trials):
        for phase, suffix in ((plan, ""), (plan.second_phase, " after the switch")):
            if phase is not None and phase.compressed_traffic_ratio is not None:
                yield CompressedTraffic(f"{plan.label}{suffix}", plan.workers, phase.compressed_traffic_ratio)


def _read_skipped_trial(record: Mapping[str, Any]) -> SkippedTrial:
    """Return the skipped trial that a record of the manifest describes."""
    condition = describe_swept_values(swept_values_of_labels(record["labels"]))
    return SkippedTrial(record["trial"], record["strategy"], record["workers"], condition, record["reason"])


def _merge_file_problems(file_problems: Sequence[FileProblem]) -> list[str]:
    """Return one text per file and problem, for all damaged lines of a run.

    Further lines are counted, as in "… (and 12 more lines)".
    """
    same: dict[tuple[str, str, str], list[FileProblem]] = {}
    for damage in file_problems:
        same.setdefault((damage.trial_name, damage.file, damage.problem), []).append(damage)
    return [f"{first}{f' (and {len(rest)} more lines)' if rest else ''}" for first, *rest in same.values()]


def _judge_time_saved_by_switch(trials: list[TrialResult], run_tables: RunLogTables) -> list[TrialResult]:
    """Return all trials, with verdicts on whether strategy switches saved time.

    A trial that switched strategies gets a verdict on the time saved against a trial that did not switch.
    """
    strategies = {trial.plan.trial: trial.plan.strategy for trial in run_tables.trials}

    def keeps_initial_strategy(unswitched_trial: TrialResult, switched_trial: TrialResult) -> bool:
        """Return whether `unswitched_trial` trained only with the first strategy of `switched_trial`."""
        if unswitched_trial.switch and unswitched_trial.switch.outcome == NEVER_SWITCHED:
            return _drop_switch_time_keys(unswitched_trial, strategies) == _drop_switch_time_keys(
                switched_trial, strategies
            )
        has_same_labels = unswitched_trial.labels.items() <= switched_trial.labels.items()
        return has_same_labels and strategies[unswitched_trial.id] == strategies[switched_trial.id].get("before")

    def find_unswitched_trial(switched_trial: TrialResult) -> TrialResult | None:
        """Return a finished trial without strategy switch to compare with `switched_trial`.

        It has the seed and the number of workers of `switched_trial`.
        """
        finished = (other for other in trials if other.is_finished and other.id != switched_trial.id)
        same_seed = (
            other for other in finished if (other.seed, other.workers) == (switched_trial.seed, switched_trial.workers)
        )
        return next((other for other in same_seed if keeps_initial_strategy(other, switched_trial)), None)

    pairs = [(trial, find_unswitched_trial(trial)) for trial in trials if trial.is_finished and trial.switch]
    return [_add_time_saved_verdict(trial, trial.switch, pairs) if trial.switch else trial for trial in trials]


def _drop_switch_time_keys(
    trial_result: TrialResult, settings_by_trial: Mapping[str, dict[str, Any]]
) -> tuple[dict[str, Any], SweepLabels]:
    """Return the strategy settings and labels of a trial without the switch time.

    Settings that determine when the trial switches its strategy are left out.
    """
    time_paths = tuple(f"strategies.{trial_result.strategy}.{key}" for key in SWITCH_TIME_KEYS)
    strategy = {key: value for key, value in settings_by_trial[trial_result.id].items() if key not in SWITCH_TIME_KEYS}
    return strategy, {key: value for key, value in trial_result.labels.items() if not key.startswith(time_paths)}


def _add_time_saved_verdict(
    trial: TrialResult,
    switch_result: StrategySwitchResult,
    switch_trial_pairs: Sequence[tuple[TrialResult, TrialResult | None]],
) -> TrialResult:
    """Return a trial with the verdict on whether its strategy switch saved time.

    The pairs are trials that switched, each with one of the same seed that did not. The verdict compares the
    times of the trial's own pair, and the model quality of the pairs of all repeats.
    """
    if switch_result.gain is None:
        return trial
    repeats = [
        pair for pair in switch_trial_pairs if (pair[0].strategy, pair[0].labels) == (trial.strategy, trial.labels)
    ]
    unswitched = next((other for switched, other in repeats if switched.id == trial.id), None)
    qualities = find_final_model_qualities([(switched, other) for switched, other in repeats if other])
    judged = judge_strategy_switch(trial, unswitched, qualities)
    needed, needed_unswitched = trial.samples_to_target, unswitched.samples_to_target if unswitched else None
    stale = (
        staleness_cost_s_per_batch(switch_result, needed, needed_unswitched) if needed and needed_unswitched else None
    )
    return replace(trial, switch=replace(switch_result, verdict=judged.verdict, quality=judged.quality, stale_s=stale))


def _collect_shaping_mechanisms(run_tables: RunLogTables) -> dict[str, list[str]]:
    """Return which traffic shaping mechanisms enforced each declared link property.

    A link property is, for instance, `delay`. The mechanisms of all trials are collected. A mechanism that was not
    recorded is `unknown`.
    """
    mechanisms: dict[str, set[str]] = {}
    for trial in run_tables.trials:
        shaping = trial.status.get("shaping") or {}
        for node in trial.plan.nodes:
            link_shaping = shaping.get(node.name) or {}
            for link_property in declared_link_properties(trial.plan, node):
                mechanism = shaping_mechanism_name(link_shaping, link_property) or "unknown"
                mechanisms.setdefault(link_property, set()).add(mechanism)
    return {link_property: sorted(names) for link_property, names in mechanisms.items()}


def write_summary(run_folder: RunFolder, summary: RunSummary) -> Path:
    """Write summary.json and return its path."""
    return write_json(run_folder.summary_path, summary.as_dict())


def _replace_non_finite_by_none(value: Any) -> Any:
    """Return a JSON value in which None replaces NaN and infinity.

    JSON cannot represent NaN and infinity.
    """
    if isinstance(value, dict):
        return {key: _replace_non_finite_by_none(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_non_finite_by_none(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
