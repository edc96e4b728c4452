"""Claims of a study in the report of a run: which curves can be tested, and which reasons are given otherwise."""

import html
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import jsonschema
import pytest
import yaml

from analysis.checks.verdict import VerdictLevel
from analysis.claims.outcomes import Claim, ClaimOutcome
from analysis.claims.run_claims import RunClaim, check_claims_of_run
from analysis.metrics.speedup import speedup_curves
from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import RunLogTables, TrialLogTables
from analysis.report.report import write_report
from analysis.results.measure_trial import measure_trial
from analysis.results.trial_group import group_trials
from analysis.results.trial_result import TrialResult

STUDY = "arXiv:2509.03263"
SECONDS = {1: 16.0, 4: 6.0, 16: 3.2}
SEED_FACTORS = (1.0, 1.1, 0.95)
UNTESTABLE = ClaimOutcome.NOT_TESTABLE


@pytest.fixture
def check_trials(make_trial: Callable[..., TrialLogTables]) -> Callable[..., list[RunClaim]]:
    """check_trials(...) returns the claims of a run on 1, 4 and 16 workers with three seeds and a target."""
    blank = replace(measure_trial(make_trial({}), []), status="success", samples=1000, steps=10, strategy="ring")

    def check(
        seconds: dict[int, float] = SECONDS,
        seeds: int = 3,
        needed: dict[int, int] | None = None,
        change: Callable[[TrialResult], TrialResult] = lambda trial: trial,
        **run: bool,
    ) -> list[RunClaim]:
        trials = [
            change(
                replace(
                    blank,
                    id=f"{workers}-{seed}",
                    workers=workers,
                    seed=seed,
                    target="accuracy ≥ 0.95",
                    labels={"workers": workers},
                    time_to_target_s=time_s * SEED_FACTORS[seed],
                    samples_to_target=round((needed or {}).get(workers, 10_000) * SEED_FACTORS[seed]),
                    samples_per_second=10_000 / time_s,
                    declared_samples_per_second=1000.0 * workers,
                )
            )
            for workers, time_s in seconds.items()
            for seed in range(seeds)
        ]
        groups = group_trials(trials)
        engine = {"is_simulated": True, "has_declared_links": True} | run
        return check_claims_of_run(STUDY, speedup_curves(groups), groups, **engine)

    return check


def missed_on_16_workers(trial: TrialResult) -> TrialResult:
    """The second seed misses the target on 16 workers; the olympic mean of three times leaves it out."""
    is_missed = trial.workers == 16 and trial.seed == 1
    return replace(trial, time_to_target_s=None, samples_to_target=None) if is_missed else trial


REASONS: dict[str, tuple[dict[str, Any], str, set[Claim]]] = {  # arguments, reason, claims that are not testable
    "no declared link in virtual time": ({"has_declared_links": False}, "no link is declared", {Claim.HARDWARE_LOSS}),
    "no declared compute speed in virtual time": (
        {"change": lambda trial: replace(trial, declared_samples_per_second=None)},
        "no compute speed is declared",
        set(Claim),
    ),
    "two sizes": ({"seconds": {1: 16.0, 4: 6.0}}, "2 numbers of workers, at least 3 are needed", set(Claim)),
    "a single seed": ({"seeds": 1}, "a number of workers ran once", set(Claim)),
    "a missed target": ({"change": missed_on_16_workers}, "1 of 9 trials missed the target", set(Claim)),
    "no target": (
        {"change": lambda trial: replace(trial, target=None, time_to_target_s=None, samples_to_target=None)},
        "no target",
        set(Claim),
    ),
    "an invalid trial": (
        {"change": lambda trial: replace(trial, verdict=VerdictLevel.INVALID)},
        "the fidelity verdict of 9 of 9 trials is invalid",
        set(Claim),
    ),
    "no curve": ({"seconds": {}}, "no strategy has a speedup curve", set(Claim)),
}


@pytest.mark.parametrize("case", REASONS)
def test_a_claim_that_a_run_cannot_test_is_reported_with_the_reason(
    case: str, check_trials: Callable[..., list[RunClaim]]
) -> None:
    """A claim must not be confirmed or contradicted by data that cannot decide it."""
    arguments, reason, untestable = REASONS[case]

    claims = check_trials(**arguments)

    assert {each.claim for each in claims} == set(Claim)
    assert {each.claim for each in claims if each.outcome is UNTESTABLE} == untestable
    assert all(reason in each.sentence for each in claims if each.outcome is UNTESTABLE)


