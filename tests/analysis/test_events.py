"""Events in the report: listed with their lateness, shaded in the figure, absent if none were planned."""

import json
from collections.abc import Callable

import pytest

from analysis.exports.readable_trials import read_readable_trials
from analysis.figures.base import AnalysedRun
from analysis.figures.timeline import draw_step_times_with_events
from analysis.reading.run_folder import RunFolder
from analysis.report import report
from analysis.report.wording import format_number
from analysis.results.analyse_run import analyse_run

MakeRun = Callable[..., RunFolder]
AT_S, LASTS_S = 0.2, 0.3


@pytest.fixture
def run_with_events(make_run: MakeRun, line: Callable[..., str]) -> RunFolder:
    """A run whose ring on two workers is disturbed: worker-1 slows down, and the engine changes a link."""
    folder = make_run(strategies=("ring",), workers=(2,), baseline=False)
    (trial,) = folder.trial_folders
    planned = json.loads(trial.plan_path.read_text())
    slow = {"kind": "slowdown", "at": {"time": "200ms"}, "lasts": "300ms", "of": ["worker-1"], "factor": 3.0}
    link = {"kind": "link", "at": {"time": "100h"}, "of": ["worker-0"], "uplink": "10mbit"}
    changes = {"step": None, "change": slow}, {"step": None, "change": link}
    planned["events"] = [{"number": 0, "time_s": AT_S, **changes[0]}, {"number": 1, "time_s": 360000.0, **changes[1]}]
    trial.plan_path.write_text(json.dumps(planned))
    applied = [
        {"number": 0, "kind": "slowdown", "planned_s": at, "applied_s": at + 0.01, "lateness_s": 0.01, "phase": phase}
        for phase, at in (("begin", AT_S), ("end", AT_S + LASTS_S))
    ]
    lines = [line("event_applied", value | {"by": "worker-1"}, 100 + AT_S, "worker-1") for value in applied]
    with trial.log_path("worker-1").open("a") as log:
        log.write("\n".join(lines) + "\n")
    return folder


def test_every_planned_event_is_in_the_summary_with_its_lateness(run_with_events: RunFolder) -> None:
    report.write_report(run_with_events.path)

    (trial,) = json.loads(run_with_events.summary_path.read_text())["trials"]
    first, second = trial["events"]

    assert (first["kind"], first["nodes"], first["planned_s"]) == ("slowdown", ["worker-1"], AT_S)
    assert first["applied_s"] == pytest.approx(0.21)
    assert first["ended_s"] == pytest.approx(0.51)
    assert first["lateness_s"] == pytest.approx(0.01)
    assert second["applied_s"] is None
    assert trial["verdict"] == "valid"  # the second was not due before the end


def test_a_partition_is_in_the_headline_with_the_time_for_which_workers_were_blocked(
    make_run: MakeRun, line: Callable[..., str]
) -> None:
    """Else a reader takes links for the reason of long exchanges."""
    folder = make_run(strategies=("ring",), workers=(2,), baseline=False)
    (trial,) = folder.trial_folders
    planned = json.loads(trial.plan_path.read_text())
    partition = {"kind": "partition", "at": {"time": "200ms"}, "lasts": "300ms", "apart": ["worker-1"]}
    planned["events"] = [{"number": 0, "time_s": AT_S, "step": None, "change": partition}]
    trial.plan_path.write_text(json.dumps(planned))
    for phase, at in (("begin", AT_S), ("end", AT_S + LASTS_S)):
        value = {"number": 0, "kind": "partition", "planned_s": at, "applied_s": at, "lateness_s": 0.0, "phase": phase}
        with trial.log_path("worker-1").open("a") as log:
            log.write(line("event_applied", value | {"by": "transport"}, 100 + at, "worker-1") + "\n")

    report.write_report(folder.path)

    (table,) = read_readable_trials(folder).trials
    steps = table.steps
    during = steps[(steps["start_s"] < AT_S + LASTS_S) & (steps["start_s"] + steps["step_s"] > AT_S)]
    waits_s = steps["exchange_s"] + steps["wait_s"]
    outside = waits_s.drop(during.index)
    usual_s = outside.groupby(steps["node"], observed=True).median()
    excess_s = waits_s[during.index] - during["node"].astype(str).map(usual_s).astype(float)
    blocked_s = excess_s.groupby(during["node"], observed=True).sum().clip(lower=0)
    (event,) = json.loads(folder.summary_path.read_text())["trials"][0]["events"]
    assert event["least_blocked_s"] == pytest.approx(blocked_s.min())
    assert event["most_blocked_s"] == pytest.approx(blocked_s.max())
    assert 0 <= event["most_blocked_s"] < (steps["exchange_s"] + steps["wait_s"]).sum()
    page = folder.report_path.read_text()
    assert "A partition of the network separated nodes during training" in page
    assert f"{format_number(blocked_s.min())} to {format_number(blocked_s.max())}" in page


