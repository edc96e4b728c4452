"""Exports of steps, of system descriptions, and of incomplete runs."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlperf_logging.system_desc_checker.system_desc_checker import check_system_desc

from analysis.exports.activities import ACTIVITY_ORDER, count_overlapping_steps, split_steps_into_activities
from analysis.exports.chakra import find_export_obstacle
from analysis.exports.export import export_run
from analysis.exports.hta import HtaExporter
from analysis.exports.mlperf import system_name_of_trial
from analysis.exports.readable_trials import read_readable_trials
from analysis.exports.system_description import describe_system
from analysis.mlperf.reading.folders import read_round_folder
from analysis.reading.plan_view import TrialPlan
from analysis.reading.run_folder import RunFolder, read_json
from analysis.reading.run_table import RunLogTables, TrialLogTables
from services.schema.errors import UserError

MakeRun = Callable[..., RunFolder]
MakeTrial = Callable[..., TrialLogTables]

microseconds = st.integers(0, 10_000)


def steps_of(durations: list[list[int]], slack: list[int]) -> pd.DataFrame:
    """One worker's steps as logs hold them: seconds rounded to microseconds."""
    rows, clock = [], 0
    for step, (phases, slack_us) in enumerate(zip(durations, slack, strict=True)):
        took = dict(
            zip((f"{name}_s" for name in ACTIVITY_ORDER), (duration_us / 1e6 for duration_us in phases), strict=True)
        )
        total_us = sum(phases) + slack_us
        rows.append({"step": step, "start_s": clock / 1e6, "step_s": total_us / 1e6, **took})
        clock += total_us
    constant = {"node": "worker-0", "rank": 0, "epoch": 1, "samples": 8, "bytes_sent": 1, "loss": 0.5}
    return pd.DataFrame(rows).assign(**constant)


@given(st.lists(st.tuples(*[microseconds] * 5), min_size=1, max_size=8), st.data())
def test_activities_fill_a_step_in_order_and_never_overlap(phases: list[tuple[int, ...]], data: st.DataObject) -> None:
    """Overlapping slices are displayed wrongly, and time missing from one phase appears in another."""
    slack = data.draw(st.lists(st.integers(0, 100), min_size=len(phases), max_size=len(phases)))
    steps = steps_of([list(durations) for durations in phases], slack)

    activities = split_steps_into_activities(steps)

    assert (activities["begin_ns"].to_numpy()[1:] >= activities["end_ns"].to_numpy()[:-1]).all()
    assert (activities["end_ns"] > activities["begin_ns"]).all()
    for index, name in enumerate(ACTIVITY_ORDER):
        of_activity = activities[activities["activity"] == name]
        assert (of_activity["end_ns"] - of_activity["begin_ns"]).sum() == pytest.approx(
            1000 * sum(durations[index] for durations in phases)
        )
    assert count_overlapping_steps(steps) == 0


@given(st.lists(st.floats(0, 1e-6), min_size=2, max_size=8))
def test_rounding_in_logs_never_makes_two_steps_overlap(errors: list[float]) -> None:
    """The six numbers of a step are rounded independently."""
    steps = steps_of([[0, 1000, 0, 0, 0]] * len(errors), [0] * len(errors))
    perturbed = steps.assign(compute_s=steps["compute_s"] + np.array(errors))

    activities = split_steps_into_activities(perturbed)

    assert (activities["begin_ns"].to_numpy()[1:] >= activities["end_ns"].to_numpy()[:-1]).all()
    assert count_overlapping_steps(perturbed) == 0


def test_phases_that_are_longer_than_their_step_are_counted() -> None:
    """If an exchange overlapped with computing, the sum of the phases would extend into the next step."""
    steps = steps_of([[0, 1000, 0, 0, 0]] * 3, [0, 0, 0])

    assert count_overlapping_steps(steps.assign(exchange_s=[0.0005, 0.0, 0.0])) == 1


def test_mlcommons_checker_accepts_a_system_description(make_run: MakeRun, tmp_path: Path) -> None:
    """It has the required fields, all of them strings."""
    run = make_run(workers=(2,))

    done = export_run(run.path, "mlperf", tmp_path / "out")

    systems = sorted((done.path / "ensayo" / "systems").glob("*.json"))
    assert [path.stem for path in systems] == ["baseline-w1", "ps_asp-w2", "ps_bsp-w2", "ring-w2"]
    for path in systems:
        valid, name, before, _ = check_system_desc(str(path), "training", "6.1.0")
        assert (valid, name) == (True, path.stem)
        assert before.count(",") == 7  # the checker doesn't quote: a comma in a value is another column


