"""`ensayo mlperf` with several sources, rules and trusted results, and the errors of its options."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from analysis.figures.drawing.style import figure_style_context
from analysis.mlperf.chapters import Chapter
from analysis.mlperf.chapters.factors import scaling_efficiency_chapter
from analysis.mlperf.chapters.rounds import rounds_chapter
from analysis.mlperf.chapters.systems import systems_chapter
from analysis.mlperf.reading.folders import read_round_folder
from analysis.mlperf.reading.results import MlperfResult, MlperfResults
from analysis.mlperf.rule_sets.rounds import choose_rule_set
from analysis.mlperf.study import MlperfStudy, make_mlperf_study
from ensayo import cli
from ensayo.terminal.mlperf_tables import make_unique_labels
from services.schema.errors import UserError

HEADER = "benchmark,submitter,system,accelerator,accelerator_count,minutes,framework"
EARLIER = f"""{HEADER}
ssd,We,box,H100-SXM,8,40,PyTorch 1
ssd,They,tower,H100-SXM,64,8,PyTorch 1
bert,We,box,H100-SXM,8,6,PyTorch 1
"""
LATER = f"""{HEADER}
retinanet,We,box,H100-SXM,8,32,PyTorch 2
retinanet,We,tower,H100-SXM,64,10,PyTorch 2
retinanet,We,new,B200-SXM,8,16,PyTorch 2
"""


def run(*arguments: str | Path) -> str:
    """Output of `ensayo mlperf`."""
    result = CliRunner().invoke(cli.app, ["mlperf", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def study_of(*rows: tuple[str, str, int, float]) -> MlperfStudy:
    """A study of results, each with workload, submitter, number of accelerators and minutes."""
    results = (
        MlperfResult(
            benchmark=benchmark,
            submitter=submitter,
            system=f"box{index}",
            accelerator="H100-SXM",
            accelerator_count=count,
            minutes=minutes,
        )
        for index, (benchmark, submitter, count, minutes) in enumerate(rows)
    )
    return make_mlperf_study(MlperfResults(tuple(results), "mine.csv"))


def test_two_sources_get_a_page_each_and_a_page_that_compares_them(tmp_path: Path) -> None:
    """RetinaNet has another folder name since round 5.0; it is the same workload."""
    for name, text in (("old", EARLIER), ("new", LATER)):
        (tmp_path / f"{name}.csv").write_text(text)
    out = tmp_path / "out"

    output = run("--data", tmp_path / "old.csv", "--data", tmp_path / "new.csv", "--out", out)

    rows = pd.read_csv(out / "tables" / "rounds-sizes.csv")
    assert rows[["workload", "accelerator_kind", "accelerators", "earlier", "later"]].to_numpy().tolist() == [
        ["RetinaNet", "H100 SXM", 8, "old", "new"],
        ["RetinaNet", "H100 SXM", 64, "old", "new"],
    ]
    assert rows.speedup.tolist() == pytest.approx([40 / 32, 8 / 10])
    assert rows.submitter_and_software.tolist() == ["We pytorch", "mixed"]
    assert "the later source is faster in 1 of 2 comparisons of 1 workload" in " ".join(output.split())
    page = (out / "report.html").read_text()
    assert '<a href="old/report.html">old</a>, <a href="new/report.html">new</a>' in page
    assert pd.read_csv(out / "old" / "results.csv").minutes.tolist() == [40, 8, 6]
    assert (out / "new" / "report.html").exists()


def test_each_source_is_compared_with_the_next_that_has_the_same_size() -> None:
    studies = [study_of(("bert", "We", 8, 6.0)), study_of(("ssd", "We", 8, 9.0)), study_of(("bert", "They", 8, 3.0))]

    chapter = rounds_chapter(studies, ["a", "b", "c"])

    (row,) = chapter.tables[1].data.to_dict("records")
    assert (row["earlier"], row["later"], row["speedup"], row["submitter_and_software"]) == ("a", "c", 2.0, "mixed")


def test_results_of_one_submitter_are_compared_where_both_sources_have_them() -> None:
    """The fastest results of two rounds are mostly of different submitters, although the same ones took part."""
    studies = [
        study_of(("bert", "We", 8, 6.0), ("bert", "They", 8, 5.0)),
        study_of(("bert", "We", 8, 3.0), ("bert", "We", 8, 4.0), ("bert", "Others", 8, 1.0)),
    ]

    (row,) = rounds_chapter(studies, ["a", "b"]).tables[1].data.to_dict("records")

    assert (row["earlier_minutes"], row["later_minutes"], row["submitter_and_software"]) == (6.0, 3.0, "We")


def test_systems_without_accelerators_are_counted_in_their_own_unit() -> None:
    """Two processors are not fewer accelerators than eight."""
    study = study_of(("bert", "We", 8, 6.0), ("bert", "We", 16, 4.0), ("bert", "We", 2, 600.0))
    rows = study.results.rows
    processors = rows[2].model_copy(update={"unit": "processors", "accelerator": "Xeon"})

    chapter = systems_chapter(make_mlperf_study(MlperfResults((*rows[:2], processors), "mine.csv")))

    (row,) = chapter.tables[0].data.to_dict("records")
    assert (row["systems"], row["fewest"], row["most"], row["reference_accelerators"]) == (3, 8, 16, 8)
    assert (
        "1 result of systems without accelerators: N is the number of processors, and E' compares"
        in (chapter.paragraphs[-1])
    )


def test_sources_without_a_common_size_are_not_compared() -> None:
    chapter = rounds_chapter([study_of(("bert", "We", 8, 6.0)), study_of(("bert", "We", 16, 4.0))], ["a", "b"])

    assert chapter.finding == "No workload has results on the same kind and number of accelerators in two sources."
    assert [table.name for table in chapter.tables] == ["rounds-fastest"]


def test_sources_of_the_same_name_get_different_folders() -> None:
    assert make_unique_labels(["mine.csv", "mine", "mine-2.csv", "other"]) == ["mine", "mine-2", "mine-2-2", "other"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rules", "9.9"], "--rules 9.9: unknown round; allowed are 2.0, 2.1, 3.0, 3.1, 4.0, 4.1, 5.0, 5.1"),
        (["--rules", "4.1"], "--rules and --trust-published are for logs; add --data with a folder"),
        (["--trust-published"], "--rules and --trust-published are for logs; add --data with a folder"),
        (["--rules", "4.1", "--trust-published"], "--rules and --trust-published: keep one of them"),
    ],
)
def test_invalid_options_are_rejected_before_any_file_is_written(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    with pytest.raises(UserError) as raised:
        run(*arguments, "--out", tmp_path / "out")

    assert str(raised.value).startswith(message)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def round_folder(tmp_path: Path, pytestconfig: pytest.Config) -> Path:
    """A round with five runs of RetinaNet of each of three submitters; the logs of the last one lack the batch size."""
    log = next((pytestconfig.rootpath / "tests/golden/mlperf").glob("*__ssd__result_0.txt")).read_text()
    without_batch = "".join(line for line in log.splitlines(keepends=True) if '"global_batch_size"' not in line)
    for submitter, nodes, text in (("Acme", 1, log), ("Beta", 2, log), ("Gamma", 4, without_batch)):
        folder = tmp_path / "training_results_v4.1" / submitter / "results" / "box" / "ssd"
        folder.mkdir(parents=True)
        for number in range(5):
            (folder / f"result_{number}.txt").write_text(lengthened(text, 1000 * (100 * nodes + number)))
        description = {
            "number_of_nodes": nodes,
            "accelerators_per_node": 8,
            "accelerator_model_name": "H100-SXM",
            "framework": "PyTorch",
        }
        systems = folder.parents[2] / "systems"
        systems.mkdir()
        (systems / "box.json").write_text(json.dumps(description))
    return tmp_path / "training_results_v4.1"


def lengthened(text: str, later_ms: int) -> str:
    """The log of a run that stopped so much later."""
    return "".join(
        re.sub(r'"time_ms": (\d+)', lambda match: f'"time_ms": {int(match[1]) + later_ms}', line)
        if '"run_stop"' in line
        else line
        for line in text.splitlines(keepends=True)
    )


def test_the_terminal_starts_with_the_unscored_results_and_the_rules(round_folder: Path, tmp_path: Path) -> None:
    """A reader must not take two of three results for a round."""
    output = " ".join(run("--data", round_folder, "--out", tmp_path / "out").split())

    assert output.startswith(
        "2 results of 1 workload. 1 of 3 results not scored: 1 where a log has no global_batch_size. "
        "Rules of round 4.1, detected from the folder name training_results_v4.1."
    )
    assert pd.read_csv(tmp_path / "out" / "results.csv", dtype=str).rules.tolist() == ["4.1", "4.1"]


def test_trusted_results_are_all_accepted_and_the_report_says_so(round_folder: Path, tmp_path: Path) -> None:
    output = " ".join(run("--data", round_folder, "--trust-published", "--out", tmp_path / "out").split())

    assert output.startswith("3 results of 1 workload. Results taken as published, without a check of their logs.")
    assert pd.read_csv(tmp_path / "out" / "results.csv").rules.tolist() == ["published"] * 3
    assert "taken as published, without a check of their logs" in (tmp_path / "out" / "report.html").read_text()


def test_the_chosen_rules_replace_the_detected_ones(round_folder: Path) -> None:
    """Round 5.0 has renamed the workload, so its rules accept no log of `ssd`."""
    with pytest.raises(UserError, match=r"which only these rounds have: 2\.0, 2\.1, 3\.0, 3\.1, 4\.0, 4\.1"):
        run("--data", round_folder, "--rules", "v5.0")

    chosen = choose_rule_set("3.1", trusts_published=False)

    assert read_round_folder(round_folder, chosen).rule_set is chosen
    assert chosen is not None
    assert chosen.description == "rules of round 3.1, chosen with --rules"


def factors_of(round_folder: Path) -> Chapter:
    """The chapter on hardware and statistical efficiency of a round."""
    with figure_style_context():
        chapter = scaling_efficiency_chapter(make_mlperf_study(read_round_folder(round_folder)))
    assert chapter is not None
    return chapter


def test_a_series_of_several_submitters_is_marked_as_mixed(round_folder: Path) -> None:
    """The difference between two sizes is then also one between submitters."""
    mixed = factors_of(round_folder).tables[0].data
    shutil.copytree(round_folder / "Beta" / "results" / "box", round_folder / "Acme" / "results" / "twin")
    shutil.copy(round_folder / "Beta" / "systems" / "box.json", round_folder / "Acme" / "systems" / "twin.json")
    shutil.rmtree(round_folder / "Beta")
    own = factors_of(round_folder).tables[0].data

    assert mixed.submitter_and_software.tolist() == ["mixed"]
    assert own.submitter_and_software.tolist() == ["Acme pytorch"]
    assert own.efficiency.tolist() == mixed.efficiency.tolist()


def test_a_workload_whose_largest_system_is_not_in_its_series_names_the_system(round_folder: Path) -> None:
    """The series has the kind of accelerator with most sizes, which may lack the largest system."""
    log = (round_folder / "Acme" / "results" / "box" / "ssd" / "result_0.txt").read_text()
    for number, path in enumerate(sorted((round_folder / "Gamma" / "results" / "box" / "ssd").iterdir())):
        path.write_text(lengthened(log, 50_000 + 1000 * number))
    described = round_folder / "Gamma" / "systems" / "box.json"
    changes = {"accelerator_model_name": "H200-SXM", "number_of_nodes": 16}
    described.write_text(json.dumps(json.loads(described.read_text()) | changes))

    (text,) = factors_of(round_folder).paragraphs[1:]

    assert text.startswith("RetinaNet: the largest system (Gamma box, 128 x H200 SXM) is not in the series")
