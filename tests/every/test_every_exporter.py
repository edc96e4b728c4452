"""Tests of every export format: its usual reader opens the export and finds the data of the run."""

import json
import shutil
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from analysis.exports import EXPORTERS
from analysis.exports.export import export_run
from analysis.exports.readable_trials import read_readable_trials
from analysis.mlperf import CHECKER_RULES_PATH
from analysis.reading.run_folder import RunFolder
from compose.engines import choose_engine
from compose.runs.run import run_scenario
from compose.runs.run_folder import ScenarioFile
from compose.scenario_files.load import load_scenario, read_first_comment
from ensayo.terminal.progress_display import SilentDisplay
from services.schema.errors import UserError

SETTINGS = {
    "sweep.workers": "[2]",
    "workload.epochs": "2",
    "baseline": "false",
    "strategies.ps_bsp.servers": "2",
    "strategies.ps_asp": "{kind: parameter_server, placement: {kind: colocated}, synchrony: {kind: asp}}",
}
RULESET = "6.1.0"

BusySeconds = dict[tuple[str, int], float]  # trial and rank -> seconds of compute and updates


# --- busy seconds found by each reader ---


def by_pandas(folder: Path) -> BusySeconds:
    """Read the table of steps with pandas."""
    steps = pd.read_csv(folder / "steps.csv")
    return _busy_by_worker(steps.assign(busy=steps["compute_s"] + steps["update_s"]))


def by_mlcommons(folder: Path) -> BusySeconds:
    """Check every result with the compliance checker, then read it with the checker's parser."""
    from mlperf_logging.compliance_checker import mlp_compliance  # noqa: PLC0415 - it is slow to import
    from mlperf_logging.compliance_checker.mlp_parser import parse_file  # noqa: PLC0415

    busy: BusySeconds = defaultdict(float)
    for result in sorted(folder.glob("ensayo/results/*/*/result_*.txt")):
        checker = mlp_compliance.make_checker("training", RULESET, quiet=True, werror=True)
        valid, *_ = mlp_compliance.main(str(result), str(folder / "rules.yaml"), checker)
        assert valid, result
        lines, failed = parse_file(str(result), ruleset=RULESET)
        assert not failed
        name = next(line.value["value"] for line in lines if line.key == "submission_poc_name")
        for line in lines:
            if line.key == "node_steps":
                event = json.loads(line.full_string.partition(":::MLLOG ")[2])
                rows = pd.DataFrame(event["value"]["rows"], columns=event["value"]["columns"])
                rank = int(event["namespace"].removeprefix("worker-"))
                busy[name, rank] += float((rows["compute_s"] + rows["update_s"]).sum())
    return busy


BUSY_QUERY = """
select process.name as worker, sum(slice.dur) as ns
from slice join process_track on slice.track_id = process_track.id join process using (upid)
where slice.name in ('compute', 'update') group by worker
"""
ERROR_QUERY = """
select name from stats where severity != 'info' and value > 0
union all select name from slice where dur < 0 or (dur > 0 and depth > 0)
"""


def by_perfetto(folder: Path) -> BusySeconds:
    """Read traces with Perfetto's trace processor; it reports no errors, and the slices of one track never overlap."""
    errors, busy_rows = (_query_perfetto(folder, query) for query in (ERROR_QUERY, BUSY_QUERY))
    assert not any(errors.values())
    rows = ((trial, row) for trial, rows in busy_rows.items() for row in rows)
    return {(trial, int(row["worker"].removeprefix("worker-"))): row["ns"] / 1e9 for trial, row in rows}


def _query_perfetto(folder: Path, query: str) -> dict[str, list[dict[str, Any]]]:
    script = Path(__file__).parents[1] / "support" / "programs" / "trace_processor.py"
    completed = subprocess.run([sys.executable, script, folder, query], capture_output=True, text=True, check=True)
    rows: dict[str, list[dict[str, Any]]] = json.loads(completed.stdout)
    return rows


HTA_SCRIPT = """
import json, sys
from pathlib import Path
from hta.trace_analysis import TraceAnalysis
found = []
for folder in sorted(Path(sys.argv[1]).iterdir()):
    traces = TraceAnalysis(trace_dir=str(folder), include_last_profiler_step=True)
    breakdown = traces.get_temporal_breakdown(visualize=False)
    found += [[folder.name, rank, us] for rank, us in zip(breakdown["rank"], breakdown["compute_time(us)"])]
print(json.dumps(found, default=int))
"""


