"""Report of a complete run folder: all files are written, and other programs can read them."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

import ensayo
from analysis.checks import CHECKS
from analysis.comparison import run_changes as compare
from analysis.mlperf import CHECKER_RULES_PATH
from analysis.reading.logs import mllog
from analysis.reading.run_folder import RunFolder
from analysis.report import headline, report
from analysis.results import summary
from analysis.results.analyse_run import analyse_run
from services.schema.errors import UserError

MakeRun = Callable[..., RunFolder]
ASP = {"kind": "parameter_server", "synchrony": {"kind": "asp"}}


@pytest.fixture(scope="module")
def reported_run(run_writer: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run with its report; read only."""
    folder = run_writer(tmp_path_factory.mktemp("runs"))
    report.write_report(folder.path)
    return folder


@pytest.fixture
def measure_run() -> Callable[[RunFolder], summary.RunSummary]:
    """Measures a run folder."""

    def measure(folder: RunFolder) -> summary.RunSummary:
        return analyse_run(folder)[1]

    return measure


def test_summary_follows_its_schema(reported_run: RunFolder, pytestconfig: pytest.Config) -> None:
    schema = json.loads((pytestconfig.rootpath / "analysis" / "results" / "summary.schema.json").read_text())

    content = json.loads(reported_run.summary_path.read_text())

    jsonschema.Draft202012Validator(schema).validate(content)
    assert content["verdict"] == "valid"
    assert [len(content[key]) for key in ("trials", "curves")] == [10, 3]


def test_the_summary_contains_only_numbers_valid_in_json(
    make_run: MakeRun, measure_run: Callable[[RunFolder], summary.RunSummary]
) -> None:
    """Python writes NaN and infinity, but other JSON parsers reject them."""
    folder = make_run(strategies=("ps_asp",), workers=(8,))

    text = summary.write_summary(folder, measure_run(folder)).read_text()

    assert not re.search(r"\b(NaN|Infinity)\b", text)


def test_the_merged_log_is_ordered_by_time_and_complete(reported_run: RunFolder) -> None:
    trial = reported_run.trial_folders[-1]

    merged = mllog.read_log(trial.merged_log_path)

    times = [event.time_ms for event in merged.events]
    assert times == sorted(times)
    assert len(times) == sum(len(mllog.read_log(path).events) for path in trial.log_paths)


def test_steps_csv_has_a_row_per_rank_and_step(reported_run: RunFolder) -> None:
    header, *rows = reported_run.trial_folders[-1].step_csv_path.read_text().splitlines()

    assert header.startswith("node,rank,step,epoch,start_s,step_s,data_s,compute_s,exchange_s,wait_s,update_s")
    assert len(rows) == 4 * json.loads(reported_run.summary_path.read_text())["trials"][-1]["steps"]


def test_fidelity_json_lists_every_check(reported_run: RunFolder) -> None:
    content = json.loads(reported_run.trial_folders[0].fidelity_json_path.read_text())

    assert content["verdict"] == "valid"
    assert set(content["checks"]) == set(CHECKS)


@pytest.mark.parametrize(
    "name",
    [
        "compute_utilisation",
        "efficiency",
        "learning",
        "predicted",
        "predicted_speedup",
        "speedup",
        "staleness",
        "step_breakdown",
        "time_to_target",
    ],
)
def test_every_figure_has_its_picture_and_its_data(reported_run: RunFolder, name: str) -> None:
    for ending in ("svg", "png", "csv", "json"):
        assert (reported_run.figures_folder_path / f"{name}.{ending}").stat().st_size > 100


def test_the_page_loads_nothing_external(reported_run: RunFolder) -> None:
    page = reported_run.report_path.read_text()

    assert "<script" not in page
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', page)
    assert page.count("<svg") == 9
    assert "not an MLPerf result" in page


def test_every_id_on_the_page_is_unique(reported_run: RunFolder) -> None:
    """Figures are drawn separately and inlined into one page."""
    ids = re.findall(r' id="([^"]+)"', reported_run.report_path.read_text())

    assert len(ids) == len(set(ids))


def test_every_link_of_the_page_leads_to_a_file(reported_run: RunFolder) -> None:
    links = re.findall(r'<a href="([^"]+)"', reported_run.report_path.read_text())

    assert links
    assert all((reported_run.path / link).exists() for link in links)