def test_exports_name_invalid_trials(make_run: MakeRun, tmp_path: Path) -> None:
    """Otherwise an invalid trial would look like a clean result in another tool."""
    run = make_run(strategies=("ring",), workers=(2,), repeats=2, baseline=False)
    status = run.trial_folders[1].status_path
    status.write_text(json.dumps(read_json(status) | {"exit_codes": {"worker-0": 1}}))

    tables, results = (export_run(run.path, kind, tmp_path / kind) for kind in ("csv", "mlperf"))

    for done in (tables, results):
        (warning,) = done.invalid_or_degraded_trials
        assert warning.startswith(f"{run.trial_folders[1].path.name}: invalid: ")
    trials = pd.read_csv(tables.path / "trials.csv")
    assert list(trials["verdict"]) == ["valid", "invalid"]
    assert str(trials["verdict_reasons"][1]) in warning
    notes = read_json(results.path / "ensayo" / "systems" / "ring-w2.json")["hw_notes"]
    assert notes.partition("; result_1: ")[2] == warning.partition(": ")[2].replace(",", ";")
    assert "result_0" not in notes


def test_mlcommons_checker_rejects_an_invalid_system_description(make_run: MakeRun, tmp_path: Path) -> None:
    """The checker that accepts our descriptions does not accept everything."""
    run = make_run(workers=(2,))
    fields = describe_system(run.manifest, read_readable_trials(run).trials[0].plan, "a")
    (tmp_path / "short.json").write_text(json.dumps(fields | {"status": "almost"}))

    assert not check_system_desc(str(tmp_path / "short.json"), "training", "6.1.0")[0]


def test_facts_that_were_not_recorded_are_exported_as_such() -> None:
    """The host of a run without a manifest is unknown."""
    fields = describe_system({}, TrialPlan(trial="000", label="ring", workers=2), "a")

    assert fields["host_processor_model_name"] == "not recorded (one host for all nodes)"
    assert fields["host_networking"] == "emulated by the not recorded engine: not recorded"


def test_repeats_are_results_of_one_system(make_run: MakeRun, tmp_path: Path) -> None:
    """MLPerf scores the results of one folder, and MLCommons' own functions find the folder."""
    from mlperf_logging.compliance_checker.mlp_parser import parse_file  # noqa: PLC0415 - beside its use
    from mlperf_logging.result_summarizer import result_summarizer as summarizer  # noqa: PLC0415

    run = make_run(strategies=("ring",), workers=(2,), repeats=3, baseline=False)

    done = export_run(run.path, "mlperf", tmp_path / "out")

    folder = done.path / "ensayo" / "results" / "ring-w2" / "quickstart"
    files = sorted(folder.glob("result_*.txt"))
    minutes = [
        summarizer._query_mlperf_strong_scaling_score(parse_file(str(file), ruleset="6.1.0")[0]) for file in files
    ]
    assert [file.name for file in files] == ["result_0.txt", "result_1.txt", "result_2.txt"]
    assert summarizer._is_organization_folder(str(done.path / "ensayo"))
    assert minutes == pytest.approx([trial.seconds / 60 for trial in read_readable_trials(run).trials])
    assert summarizer._compute_olympic_average(minutes, 0, 1) == pytest.approx(sorted(minutes)[1])


def test_every_condition_is_exported_as_its_own_system(make_run: MakeRun) -> None:
    """Two link rates in one folder would be averaged."""
    run = make_run(strategies=("ring",), workers=(2,), conditions=("100mbit", "1gbit"), baseline=False)

    names = [system_name_of_trial(trial) for trial in read_readable_trials(run).trials]

    assert names == ["ring-w2-cluster.worker.uplink=100mbit", "ring-w2-cluster.worker.uplink=1gbit"]