def by_hta(folder: Path) -> BusySeconds:
    """Read traces with Holistic Trace Analysis, in a separate process: it forks, logs and warns."""
    output = subprocess.run(
        [sys.executable, "-c", HTA_SCRIPT, folder], capture_output=True, text=True, check=True
    ).stdout
    return {(trial, rank): us / 1e6 for trial, rank, us in json.loads(output.splitlines()[-1])}


BUSY_NODES = ("COMP_NODE_compute", "COMP_NODE_update")


def by_chakra(folder: Path) -> BusySeconds:
    """Read traces with Chakra's reader; every node comes after the nodes that it depends on."""
    from chakra.schema.protobuf.et_def_pb2 import GlobalMetadata, Node  # noqa: PLC0415 - an extra
    from chakra.src.third_party.utils.protolib import decodeMessage, openFileRd  # noqa: PLC0415

    busy: BusySeconds = {}
    for path in sorted(folder.glob("*/trace.*.et")):
        trial, npu = path.parent.name, int(path.suffixes[-2][1:])
        busy_us, seen, node = 0, set(), Node()
        with openFileRd(str(path)) as file:
            assert decodeMessage(file, GlobalMetadata())
            while decodeMessage(file, node):
                assert set(node.data_deps) <= seen
                seen.add(node.id)
                busy_us += node.duration_micros if node.name.startswith(BUSY_NODES) else 0
        if busy_us:
            busy[trial, npu] = busy_us / 1e6
    return busy


def by_tensorboard(folder: Path) -> BusySeconds:
    """Read event files with TensorBoard's reader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415 - it is slow

    busy: BusySeconds = {}
    for path in sorted(folder.glob("*/worker-*")):
        events = EventAccumulator(str(path)).Reload()
        scalars = [*events.Scalars("seconds/compute"), *events.Scalars("seconds/update")]
        busy[path.parent.name, int(path.name.removeprefix("worker-"))] = sum(scalar.value for scalar in scalars)
    return busy


def _busy_by_worker(steps: pd.DataFrame) -> BusySeconds:
    return {(trial, int(rank)): float(rows["busy"].sum()) for (trial, rank), rows in steps.groupby(["trial", "rank"])}


READERS: dict[str, Callable[[Path], BusySeconds]] = {
    "mlperf": by_mlcommons,
    "perfetto": by_perfetto,
    "hta": by_hta,
    "chakra": by_chakra,
    "tensorboard": by_tensorboard,
    "csv": by_pandas,
}

every_export = pytest.mark.parametrize("kind", READERS)


# --- the run ---


@pytest.fixture(scope="module")
def finished_run(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Folder of a short run: a ring, two synchronous servers, and two asynchronous workers with colocated servers."""
    path = pytestconfig.rootpath / "scenarios" / "quickstart.yaml"
    source = ScenarioFile(load_scenario(path, SETTINGS, "simulated"), path.read_text(), read_first_comment(path), "")
    result = run_scenario(source, choose_engine("simulated"), tmp_path_factory.mktemp("runs"), SilentDisplay(Console()))
    return RunFolder(result.folder)


@pytest.fixture
def run(finished_run: RunFolder, tmp_path: Path) -> RunFolder:
    """Copy of the run's folder that a test may damage."""
    return RunFolder(shutil.copytree(finished_run.path, tmp_path / "run"))


# --- tests of all formats ---


def test_readers_table_contains_every_export_format() -> None:
    """An export format without a reader here is not tested."""
    assert set(READERS) == set(EXPORTERS)


@every_export
def test_reader_finds_the_busy_seconds_of_every_worker(kind: str, finished_run: RunFolder, tmp_path: Path) -> None:
    """All formats contain this number; none may lose a trial, a rank or a step."""
    steps = read_readable_trials(finished_run).steps
    expected = _busy_by_worker(steps.assign(busy=steps["compute_s"] + steps["update_s"]))

    export = export_run(finished_run.path, kind, tmp_path / "out")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of readers, which are not part of this project
        busy = READERS[kind](export.path)
    assert export.damage == ()
    assert len(expected) == 2 * len(finished_run.trial_folders)
    assert busy == pytest.approx(expected, rel=1e-5)