def test_writing_a_report_again_gives_the_same_bytes(reported_run: RunFolder, tmp_path: Path) -> None:
    """Ids are deterministic and there are no dates: two reports can be compared."""
    copy = RunFolder(tmp_path / "quickstart" / reported_run.path.name)
    shutil.copytree(reported_run.path, copy.path)

    report.write_report(copy.path)

    for name in ("report.html", "summary.json", "figures/speedup.svg", "figures/learning.png"):
        assert (copy.path / name).read_bytes() == (reported_run.path / name).read_bytes()


def test_an_unfinished_run_still_gets_its_report(make_run: MakeRun) -> None:
    folder = make_run(strategies=("ring", "ps_asp"), workers=(1, 2))
    _, second, third, fourth, fifth = folder.trial_folders
    second.status_path.write_text(
        json.dumps({"status": "failed", "reason": "worker-0 ran out of memory", "engine": "docker"})
    )
    third.status_path.unlink()
    shutil.rmtree(fourth.path / "logs")
    fifth.status_path.write_text('{"trial": "cut o')

    page = report.write_report(folder.path).read_text()

    content = json.loads(folder.summary_path.read_text())
    assert [trial["status"] for trial in content["trials"]] == ["success", "failed", "aborted", "aborted", "aborted"]
    assert (content["status"], content["verdict"]) == ("failed", "invalid")
    assert "worker-0 ran out of memory" in page


def test_the_report_of_a_run_without_trials_states_that(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"run": "broken-off"}')

    page = report.write_report(tmp_path).read_text()

    assert "No trial finished" in page
    assert "the run has no trials" in page
    assert json.loads((tmp_path / "summary.json").read_text())["verdict"] == "invalid"


def test_a_folder_that_is_not_a_run_is_rejected(tmp_path: Path) -> None:
    """Nothing may be written into another folder, and an empty folder may not be called valid."""
    with pytest.raises(UserError, match="not a run folder"):
        report.write_report(tmp_path)

    assert not any(tmp_path.iterdir())


def test_the_headline_names_winner_margin_and_reason(
    reported_run: RunFolder, measure_run: Callable[[RunFolder], summary.RunSummary]
) -> None:
    sentences = headline.headline_sentences(measure_run(reported_run))

    winner = "Ring on 4 workers reaches accuracy ≥ 0.95 first, in 1."
    assert sentences[0].startswith(winner)
    assert sentences[0].endswith("times as fast as ps_asp on 2 workers (significance not measured: one run each).")
    assert sentences[1].startswith("Why: on 4 workers ring exchanges for a mean of 5.")
    assert "times the samples of ring (its gradients are 3." in sentences[1]


def test_equal_strategies_have_no_winner(
    make_run: MakeRun, measure_run: Callable[[RunFolder], summary.RunSummary]
) -> None:
    folder = make_run(strategies=("ring",), workers=(1,))

    assert "too close to call" in headline.headline_sentences(measure_run(folder))[0]


def test_one_worker_alone_is_compared_with_distributed_strategies(
    make_run: MakeRun, measure_run: Callable[[RunFolder], summary.RunSummary]
) -> None:
    sentences = headline.headline_sentences(measure_run(make_run(strategies=("ps_bsp",), workers=(1, 4))))

    assert sentences[0].startswith("One worker alone reaches accuracy")
    assert sentences[0].endswith("times as fast as ps_bsp on 4 workers (significance not measured: one run each).")
    assert sentences[1].startswith("Why: ps_bsp on 4 workers exchanges for a mean of 3")
    assert "one worker alone" not in sentences[1], "that one worker exchanges for 0 ms is trivial"


@pytest.mark.parametrize("has_rates", [True, False])
def test_the_report_names_a_server_whose_link_is_not_limited(make_run: MakeRun, *, has_rates: bool) -> None:
    """Beside workers with slow links, such a server flatters its strategy; the plan alone shows it."""
    folder = make_run(strategies=("ps_bsp",), workers=(2,))
    for trial in folder.trial_folders:
        plan = json.loads((trial.path / "plan.json").read_text())
        for node in plan["nodes"]:
            if node["name"] == "server-0":
                node.update({"role": "ps_shard"} | ({} if has_rates else {"uplink_bps": None, "downlink_bps": None}))
        (trial.path / "plan.json").write_text(json.dumps(plan))

    page = report.write_report(folder.path).read_text()

    assert page.count("server-0: no rate declared, so its link is not limited") == int(not has_rates)


