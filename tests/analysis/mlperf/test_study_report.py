"""The folder that `ensayo mlperf` writes: it is complete and refers to nothing outside."""

import json
import re
import resource
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from analysis.mlperf.chapters.sources import SHIPPED_ORIGIN_TEXT, make_data_sources_chapter
from analysis.mlperf.reading.results import SHIPPED_RESULTS_PATH, MlperfResults, UnscoredResult, read_results_csv
from analysis.mlperf.report import make_chapters, write_mlperf_report
from analysis.mlperf.study import make_mlperf_study
from analysis.reading import parallel as cores
from analysis.reading.parallel import ProcessPool
from analysis.report.wording import format_number
from ensayo import cli
from services.schema.errors import UserError

CPU_LIMIT_S = 30.0


@pytest.fixture(scope="module")
def shipped_report(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, float]:
    """Output of the command for the shipped results, the folder that it wrote, and its CPU seconds."""
    out = tmp_path_factory.mktemp("study") / "out"
    began = _cpu_s()
    result = CliRunner().invoke(cli.app, ["mlperf", "--out", str(out)], catch_exceptions=False, env={"COLUMNS": "140"})
    assert result.exit_code == 0, result.output
    return result.output, out, _cpu_s() - began


def _cpu_s() -> float:
    """CPU seconds of this process and of its finished child processes."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def test_the_command_writes_eight_figures_and_all_tables_within_half_a_minute(
    shipped_report: tuple[str, Path, float],
) -> None:
    """Measured in CPU time, so that a busy host changes nothing."""
    _, out, seconds = shipped_report
    kinds = {(kind, benchmark) for kind in ("comparison", "clusters") for benchmark in read_results_csv().benchmarks}

    assert len(kinds) == 8
    for kind, benchmark in kinds:
        for ending in ("svg", "png", "csv", "json"):
            assert (out / "figures" / f"{kind}-{benchmark}.{ending}").stat().st_size > 100
    assert {"references.csv", "systems.csv", "clusters-tried.csv"} <= {path.name for path in (out / "tables").iterdir()}
    assert seconds < CPU_LIMIT_S


def test_the_terminal_shows_references_silhouettes_and_unstable_clusters(
    shipped_report: tuple[str, Path, float],
) -> None:
    """A reader of the terminal alone must not take unstable clusters for facts."""
    output, out, _ = shipped_report
    lines = [" ".join(line.split()) for line in output.splitlines()]

    assert "Series of 3 further workloads (DLRM-DCNv2, R-GAT and GPT-3 175B)" in lines[0]
    assert "BERT 29 2 3,472 Krai 7920T_2xA5000_hdd 2 366.19" in lines
    assert "Stable Diffusion 25 4 1,024 Dell XE8640x4H100-SXM-80GB 4 60.56" in lines
    assert any(re.fullmatch(r"BERT 5 0\.765 0\.\d+ yes", line) for line in lines)
    assert any(re.fullmatch(r"RetinaNet 2 0\.688 0\.\d+ no", line) for line in lines)
    assert lines[-1] == str(out / "report.html")


def test_the_page_loads_nothing_external_and_every_link_has_a_target(shipped_report: tuple[str, Path, float]) -> None:
    """The page is passed on as one file with its folder beside it."""
    _, out, _ = shipped_report
    page = (out / "report.html").read_text()
    links = re.findall(r'<a href="([^"]+)"', page)
    ids = re.findall(r' id="([^"]+)"', page)

    assert "<script" not in page
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', page)
    assert page.count("<svg") == len(list((out / "figures").glob("*.svg")))
    assert len(ids) == len(set(ids))
    assert links
    assert all(link[1:] in ids if link.startswith("#") else (out / link).exists() for link in links)


def test_the_page_states_that_its_numbers_are_not_mlperf_results(shipped_report: tuple[str, Path, float]) -> None:
    """The name belongs to MLCommons, and is reserved for results that conform."""
    page = (shipped_report[1] / "report.html").read_text()

    assert "registered and unregistered trademarks of MLCommons Association" in page
    assert "derived numbers, not MLPerf results" in page
    assert "not copied from the published table" in page


def test_tables_and_figures_contain_numbers_in_full_precision(shipped_report: tuple[str, Path, float]) -> None:
    """New drawings start from these numbers."""
    _, out, _ = shipped_report
    systems = pd.read_csv(out / "tables" / "systems.csv")
    rows = json.loads((out / "figures" / "comparison-bert.json").read_text())["rows"]

    assert len(systems) == 108
    assert (systems.efficiency * systems["size"] / systems.speedup).to_numpy() == pytest.approx(1.0)
    assert [row["speedup"] for row in rows] == pytest.approx(
        list(systems[systems.benchmark == "bert"].speedup), rel=1e-8
    )
    assert read_results_csv(out / "results.csv").rows == read_results_csv().rows


def test_the_same_results_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports can be compared with each other, also between hosts with different numbers of cores."""
    monkeypatch.setattr(cores, "_usable_core_count", lambda: 2)
    few = make_mlperf_study(MlperfResults(read_results_csv().results_of("ssd"), "some.csv"))

    write_mlperf_report(few, make_chapters(few), tmp_path / "once")
    with ProcessPool() as pool:
        write_mlperf_report(few, make_chapters(few), tmp_path / "again", pool)

    first_files = {path.relative_to(tmp_path / "once"): path.read_bytes() for path in (tmp_path / "once").rglob("*.*")}
    assert len(first_files) >= 14
    for path, content in first_files.items():
        assert (tmp_path / "again" / path).read_bytes() == content, path