def test_the_page_lists_events_and_shows_them_shaded(run_with_events: RunFolder) -> None:
    report.write_report(run_with_events.path)

    page = run_with_events.report_path.read_text()

    assert "<h2>Events</h2>" in page
    assert "slowdown" in page
    assert (run_with_events.figures_folder_path / "timeline.svg").exists()


def test_the_figure_title_gives_the_effect_of_events_on_steps(run_with_events: RunFolder) -> None:
    analysed = AnalysedRun(*analyse_run(run_with_events))

    drawing = draw_step_times_with_events(analysed)

    assert drawing is not None
    assert drawing.title.startswith("While events last, a step of ring")
    during = drawing.data[drawing.data["events"] == "0"]
    assert during["start_s"].max() < AT_S + LASTS_S + 0.01 < drawing.data["end_s"].max()


def test_link_events_are_read_from_the_file_of_the_engine(run_with_events: RunFolder) -> None:
    event = {"number": 1, "kind": "link", "planned_s": 1, "applied_s": 1.1, "lateness_s": 0.1, "phase": "begin"}
    (trial,) = run_with_events.trial_folders
    trial.link_events_path.write_text(json.dumps(event | {"by": "engine", "nodes": ["worker-0"]}) + "\n{cut off")

    (table,) = read_readable_trials(run_with_events).trials

    assert table.events["kind"].tolist() == ["slowdown", "slowdown", "link"]
    assert table.events["nodes"].iloc[-1] == ("worker-0",)


def test_a_run_without_events_has_no_events_figure(make_run: MakeRun) -> None:
    analysed = AnalysedRun(*analyse_run(make_run(strategies=("ring",), workers=(2,))))

    assert draw_step_times_with_events(analysed) is None


def test_the_page_shows_declared_and_achieved_properties(make_run: MakeRun) -> None:
    folder = make_run(strategies=("ring",), workers=(2,))
    report.write_report(folder.path)

    page = folder.report_path.read_text()
    proofs = json.loads(folder.summary_path.read_text())["proofs"]

    assert "Declared and achieved" in page
    assert {proof["what"] for proof in proofs} == {"uplink", "downlink", "compute phase"}
    assert all(abs(proof["error"]) < 0.1 for proof in proofs)


def test_the_rows_of_declared_properties_name_their_trials(make_run: MakeRun) -> None:
    """Compute phases differ between numbers of workers; a row without its trial could not be compared with the plan."""
    folder = make_run(strategies=("ring",), workers=(2,))
    report.write_report(folder.path)

    names = [trial.path.name for trial in folder.trial_folders]
    proofs = json.loads(folder.summary_path.read_text())["proofs"]

    assert {name for proof in proofs for name in proof["trials"]} == set(names)
    assert all(set(proof["trials"]) <= set(names) for proof in proofs)
    assert "<th>trial</th><th>property</th>" in folder.report_path.read_text()


def test_the_summary_names_the_mechanism_that_enforced_links(make_run: MakeRun) -> None:
    """The footer of a figure shows it, since figures are viewed without their page."""
    folder = make_run(strategies=("ring",), workers=(2,), baseline=False)
    (trial,) = folder.trial_folders
    status = json.loads(trial.status_path.read_text()) | {"engine": "docker"}
    status["shaping"] = {name: shaped | {"rung": "transport"} for name, shaped in status["shaping"].items()}
    trial.status_path.write_text(json.dumps(status))

    report.write_report(folder.path)
    numbers = json.loads(folder.summary_path.read_text())

    assert numbers["rungs"] == {"rate": ["transport"]}
    assert numbers["verdict"] == "degraded"