def test_a_result_without_run_stop_is_exported_with_a_warning(make_run: MakeRun, tmp_path: Path) -> None:
    """Leaving failures out would select the runs that succeeded."""
    run = make_run(strategies=("ring",), workers=(2,), baseline=False)
    log = run.trial_folders[0].log_path("coordinator")
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if "run_stop" not in line))

    done = export_run(run.path, "mlperf", tmp_path / "out")

    assert done.omissions == (
        f"{run.trial_folders[0].path.name}: result_0.txt has no run_stop; the compliance checker will not accept it",
    )


def test_the_study_of_public_results_rejects_our_exports(make_run: MakeRun, tmp_path: Path) -> None:
    """Our results are of the open division, as docs/exports.md says; the study compares only closed ones."""
    export_run(make_run(strategies=("ring",), workers=(2,), repeats=2, baseline=False).path, "mlperf", tmp_path / "out")

    with pytest.raises(UserError, match="ring-w2/quickstart: its division is open, not closed"):
        read_round_folder(tmp_path / "out")


def test_an_unknown_format_is_rejected_with_the_allowed_formats(make_run: MakeRun) -> None:
    run = make_run(strategies=("ring",), workers=(1,), baseline=False)

    with pytest.raises(UserError, match="--to pdf: no such format; allowed are mlperf, perfetto, hta, chakra"):
        export_run(run.path, "pdf")


def test_a_folder_that_is_not_a_run_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run folder"):
        export_run(tmp_path, "csv")


# --- incomplete runs ---