def test_a_narrow_screen_shows_findings_outside_of_the_figures(reported_run: RunFolder) -> None:
    """A title inside a picture that is wider than the screen is cut at its edge."""
    page = reported_run.report_path.read_text()

    titles = re.findall(r'<figure aria-label="([^"]+)">\s*<p class="narrow">(.*?)</p>', page)
    assert len(titles) == page.count("<figure ") > 2
    assert all(label == finding for label, finding in titles)
    assert re.search(r"@media \(max-width: 44rem\).*\.narrow \{ display: block; \}", page)


def test_compare_prints_two_runs_in_one_table(reported_run: RunFolder) -> None:
    table = compare.compare_runs(reported_run.path, reported_run.path)

    row = next(line.split() for line in table.splitlines() if line.startswith("ring") and line.split()[1] == "4")
    assert (row[4], row[7]) == ("1.00", "1.00")


def test_mlcommons_checker_accepts_the_merged_log(reported_run: RunFolder, tmp_path: Path) -> None:
    assert checker(reported_run.trial_folders[-1].merged_log_path, tmp_path).returncode == 0


@pytest.mark.parametrize("key", ["cache_clear", "submission_org", "run_stop", "eval_accuracy", "seed"])
def test_mlcommons_checker_rejects_a_log_without_a_required_key(
    reported_run: RunFolder, tmp_path: Path, key: str
) -> None:
    lines = reported_run.trial_folders[-1].merged_log_path.read_text().splitlines(keepends=True)
    short = tmp_path / "result.txt"
    short.write_text("".join(line for line in lines if f'"key": "{key}"' not in line))

    assert checker(short, tmp_path).returncode == 1


@pytest.mark.parametrize(("reason", "code"), [("", 1), ("worker-1 left", 0)])
def test_an_aborted_run_must_give_its_reason(reported_run: RunFolder, tmp_path: Path, reason: str, code: int) -> None:
    lines = reported_run.trial_folders[-1].merged_log_path.read_text()
    aborted = tmp_path / "result.txt"
    aborted.write_text(
        lines.replace('"status": "success"', '"status": "aborted"').replace('"reason": ""', f'"reason": "{reason}"')
    )

    assert checker(aborted, tmp_path).returncode == code


@pytest.fixture(scope="module")
def block_log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Merged log of an asynchronous trial that was evaluated every 480 samples."""
    settings = {"workload.evaluate_every": 480, "workload.epochs": 1, "strategies": {"asp": ASP}}
    run = ensayo.rehearse("smoke", "simulated", tmp_path_factory.mktemp("runs"), settings)
    (trial,) = RunFolder(run.folder).trial_folders
    return trial.merged_log_path.read_text()


def test_mlcommons_checker_accepts_blocks_of_samples_instead_of_epochs(block_log: str, tmp_path: Path) -> None:
    """As of MLPerf's benchmarks that are evaluated every few samples."""
    result = tmp_path / "result.txt"
    result.write_text(block_log)

    assert block_log.count('"block_stop"') > 2
    assert "epoch_start" not in block_log
    assert checker(result, tmp_path).returncode == 0


@pytest.mark.parametrize("lost", ["block_start", "block_stop"])
def test_mlcommons_checker_rejects_a_log_without_a_boundary_of_its_blocks(
    block_log: str, tmp_path: Path, lost: str
) -> None:
    """A lost line must not pass as a long block."""
    lines = block_log.splitlines(keepends=True)
    first = next(number for number, text in enumerate(lines) if f'"key": "{lost}"' in text)
    result = tmp_path / "result.txt"
    result.write_text("".join(lines[:first] + lines[first + 1 :]))

    assert checker(result, tmp_path).returncode == 1


def checker(result: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs MLCommons' compliance checker with our rules."""
    program = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--config", str(CHECKER_RULES_PATH)]
    log_option = ["--log_output", str(folder / "checker.log"), str(result)]
    return subprocess.run([*program, *log_option], capture_output=True, text=True, check=False)
