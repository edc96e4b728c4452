"""Chapter on the claims of the study, computed from published results of MLPerf Training."""

from dataclasses import replace

import pytest

from analysis.claims.outcomes import Claim, ClaimOutcome, check_claims
from analysis.mlperf.chapters.claims import measure_scaling, study_claims_chapter
from analysis.mlperf.reading.results import MlperfResults, read_results_csv
from analysis.mlperf.series import ScalingSeries, read_shipped_series
from analysis.mlperf.study import make_mlperf_study

SERIES = {each.benchmark: each for each in read_shipped_series()}
CONFIRMED, CONTRADICTED, CLOSE, UNTESTABLE = ClaimOutcome


def outcomes_of(series: ScalingSeries) -> tuple[ClaimOutcome, ...]:
    return tuple(each.outcome for each in check_claims(measure_scaling(series)))


@pytest.mark.parametrize(
    ("benchmark", "outcomes", "hardware_share"),
    [
        ("bert", (CONFIRMED, CONFIRMED, CONFIRMED), 0.66),
        ("llama2_70b_lora", (CONFIRMED, CONFIRMED, CONTRADICTED), 0.23),
        ("ssd", (CONFIRMED, CONFIRMED, CONFIRMED), 0.60),
        ("stable_diffusion", (CONFIRMED, CONFIRMED, CONFIRMED), 0.64),
        ("gpt3", (CONFIRMED, UNTESTABLE, CONFIRMED), 0.99),  # E' is 0.62 on the largest system
    ],
)
def test_published_results_confirm_or_contradict_a_claim(
    benchmark: str, outcomes: tuple[ClaimOutcome, ...], hardware_share: float
) -> None:
    """The table of `docs/statistics.md` has the factors: LoRA loses E' to samples, the others to hardware."""
    checked = check_claims(measure_scaling(SERIES[benchmark]))

    assert tuple(each.outcome for each in checked) == outcomes
    assert checked[2].numbers["hardware_share"].value == pytest.approx(hardware_share, abs=0.005)


def test_a_series_of_two_sizes_tests_no_claim() -> None:
    bert = SERIES["bert"]

    assert outcomes_of(replace(bert, points=(bert.points[0], bert.points[-1]))) == (UNTESTABLE,) * 3


def test_a_size_with_a_single_run_tests_no_claim() -> None:
    """The spread of a single run is unknown, so its time has no interval."""
    bert = SERIES["bert"]
    single = tuple(
        point.model_copy(update={"runs": 1}) if index == 2 else point for index, point in enumerate(bert.points)
    )

    checked = check_claims(measure_scaling(replace(bert, points=single)))

    assert {each.outcome for each in checked} == {UNTESTABLE}
    assert {each.reason for each in checked} == {"a size has a single run, so its time has no interval"}


def test_a_wide_spread_of_runs_makes_the_share_of_hardware_too_close_to_call() -> None:
    """The spread of samples to target is taken to be that of the run times."""
    ssd = SERIES["ssd"]
    wide = tuple(point.model_copy(update={"run_spread": 0.5}) for point in ssd.points)

    assert outcomes_of(replace(ssd, points=wide))[2] is CLOSE


def test_the_chapter_has_a_sentence_for_each_claim_and_workload_of_the_study() -> None:
    """Shipped series of other workloads are no results of the study."""
    chapter = study_claims_chapter(make_mlperf_study(read_results_csv()))

    assert chapter
    assert sum(paragraph.startswith("Confirmed for ") for paragraph in chapter.paragraphs) == 11
    assert sum(paragraph.startswith("Contradicted for Llama 2 70B LoRA") for paragraph in chapter.paragraphs) == 1
    assert list(chapter.tables[0].data["workload"]) == ["BERT", "Llama 2 70B LoRA", "RetinaNet", "Stable Diffusion"]
    assert {str(claim) for claim in Claim} <= set(chapter.tables[0].data.columns)
    assert chapter.finding == (
        "Claims of the study: less time, less efficiency: confirmed for all 4 workloads; balance point: confirmed for "
        "all 4 workloads; loss is mostly hardware: confirmed for BERT, RetinaNet and Stable Diffusion, contradicted "
        "for Llama 2 70B LoRA."
    )


def test_a_table_without_samples_has_no_chapter_on_claims() -> None:
    """The section on unanswered questions then names the data that the chapter needs."""
    study = make_mlperf_study(MlperfResults(read_results_csv().results_of("ssd"), "some.csv"))

    assert study_claims_chapter(study) is None