DAMAGED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (lambda log: log.write_text(""), "logs/worker-1.log: empty"),
    "absent": (lambda log: log.unlink(), "logs/worker-1.log: missing"),
    "cut": (lambda log: log.write_text(log.read_text()[:-30]), ": cut off in the middle"),
    "no rows": (
        lambda log: log.write_text(log.read_text().replace('"rows"', '"lines"')),
        ": node_steps has no lists `columns` and `rows`",
    ),
    "ragged rows": (
        lambda log: log.write_text(log.read_text().replace('"rows": [[', '"rows": [[1, 2], [', 1)),
        ": node_steps has a row that does not have ",
    ),
    "another version": (
        lambda log: log.write_text(log.read_text().replace('"start_s"', '"began"')),
        ": node_steps has no start_s: logged by another version",
    ),
    "no time": (
        lambda log: log.write_text(re.sub(r"\[\[(\d+), (\d+), [0-9.]+", r"[[\1, \2, NaN", log.read_text(), count=1)),
        "logs: 1 steps of worker-1 have no time; they are left out",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damage_is_reported_with_its_file_and_affects_no_other_trial(damage: str, make_run: MakeRun) -> None:
    """One damaged log must not end the export of a sweep that took hours."""
    run = make_run(strategies=("ring",), workers=(2,), repeats=2, baseline=False)
    undamaged = read_readable_trials(run)
    log = run.trial_folders[0].log_path("worker-1")
    damage_log, message = DAMAGED[damage]
    damage_log(log)

    damaged = read_readable_trials(run)

    texts = [str(problem) for problem in damaged.file_damage]
    assert any(message in text for text in texts), texts
    assert all(text.startswith(f"trials/{run.trial_folders[0].path.name}/") for text in texts)
    assert damaged.trials[1].steps.equals(undamaged.trials[1].steps)
    assert damaged.trials[0].steps["start_s"].notna().all()
    fewer = len(damaged.trials[0].steps) < len(undamaged.trials[0].steps)
    assert fewer or damage == "cut"  # its last line holds no steps


@pytest.mark.parametrize("status", ["success", "failed"])
def test_a_missing_log_is_reported_once(make_run: MakeRun, status: str) -> None:
    """Also for a failed trial: a report gives the engine's reason for it, an export does not."""
    run = make_run(strategies=("ring",), workers=(2,), baseline=False)
    (trial,) = run.trial_folders
    trial.status_path.write_text(json.dumps(json.loads(trial.status_path.read_text()) | {"status": status}))
    trial.log_path("worker-1").unlink()

    (problem,) = (damage for damage in read_readable_trials(run).file_damage if damage.trial_name)

    assert str(problem) == f"trials/{trial.path.name}/logs/worker-1.log: missing"


def test_a_run_without_readable_trials_is_rejected_with_every_reason(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(strategies=("ring",), workers=(1,), repeats=2, baseline=False)
    for trial in run.trial_folders:
        trial.plan_path.write_text("{")

    with pytest.raises(UserError) as raised:
        export_run(run.path, "csv", tmp_path / "out")

    assert [str(raised.value).count(f"{trial.path.name}/plan.json") for trial in run.trial_folders] == [1, 1]


# --- single formats ---


def test_perfetto_traces_contain_all_losses_and_updates(make_run: MakeRun, tmp_path: Path) -> None:
    """All of them, with their values, at the ends of their steps."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent  # noqa: PLC0415 - it is slow

    run = make_run(strategies=("ps_asp",), workers=(2,), baseline=False)
    trial = read_readable_trials(run).trials[0]

    done = export_run(run.path, "perfetto", tmp_path / "out")

    (path,) = done.path.glob("*.pftrace")
    trace = Trace.FromString(path.read_bytes())
    tracks = {packet.track_descriptor.uuid: packet.track_descriptor.name for packet in trace.packet}
    counted = [packet for packet in trace.packet if packet.track_event.type == TrackEvent.TYPE_COUNTER]
    losses = {
        (packet.timestamp, packet.track_event.double_counter_value)
        for packet in counted
        if tracks[packet.track_event.track_uuid] == "loss"
    }
    ends = trial.steps["start_s"] + trial.steps["step_s"]
    assert losses == {(round(1e9 * end), loss) for end, loss in zip(ends, trial.steps["loss"], strict=True)}
    instants = [packet for packet in trace.packet if packet.track_event.type == TrackEvent.TYPE_INSTANT]
    assert len(instants) == len(trial.updates)
    assert {"eval accuracy", "eval loss", "staleness"} <= set(tracks.values())


def test_hta_finds_the_rank_that_others_wait_for(make_trial: MakeTrial, tmp_path: Path) -> None:
    """NCCL's kernels wait inside, so that the slowest rank's kernel begins last; the export does the same."""
    starts = np.arange(6) * 0.1
    steps = pd.DataFrame({"step": range(6), "start_s": starts, "step_s": 0.1, "data_s": 0.0, "update_s": 0.0})
    slow = steps.assign(node="worker-1", rank=1, compute_s=0.08, wait_s=0.0, exchange_s=0.02)
    fast = steps.assign(node="worker-0", rank=0, compute_s=0.05, wait_s=0.03, exchange_s=0.02)
    all_steps = pd.concat([fast, slow]).assign(epoch=1, samples=8, bytes_sent=1, loss=0.5)
    trial = replace(make_trial({}, workers=2), steps=all_steps)
    omissions = list(HtaExporter().write(RunLogTables(RunFolder(tmp_path), (trial,)), tmp_path))

    program = [sys.executable, "-c", STRAGGLERS, str(tmp_path / "000-t")]
    stragglers = subprocess.run(program, capture_output=True, text=True, check=True).stdout.splitlines()[-1]

    assert (omissions, stragglers) == ([], "[1]")


STRAGGLERS = """
import sys
from hta.trace_analysis import TraceAnalysis
traces = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
print([int(rank) for rank in traces.get_potential_stragglers(num_candidates=1)])
"""


@pytest.mark.parametrize("kind", ["gossip", "strategy_switch"])
def test_chakra_export_rejects_strategies_with_unsupported_messages(kind: str) -> None:
    """A trace without these messages would be replayed as if the network cost nothing."""
    plan = TrialPlan(trial="000", label="g", workers=2, strategy={"kind": kind})

    assert find_export_obstacle(plan) == f"the messages of strategy {kind} are not supported by this export"


@pytest.mark.parametrize(
    ("compressor", "reason"), [("fp16", "the size of messages compressed by fp16 is not known"), ("identity", None)]
)
@pytest.mark.parametrize(
    ("kind", "key"),
    [("all_reduce", "compress"), ("parameter_server", "compress"), ("parameter_server", "compress_replies")],
)
def test_chakra_export_rejects_compressed_messages(kind: str, key: str, compressor: str, reason: str | None) -> None:
    """Their sizes differ from those of the vectors, so a replay would take the wrong time."""
    strategy = {"kind": kind, key: {"kind": compressor}}
    plan = TrialPlan(trial="000", label="r", workers=2, shards=((0, 9),), strategy=strategy)

    assert find_export_obstacle(plan) == reason