def test_undeclared_hardware_of_real_nodes_does_not_prevent_a_test(
    check_trials: Callable[..., list[RunClaim]],
) -> None:
    """Steps and messages of processes and containers take time without any declaration."""
    claims = check_trials(
        is_simulated=False,
        has_declared_links=False,
        change=lambda trial: replace(trial, declared_samples_per_second=None),
    )

    assert not any(each.outcome is UNTESTABLE for each in claims)


@pytest.mark.parametrize(
    ("needed", "outcome", "share"),
    [
        ({}, ClaimOutcome.CONFIRMED, 1.0),
        ({16: 30_000}, ClaimOutcome.CONTRADICTED, 0.055),
        ({16: 18_000}, ClaimOutcome.TOO_CLOSE, 0.495),
    ],
)
def test_samples_to_target_decide_whether_the_loss_is_of_hardware(
    check_trials: Callable[..., list[RunClaim]], needed: dict[int, int], outcome: ClaimOutcome, share: float
) -> None:
    """The same times are a loss of hardware efficiency or of statistical efficiency."""
    with_rounding = check_trials(needed=needed, change=lambda trial: replace(trial, evaluation_samples=1500))

    assert with_rounding[2].outcome is outcome
    assert with_rounding[2].numbers["hardware_share"].value == pytest.approx(share, abs=0.01)


def test_the_interval_of_the_share_is_that_of_unpaired_runs_without_shared_seeds(
    check_trials: Callable[..., list[RunClaim]],
) -> None:
    """Without shared seeds, the spread of the samples to target makes the share less certain."""

    def give_own_seed(trial: TrialResult) -> TrialResult:
        return replace(trial, seed=trial.seed + 10 * trial.workers)

    paired, unpaired = (each[2].numbers for each in (check_trials(), check_trials(change=give_own_seed)))

    assert unpaired["hardware_share"].value == pytest.approx(paired["hardware_share"].value)
    widths = [each["statistical"].interval for each in (paired, unpaired)]
    assert widths[0] == pytest.approx((1.0, 1.0))
    assert widths[1]
    assert widths[1][0] < 0.9
    assert widths[1][1] > 1.1


def test_claims_follow_the_schema_of_the_summary(
    check_trials: Callable[..., list[RunClaim]], pytestconfig: pytest.Config
) -> None:
    schema = json.loads((pytestconfig.rootpath / "analysis" / "results" / "summary.schema.json").read_text())

    for claim in [*check_trials(), *check_trials(seeds=1), *check_trials(seconds={})]:
        content = json.loads(json.dumps(asdict(claim)))
        jsonschema.Draft202012Validator(schema["$defs"]["claim"]).validate(content)


@pytest.mark.parametrize("study", [STUDY, None, "arXiv:0000.00000"])
def test_the_report_has_the_claims_only_if_the_scenario_names_the_study(
    run_simulated: Callable[..., RunLogTables], study: str | None, pytestconfig: pytest.Config
) -> None:
    """Claims of a study are no answer to the question of another scenario."""
    run = run_simulated(
        {"ring": {"kind": "all_reduce", "collective": {"kind": "ring"}}},
        workload={"target": {"metric": "accuracy", "at_least": 0.5}},
        scenario_overrides={"sweep": {"workers": [1, 2, 4]}, "repeats": 2},
        rate="1mbit",
    )
    (run.folder.path / "scenario.yaml").write_text(yaml.safe_dump({"name": "switching", "claims": study}))

    page = html.unescape(write_report(run.folder.path).read_text())
    content = json.loads(RunFolder(run.folder.path).summary_path.read_text())

    assert ("Claims of the study" in page) == (study == STUDY)
    assert len(content["claims"]) == (3 if study == STUDY else 0)
    assert all(claim["sentence"] in page for claim in content["claims"])  # the links of these trials were not read back
    schema = json.loads((pytestconfig.rootpath / "analysis" / "results" / "summary.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(content)