@every_export
def test_two_exports_of_a_run_are_bytewise_equal(kind: str, finished_run: RunFolder, tmp_path: Path) -> None:
    """An export has no date, host name or unordered set, so two exports can be compared."""
    first, second = (export_run(finished_run.path, kind, tmp_path / name).path for name in ("first", "again"))

    assert contents(first) == contents(second)
    assert contents(first)


@every_export
def test_export_never_overwrites_an_existing_folder(kind: str, run: RunFolder, tmp_path: Path) -> None:
    """The folder may contain files of the user."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes").write_text("mine")

    with pytest.raises(UserError, match=f"{out}: exists already"):
        export_run(run.path, kind, out)

    assert contents(out) == {"notes": b"mine"}


@every_export
def test_trial_without_a_plan_is_reported_and_other_trials_are_exported(
    kind: str, run: RunFolder, tmp_path: Path
) -> None:
    """For example after the disk was full in the middle of a run."""
    undamaged = export_run(run.path, kind, tmp_path / "whole")
    first = run.trial_folders[0]
    first.plan_path.write_bytes(first.plan_path.read_bytes()[:100])

    export = export_run(run.path, kind, tmp_path / "out")

    assert [(damage.trial_name, damage.file) for damage in export.damage] == [(first.path.name, "plan.json")]
    assert READERS[kind](export.path) == {
        key: seconds for key, seconds in READERS[kind](undamaged.path).items() if key[0] != first.path.name
    }


@every_export
def test_trial_without_steps_does_not_affect_other_trials(kind: str, run: RunFolder, tmp_path: Path) -> None:
    """A run that is in progress or was stopped has a trial that has only begun."""
    undamaged = READERS[kind](export_run(run.path, kind, tmp_path / "whole").path)
    first = run.trial_folders[0]
    for rank in (0, 1):
        first.log_path(f"worker-{rank}").write_text("")

    busy = READERS[kind](export_run(run.path, kind, tmp_path / "out").path)

    assert busy == {key: seconds for key, seconds in undamaged.items() if key[0] != first.path.name}


@every_export
def test_truncated_log_is_reported_by_line_and_loses_only_its_last_rows(
    kind: str, run: RunFolder, tmp_path: Path
) -> None:
    """For example a node was killed while it was writing."""
    undamaged = READERS[kind](export_run(run.path, kind, tmp_path / "whole").path)
    truncated = (run.trial_folders[0].path.name, 1)
    log = run.trial_folders[0].log_path("worker-1")
    lines = log.read_text().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if "node_steps" in line)
    log.write_text("".join(lines[:last]) + lines[last][:80])

    export = export_run(run.path, kind, tmp_path / "out")
    busy = READERS[kind](export.path)

    assert ("logs/worker-1.log", last + 1) in [(damage.file, damage.line) for damage in export.damage]
    assert busy == undamaged | {truncated: pytest.approx(busy_seconds("".join(lines[:last])))}
    assert busy[truncated] < undamaged[truncated]


def busy_seconds(log: str) -> float:
    """Return the seconds of compute and updates of a worker, from the rows of its log."""
    events = [json.loads(line.partition(":::MLLOG ")[2]) for line in log.splitlines()]
    steps = [event["value"] for event in events if event["key"] == "node_steps"]
    rows = pd.concat([pd.DataFrame(batch["rows"], columns=batch["columns"]) for batch in steps])
    return float((rows["compute_s"] + rows["update_s"]).sum())


@every_export
def test_losses_that_are_nan_are_reported_and_do_not_break_the_export(
    kind: str, run: RunFolder, tmp_path: Path
) -> None:
    """A diverged training is a valid result."""
    log = run.trial_folders[0].log_path("worker-0")
    lines = [json.loads(line.partition(":::MLLOG ")[2]) for line in log.read_text().splitlines()]
    for line in lines:
        if line["key"] == "node_steps":
            loss = line["value"]["columns"].index("loss")
            for row in line["value"]["rows"]:
                row[loss] = float("nan")
    log.write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))

    export = export_run(run.path, kind, tmp_path / "out")

    assert any(damage.file == "logs/worker-0.log" and damage.is_divergence for damage in export.damage)
    assert (run.trial_folders[0].path.name, 0) in READERS[kind](export.path)


@every_export
def test_failed_export_leaves_no_files(
    kind: str, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An incomplete export could be mistaken for a complete one."""

    def raise_disk_full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "rename", raise_disk_full)

    with pytest.raises(OSError, match="no space left"):
        export_run(run.path, kind, tmp_path / "out")

    assert list(tmp_path.glob("*out*")) == []


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder with their bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_mlperf_export_contains_the_rules_for_the_checker(finished_run: RunFolder, tmp_path: Path) -> None:
    """A recipient of the folder can check it without this project."""
    export = export_run(finished_run.path, "mlperf", tmp_path / "out")

    assert (export.path / "rules.yaml").read_bytes() == CHECKER_RULES_PATH.read_bytes()


