"""Exchanges of gradient buckets in exported traces: each at its own time, beside the compute that hides it."""

import gzip
import json
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
from rich.console import Console

from analysis.exports.export import export_run
from analysis.exports.readable_trials import read_readable_trials
from analysis.metrics.step_times.predicted_step import predicted_mean_step_s, predicted_typical_step_s
from analysis.metrics.step_times.step_seconds import step_phase_seconds
from analysis.reading.run_folder import RunFolder
from compose.engines import choose_engine
from compose.runs.run import run_scenario
from compose.runs.run_folder import ScenarioFile
from compose.scenario_files.load import load_scenario, read_first_comment
from ensayo.terminal.progress_display import SilentDisplay

SETTINGS = {"workload.epochs": "1", "sweep.rate.values": "[30mbit]"}
STEP = 3  # any step that begins and ends beside others
BUCKET_TRACK = "exchange of buckets"


class Slice(NamedTuple):
    """Slice of a track in a Perfetto trace, with its annotations."""

    name: str
    begin_ns: int
    end_ns: int
    annotations: dict[str, Any]


Tracks = dict[str, list[Slice]]


@pytest.fixture(scope="module")
def run(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Folder of the scenario `priority`, for one epoch at one rate: without overlap, with buckets, and by priority."""
    path = pytestconfig.rootpath / "scenarios" / "priority.yaml"
    source = ScenarioFile(load_scenario(path, SETTINGS, "simulated"), path.read_text(), read_first_comment(path), "")
    result = run_scenario(source, choose_engine("simulated"), tmp_path_factory.mktemp("runs"), SilentDisplay(Console()))
    return RunFolder(result.folder)


@pytest.fixture(scope="module")
def tracks_by_trial(run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tracks]:
    """Tracks of worker 1 in the Perfetto trace of each trial, by the label of the strategy."""
    export = export_run(run.path, "perfetto", tmp_path_factory.mktemp("perfetto") / "out")
    labels = {trial.plan.trial: trial.plan.label for trial in read_readable_trials(run).trials}
    return {labels[path.stem]: read_tracks(path, "worker-1") for path in sorted(export.path.glob("*.pftrace"))}


def read_tracks(path: Path, process_name: str) -> Tracks:
    """Return the slices of a process in a Perfetto trace, by the name of their track."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent  # noqa: PLC0415 - it is slow

    trace = Trace.FromString(path.read_bytes())
    descriptors = [packet.track_descriptor for packet in trace.packet if packet.track_descriptor.uuid]
    (process,) = (each.uuid for each in descriptors if each.process.process_name == process_name)
    names = {each.uuid: each.name for each in descriptors if each.parent_uuid == process}
    tracks: Tracks = {name: [] for name in names.values()}
    begins: dict[int, Any] = {}
    for packet in trace.packet:
        event = packet.track_event
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            begins[event.track_uuid] = packet
        elif event.type == TrackEvent.TYPE_SLICE_END and event.track_uuid in names:
            begin = begins.pop(event.track_uuid)
            annotations = {
                each.name: each.string_value or each.int_value for each in begin.track_event.debug_annotations
            }
            slice_ = Slice(begin.track_event.name, begin.timestamp, packet.timestamp, annotations)
            tracks[names[event.track_uuid]].append(slice_)
    return tracks


def of_step(slices: list[Slice], step: int) -> list[Slice]:
    """Slices of one step, in their order."""
    return [each for each in slices if each.annotations["step"] == step]


def test_buckets_are_exchanged_during_the_backward_pass(tracks_by_trial: dict[str, Tracks]) -> None:
    """The trace shows what the backward pass hides."""
    tracks = tracks_by_trial["buckets"]

    exchanges, (compute,) = of_step(tracks[BUCKET_TRACK], STEP), of_step(tracks["compute"], STEP)

    assert [each.annotations["bucket"] for each in exchanges] == list(range(len(exchanges)))
    assert compute.begin_ns < exchanges[0].begin_ns < compute.end_ns < exchanges[-1].end_ns
    assert all(before.end_ns <= after.begin_ns for before, after in pairwise(exchanges))
    assert exchanges[-1].name == "bucket 2: conv1.weight … conv2.bias"


def test_by_priority_the_first_layer_overtakes(tracks_by_trial: dict[str, Tracks]) -> None:
    """Its bucket is ready last, and the next step begins when it is there, before the last parts of other buckets."""
    tracks = tracks_by_trial["priority"]

    exchanges, (next_compute,) = of_step(tracks[BUCKET_TRACK], STEP), of_step(tracks["compute"], STEP + 1)

    first_layer = max(each.annotations["bucket"] for each in exchanges)
    ends_ns = {each.annotations["bucket"]: each.end_ns for each in exchanges}
    assert any(end_ns > ends_ns[first_layer] for bucket, end_ns in ends_ns.items() if bucket < first_layer)
    assert ends_ns[first_layer] <= next_compute.begin_ns + 1000 < max(ends_ns.values())
    assert "conv1.weight" in next(each for each in exchanges if each.annotations["bucket"] == first_layer).name


def test_slices_have_the_bytes_that_the_worker_has_sent(run: RunFolder, tracks_by_trial: dict[str, Tracks]) -> None:
    """A size by the plan would hide what is really sent."""
    for trial in read_readable_trials(run).trials:
        if trial.plan.label != "after_backward":
            exchanges = of_step(tracks_by_trial[trial.plan.label][BUCKET_TRACK], STEP)
            assert sum(each.annotations["bytes"] for each in exchanges) == trial.plan.bytes_per_step["worker-1"]


def test_an_exchange_after_the_backward_pass_has_no_track_of_buckets(tracks_by_trial: dict[str, Tracks]) -> None:
    """An empty track would look like an exchange that took no time."""
    assert BUCKET_TRACK not in tracks_by_trial["after_backward"]
    assert BUCKET_TRACK in tracks_by_trial["buckets"]


def test_table_of_buckets_has_every_exchange(run: RunFolder, tmp_path: Path) -> None:
    """Programs that read CSV see the same exchanges as a trace."""
    table = pd.read_csv(export_run(run.path, "csv", tmp_path / "out").path / "buckets.csv")

    trials = [trial for trial in read_readable_trials(run).trials if trial.plan.label != "after_backward"]
    assert len(table) == sum(len(trial.buckets) for trial in trials) > 0
    assert set(table["trial"]) == {trial.plan.trial for trial in trials}
    assert table["arrays"].str.contains("conv1.weight, conv1.bias").any()


def test_hta_has_a_kernel_per_exchanged_bucket(run: RunFolder, tmp_path: Path) -> None:
    """The kernels overlap with the compute as the exchanges did, so that HTA computes the hidden share."""
    export = export_run(run.path, "hta", tmp_path / "out")

    for trial in read_readable_trials(run).trials:
        content = gzip.decompress((export.path / trial.plan.trial / "rank-1.json.gz").read_bytes())
        kernels = [event for event in json.loads(content)["traceEvents"] if event["cat"] == "kernel"]
        exchange_us = sum(event["dur"] for event in kernels if "exchange" in event["name"])
        steps = trial.steps[trial.steps["rank"] == 1]
        communication_s = (steps["exchange_s"] + steps["wait_s"] + steps["hidden_s"].fillna(0.0)).sum()
        assert exchange_us / 1e6 == pytest.approx(communication_s, rel=0.01)


def test_hta_finds_the_hidden_share_of_the_communication(run: RunFolder, tmp_path: Path) -> None:
    """The share of the communication that overlaps with compute is what the step log has as hidden."""
    export = export_run(run.path, "hta", tmp_path / "out")
    program = [sys.executable, "-c", OVERLAP_SCRIPT, str(export.path)]

    output = subprocess.run(program, capture_output=True, text=True, check=True).stdout.splitlines()[-1]

    for trial in read_readable_trials(run).trials:
        steps = trial.steps[trial.steps["rank"] == 1]
        hidden_s = steps["hidden_s"].fillna(0.0).sum()
        communication_s = hidden_s + (steps["exchange_s"] + steps["wait_s"]).sum()
        assert json.loads(output)[trial.plan.trial] == pytest.approx(100 * hidden_s / communication_s, abs=2)


OVERLAP_SCRIPT = """
import json, sys
from pathlib import Path
from hta.trace_analysis import TraceAnalysis
found = {}
for folder in sorted(Path(sys.argv[1]).iterdir()):
    traces = TraceAnalysis(trace_dir=str(folder), include_last_profiler_step=True)
    overlap = traces.get_comm_comp_overlap(visualize=False)
    found[folder.name] = float(overlap.set_index("rank")["comp_comm_overlap_pctg"][1])
print(json.dumps(found))
"""


def test_the_predicted_mean_contains_the_steps_that_do_not_begin_early(run: RunFolder) -> None:
    """A step after an evaluation begins with all parameters, so the mean is longer than the typical step."""
    for trial in read_readable_trials(run).trials:
        mean_s = sum((step_phase_seconds(trial) or {}).values())
        assert predicted_mean_step_s(trial) == pytest.approx(mean_s, rel=0.005)
        if trial.plan.label == "priority":
            assert mean_s > 1.02 * (predicted_typical_step_s(trial) or 0.0)


def test_chakra_export_states_that_the_overlap_is_left_out(run: RunFolder, tmp_path: Path) -> None:
    """A replayed step is longer than the measured one."""
    omissions = export_run(run.path, "chakra", tmp_path / "out").omissions

    text = (
        "the overlap of the exchange with the compute is left out; in the trace, one all-reduce follows the compute of "
        "a step"
    )
    assert [omission.partition(": ")[2] for omission in omissions] == [text] * 2


def test_an_unusable_row_of_buckets_is_damage(run: RunFolder, tmp_path: Path) -> None:
    """A trace without the exchange would look complete."""
    damaged = RunFolder(shutil.copytree(run.path, tmp_path / "run"))
    log = next(folder for folder in damaged.trial_folders if "buckets" in folder.path.name).log_path("worker-1")
    log.write_text(log.read_text().replace('"bytes_sent"]', '"bytes"]', 1))

    problems = [str(problem) for problem in read_readable_trials(damaged).file_damage]

    assert any("node_buckets has no bytes_sent: logged by another version" in problem for problem in problems)