def test_names_from_submissions_are_escaped_on_the_page(tmp_path: Path) -> None:
    """Descriptions of systems may contain any text."""
    row = read_results_csv().rows[0].model_copy(update={"submitter": "<b>We</b>"})
    strange = make_mlperf_study(
        MlperfResults(
            (row,),
            "some.csv",
            (UnscoredResult("a <i>folder</i>", "its division is open, not closed", "of the <i>open</i> division"),),
        )
    )

    page = write_mlperf_report(strange, make_chapters(strange), tmp_path).read_text()

    assert "&lt;b&gt;We&lt;/b&gt;" in page
    assert "<b>We" not in page
    assert "<i>" not in page


MINE = """benchmark,submitter,system,accelerator,accelerator_count,minutes
mine,We,one,GPU,2,60
mine,We,two,GPU,4,32
mine,We,three,GPU,16,7
"""


def test_a_table_of_one_workload_is_described_in_the_singular(tmp_path: Path) -> None:
    """Three systems form no clusters, and a table has neither samples nor batches, so questions stay open."""
    (tmp_path / "mine.csv").write_text(MINE)
    chapters = {
        chapter.title: chapter for chapter in make_chapters(make_mlperf_study(read_results_csv(tmp_path / "mine.csv")))
    }

    assert chapters["Systems and references"].finding == "3 results of 1 workload."
    assert chapters["Speedup and efficiency"].finding == (
        "The fastest system is 8.57 times as fast as its reference, at an efficiency E' of 1.07."
    )
    assert chapters["Not answered"].finding == (
        "These results cannot answer: Clusters, Hardware and learning, Balance points, Claims of the study, Scaling "
        "laws, Extrapolation."
    )
    assert len(chapters["Not answered"].paragraphs) == 6
    assert list(chapters)[-1] == "Sources and limits"
    assert not [title for title, chapter in chapters.items() if "the study's" in str(chapter)]


def test_the_origin_of_the_shipped_results_is_stated_for_any_path_spelling() -> None:
    """A path with a detour leads to the same results."""
    detour = SHIPPED_RESULTS_PATH.parent / ".." / SHIPPED_RESULTS_PATH.parent.name / SHIPPED_RESULTS_PATH.name

    assert SHIPPED_ORIGIN_TEXT in make_data_sources_chapter(make_mlperf_study(read_results_csv(detour))).paragraphs


def test_one_result_is_described_in_the_singular() -> None:
    results = MlperfResults(read_results_csv().results_of("ssd")[:1], "mine.csv")

    assert (
        make_data_sources_chapter(make_mlperf_study(results)).finding == "Read from mine.csv: 1 result, 0 not scored."
    )


def test_every_question_is_answered_for_the_shipped_results(shipped_report: tuple[str, Path, float]) -> None:
    assert "Not answered" not in (shipped_report[1] / "report.html").read_text()


def test_the_finding_on_stable_clusters_names_the_workload() -> None:
    (finding,) = (
        chapter.finding
        for chapter in make_chapters(
            make_mlperf_study(MlperfResults(read_results_csv().results_of("bert"), "some.csv"))
        )
        if chapter.title == "Clusters"
    )

    assert finding == "K-means finds stable clusters in the systems of BERT."


def test_a_table_that_is_not_utf8_is_rejected_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_bytes(MINE.encode() + b"mine,We,\xff,GPU,4,32\n")

    with pytest.raises(UserError, match=r"mine\.csv: cannot be read: line 5 has byte 0xff, which is not UTF-8"):
        read_results_csv(tmp_path / "mine.csv")


def test_an_invalid_table_is_rejected_before_any_file_is_written(tmp_path: Path) -> None:
    """Exit code 2 stands for errors that the user can fix."""
    (tmp_path / "mine.csv").write_text("benchmark\n")

    result = CliRunner().invoke(cli.app, ["mlperf", "--data", str(tmp_path / "mine.csv"), "--out", str(tmp_path / "o")])

    assert isinstance(result.exception, UserError)
    assert not (tmp_path / "o").exists()


def test_the_documentation_has_the_current_findings_of_the_command(
    shipped_report: tuple[str, Path, float], pytestconfig: pytest.Config
) -> None:
    """The documentation gives the findings with numbers, which must be current."""
    _, out, _ = shipped_report
    page = (pytestconfig.rootpath / "docs" / "mlperf.md").read_text()
    chosen = pd.read_csv(out / "tables" / "clusters-chosen.csv")
    fastest = pd.read_csv(out / "tables" / "fastest.csv")

    for row in chosen.itertuples():
        stability = "stable" if row.stable == "yes" else "not stable"
        assert f"| {row.workload} | {row.k} | {row.silhouette:.3f} | {row.stability:.3f} | {stability} |" in page
    for row in fastest.itertuples():
        assert re.search(
            rf"^\| {row.workload} \|.* \| {format_number(row.speedup)} \| {format_number(row.efficiency)} "
            rf"\| {row.above_one} \|$",
            page,
            re.MULTILINE,
        )