# --- Chakra traces ---


def test_simulator_can_replay_every_chakra_trace_to_its_end(finished_run: RunFolder, tmp_path: Path) -> None:
    """A receive without its send, a collective that lacks a rank, or a dependency cycle would block the simulator."""
    export = export_run(finished_run.path, "chakra", tmp_path / "out")

    for folder in sorted(path for path in export.path.iterdir() if path.is_dir()):
        traces = [read_trace(path) for path in sorted(folder.glob("trace.*.et"))]
        assert count_replayable_nodes(traces) == sum(len(trace) for trace in traces), folder.name


@pytest.mark.parametrize("removed", ["COMM_SEND_NODE", "COMM_COLL_NODE"])
def test_trace_that_lacks_a_message_cannot_be_replayed(removed: str, finished_run: RunFolder, tmp_path: Path) -> None:
    """The test above can fail."""
    export = export_run(finished_run.path, "chakra", tmp_path / "out")
    kind = "ring" if removed == "COMM_COLL_NODE" else "ps_bsp"
    (folder,) = export.path.glob(f"*-{kind}-*")
    traces = [read_trace(path) for path in sorted(folder.glob("trace.*.et"))]
    last = max(number for number, node in traces[0].items() if node.name.startswith(removed))
    del traces[0][last]

    assert count_replayable_nodes(traces) < sum(len(trace) for trace in traces)


def read_trace(path: Path) -> dict[int, Any]:
    """Return the nodes of one NPU by id."""
    from chakra.schema.protobuf.et_def_pb2 import GlobalMetadata, Node  # noqa: PLC0415 - an extra
    from chakra.src.third_party.utils.protolib import decodeMessage, openFileRd  # noqa: PLC0415

    nodes, node = {}, Node()
    with openFileRd(str(path)) as file:
        assert decodeMessage(file, GlobalMetadata())
        while decodeMessage(file, node):
            nodes[node.id] = node
            node = Node()
    return nodes


def count_replayable_nodes(traces: list[dict[int, Any]]) -> int:
    """Return how many nodes can run: receives need their send, and collectives need all ranks."""
    finished_nodes: list[set[int]] = [set() for _ in traces]
    sent: set[tuple[int, ...]] = set()
    before = -1
    while before != (before := sum(map(len, finished_nodes))):
        ready = [
            [node for number, node in trace.items() if number not in done and set(node.data_deps) <= done]
            for trace, done in zip(traces, finished_nodes, strict=True)
        ]
        waiting = [node.name for nodes in ready for node in nodes if node.name.startswith("COMM_COLL")]
        for nodes, done in zip(ready, finished_nodes, strict=True):
            for node in nodes:
                attributes = {attribute.name: attribute.int64_val for attribute in node.attr}
                message = tuple(attributes.get(name, 0) for name in ("comm_src", "comm_dst", "comm_tag", "comm_size"))
                if node.name.startswith("COMM_SEND"):
                    sent.add(message)
                lacks_send = node.name.startswith("COMM_RECV") and message not in sent
                lacks_ranks = node.name.startswith("COMM_COLL") and waiting.count(node.name) < len(traces)
                if not lacks_send and not lacks_ranks:
                    done.add(node.id)
    return before
