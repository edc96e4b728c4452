"""Every export through one battery: its real reader opens it and finds in it what the run holds."""

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
from compose.runs.run import ScenarioFile, run_scenario
from compose.scenario_files.load import load_scenario, read_first_comment
from ensayo.progress_display import SilentDisplay
from services.schema.errors import UserError

SETTINGS = {
    "sweep.workers": "[2]",
    "workload.epochs": "2",
    "baseline": "false",
    "strategies.ps_bsp.servers": "2",
    "strategies.ps_asp": "{kind: parameter_server, placement: {kind: colocated}, synchrony: {kind: asp}}",
}
RULESET = "6.1.0"

Busy = dict[tuple[str, int], float]  # trial and rank -> seconds in which it computed and updated


# --- what each reader finds ---


def by_pandas(folder: Path) -> Busy:
    """Tables."""
    steps = pd.read_csv(folder / "steps.csv")
    return _summed(steps.assign(busy=steps["compute_s"] + steps["update_s"]))


def by_mlcommons(folder: Path) -> Busy:
    """The compliance checker's verdict on every result, then its own parser."""
    from mlperf_logging.compliance_checker import mlp_compliance  # noqa: PLC0415 - it is slow to import
    from mlperf_logging.compliance_checker.mlp_parser import parse_file  # noqa: PLC0415

    found: Busy = defaultdict(float)
    for result in sorted(folder.glob("ensayo/results/*/*/result_*.txt")):
        checker = mlp_compliance.make_checker("training", RULESET, quiet=True, werror=True)
        valid, *_ = mlp_compliance.main(str(result), str(folder / "rules.yaml"), checker)
        assert valid, result
        lines, failed = parse_file(str(result), ruleset=RULESET)
        assert not failed
        name = next(line.value["value"] for line in lines if line.key == "submission_poc_name")
        for line in lines:
            if line.key == "node_steps":
                told = json.loads(line.full_string.partition(":::MLLOG ")[2])
                rows = pd.DataFrame(told["value"]["rows"], columns=told["value"]["columns"])
                rank = int(told["namespace"].removeprefix("worker-"))
                found[name, rank] += float((rows["compute_s"] + rows["update_s"]).sum())
    return found


COMPUTED = """
select process.name as worker, sum(slice.dur) as ns
from slice join process_track on slice.track_id = process_track.id join process using (upid)
where slice.name in ('compute', 'update') group by worker
"""
AMISS = """
select name from stats where severity != 'info' and value > 0
union all select name from slice where dur < 0 or (dur > 0 and depth > 0)
"""


def by_perfetto(folder: Path) -> Busy:
    """Its trace processor; nothing in the files is strange to it, and activities of one track never overlap."""
    amiss, found = (_asked_perfetto(folder, query) for query in (AMISS, COMPUTED))
    assert not any(amiss.values())
    rows = ((trial, row) for trial, rows in found.items() for row in rows)
    return {(trial, int(row["worker"].removeprefix("worker-"))): row["ns"] / 1e9 for trial, row in rows}


def _asked_perfetto(folder: Path, query: str) -> dict[str, list[dict[str, Any]]]:
    script = Path(__file__).parent / "trace_processor.py"
    done = subprocess.run([sys.executable, script, folder, query], capture_output=True, text=True, check=True)
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return found


HTA = """
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


def by_hta(folder: Path) -> Busy:
    """Holistic Trace Analysis, in a process of its own: it forks, logs and warns."""
    told = subprocess.run([sys.executable, "-c", HTA, folder], capture_output=True, text=True, check=True).stdout
    return {(trial, rank): us / 1e6 for trial, rank, us in json.loads(told.splitlines()[-1])}


BUSY = ("COMP_NODE_compute", "COMP_NODE_update")


def by_chakra(folder: Path) -> Busy:
    """Chakra's reader of traces; what a node depends on has come before it."""
    from chakra.schema.protobuf.et_def_pb2 import GlobalMetadata, Node  # noqa: PLC0415 - an extra
    from chakra.src.third_party.utils.protolib import decodeMessage, openFileRd  # noqa: PLC0415

    found: Busy = {}
    for path in sorted(folder.glob("*/trace.*.et")):
        trial, npu = path.parent.name, int(path.suffixes[-2][1:])
        busy_us, seen, node = 0, set(), Node()
        with openFileRd(str(path)) as file:
            assert decodeMessage(file, GlobalMetadata())
            while decodeMessage(file, node):
                assert set(node.data_deps) <= seen
                seen.add(node.id)
                busy_us += node.duration_micros if node.name.startswith(BUSY) else 0
        if busy_us:
            found[trial, npu] = busy_us / 1e6
    return found


def by_tensorboard(folder: Path) -> Busy:
    """TensorBoard's reader of event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415 - it is slow

    found: Busy = {}
    for path in sorted(folder.glob("*/worker-*")):
        events = EventAccumulator(str(path)).Reload()
        scalars = [*events.Scalars("seconds/compute"), *events.Scalars("seconds/update")]
        found[path.parent.name, int(path.name.removeprefix("worker-"))] = sum(scalar.value for scalar in scalars)
    return found


def _summed(steps: pd.DataFrame) -> Busy:
    return {(trial, int(rank)): float(mine["busy"].sum()) for (trial, rank), mine in steps.groupby(["trial", "rank"])}


READERS: dict[str, Callable[[Path], Busy]] = {
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
def finished(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A real run, short: a ring, two servers in lockstep, and two workers that serve each other out of it."""
    path = pytestconfig.rootpath / "scenarios" / "quickstart.yaml"
    source = ScenarioFile(load_scenario(path, SETTINGS, "simulated"), path.read_text(), read_first_comment(path), "")
    done = run_scenario(source, choose_engine("simulated"), tmp_path_factory.mktemp("runs"), SilentDisplay(Console()))
    return RunFolder(done.folder)


@pytest.fixture
def run(finished: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of it, to be damaged."""
    return RunFolder(shutil.copytree(finished.path, tmp_path / "run"))


# --- the battery ---


def test_every_member_of_the_family_stands_in_the_table() -> None:
    """One that has no reader here is not tested."""
    assert set(READERS) == set(EXPORTERS)


@every_export
def test_its_reader_opens_it_and_finds_how_long_every_worker_computed(
    kind: str, finished: RunFolder, tmp_path: Path
) -> None:
    """The one number that all formats hold; none may lose a trial, a rank or a step."""
    steps = read_readable_trials(finished).steps
    expected = _summed(steps.assign(busy=steps["compute_s"] + steps["update_s"]))

    done = export_run(finished.path, kind, tmp_path / "out")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of readers; they are not ours to mend
        found = READERS[kind](done.path)
    assert done.damage == ()
    assert len(expected) == 2 * len(finished.trial_folders)
    assert found == pytest.approx(expected, rel=1e-5)


@every_export
def test_the_same_run_gives_the_same_bytes(kind: str, finished: RunFolder, tmp_path: Path) -> None:
    """No date, no host, no order of a set: two exports can be compared."""
    first, again = (export_run(finished.path, kind, tmp_path / name).path for name in ("first", "again"))

    assert contents(first) == contents(again)
    assert contents(first)


@every_export
def test_it_never_writes_over_anything(kind: str, run: RunFolder, tmp_path: Path) -> None:
    """Somebody's notes may lie there."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes").write_text("mine")

    with pytest.raises(UserError, match=f"{out}: exists already"):
        export_run(run.path, kind, out)

    assert contents(out) == {"notes": b"mine"}


@every_export
def test_a_trial_without_a_plan_is_named_and_costs_no_other(kind: str, run: RunFolder, tmp_path: Path) -> None:
    """A disk that was full in the middle of a run."""
    whole = export_run(run.path, kind, tmp_path / "whole")
    first = run.trial_folders[0]
    first.plan_path.write_bytes(first.plan_path.read_bytes()[:100])

    done = export_run(run.path, kind, tmp_path / "out")

    assert [(damage.trial_name, damage.file) for damage in done.damage] == [(first.path.name, "plan.json")]
    assert READERS[kind](done.path) == {
        key: busy for key, busy in READERS[kind](whole.path).items() if key[0] != first.path.name
    }


@every_export
def test_a_trial_without_steps_costs_no_other(kind: str, run: RunFolder, tmp_path: Path) -> None:
    """A run that still goes on, or was stopped, has one that has only begun."""
    whole = READERS[kind](export_run(run.path, kind, tmp_path / "whole").path)
    first = run.trial_folders[0]
    for rank in (0, 1):
        first.log_path(f"worker-{rank}").write_text("")

    found = READERS[kind](export_run(run.path, kind, tmp_path / "out").path)

    assert found == {key: busy for key, busy in whole.items() if key[0] != first.path.name}


@every_export
def test_a_cut_log_is_named_by_line_and_costs_its_last_rows(kind: str, run: RunFolder, tmp_path: Path) -> None:
    """A node that was killed while it wrote."""
    whole = READERS[kind](export_run(run.path, kind, tmp_path / "whole").path)
    cut = (run.trial_folders[0].path.name, 1)
    log = run.trial_folders[0].log_path("worker-1")
    lines = log.read_text().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if "node_steps" in line)
    log.write_text("".join(lines[:last]) + lines[last][:80])

    done = export_run(run.path, kind, tmp_path / "out")
    found = READERS[kind](done.path)

    assert ("logs/worker-1.log", last + 1) in [(damage.file, damage.line) for damage in done.damage]
    assert found == whole | {cut: pytest.approx(busy("".join(lines[:last])))}
    assert found[cut] < whole[cut]


def busy(log: str) -> float:
    """Seconds in which a worker computed and updated, by the rows of its log."""
    events = [json.loads(line.partition(":::MLLOG ")[2]) for line in log.splitlines()]
    steps = [event["value"] for event in events if event["key"] == "node_steps"]
    rows = pd.concat([pd.DataFrame(told["rows"], columns=told["columns"]) for told in steps])
    return float((rows["compute_s"] + rows["update_s"]).sum())


@every_export
def test_losses_that_are_no_numbers_are_told_and_break_nothing(kind: str, run: RunFolder, tmp_path: Path) -> None:
    """A diverged training is a result."""
    log = run.trial_folders[0].log_path("worker-0")
    lines = [json.loads(line.partition(":::MLLOG ")[2]) for line in log.read_text().splitlines()]
    for line in lines:
        if line["key"] == "node_steps":
            loss = line["value"]["columns"].index("loss")
            for row in line["value"]["rows"]:
                row[loss] = float("nan")
    log.write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))

    done = export_run(run.path, kind, tmp_path / "out")

    assert any(damage.file == "logs/worker-0.log" and damage.is_divergence for damage in done.damage)
    assert (run.trial_folders[0].path.name, 0) in READERS[kind](done.path)


@every_export
def test_an_export_that_breaks_off_leaves_nothing(
    kind: str, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half an export looks like a whole one."""

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "rename", full)

    with pytest.raises(OSError, match="no space left"):
        export_run(run.path, kind, tmp_path / "out")

    assert list(tmp_path.glob("*out*")) == []


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_rules_for_the_checker_travel_with_the_results(finished: RunFolder, tmp_path: Path) -> None:
    """Whoever gets the folder can check it without this project."""
    done = export_run(finished.path, "mlperf", tmp_path / "out")

    assert (done.path / "rules.yaml").read_bytes() == CHECKER_RULES_PATH.read_bytes()


# --- what replays need ---


def test_a_simulator_can_play_every_chakra_trace_to_its_end(finished: RunFolder, tmp_path: Path) -> None:
    """A receive without its send, a collective that a rank never joins or a circle of dependencies would hang it."""
    done = export_run(finished.path, "chakra", tmp_path / "out")

    for folder in sorted(path for path in done.path.iterdir() if path.is_dir()):
        traces = [read_trace(path) for path in sorted(folder.glob("trace.*.et"))]
        assert play(traces) == sum(len(trace) for trace in traces), folder.name


@pytest.mark.parametrize("lost", ["COMM_SEND_NODE", "COMM_COLL_NODE"])
def test_a_trace_that_lacks_a_message_hangs_the_player(lost: str, finished: RunFolder, tmp_path: Path) -> None:
    """Else the test above could not fail."""
    done = export_run(finished.path, "chakra", tmp_path / "out")
    kind = "ring" if lost == "COMM_COLL_NODE" else "ps_bsp"
    (folder,) = done.path.glob(f"*-{kind}-*")
    traces = [read_trace(path) for path in sorted(folder.glob("trace.*.et"))]
    last = max(number for number, node in traces[0].items() if node.name.startswith(lost))
    del traces[0][last]

    assert play(traces) < sum(len(trace) for trace in traces)


def read_trace(path: Path) -> dict[int, Any]:
    """The nodes of one NPU by id."""
    from chakra.schema.protobuf.et_def_pb2 import GlobalMetadata, Node  # noqa: PLC0415 - an extra
    from chakra.src.third_party.utils.protolib import decodeMessage, openFileRd  # noqa: PLC0415

    found, node = {}, Node()
    with openFileRd(str(path)) as file:
        assert decodeMessage(file, GlobalMetadata())
        while decodeMessage(file, node):
            found[node.id] = node
            node = Node()
    return found


def play(traces: list[dict[int, Any]]) -> int:
    """How many nodes can be done: sends at once, receives after their send, collectives when every rank is there."""
    over: list[set[int]] = [set() for _ in traces]
    sent: set[tuple[int, ...]] = set()
    before = -1
    while before != (before := sum(map(len, over))):
        ready = [
            [node for number, node in trace.items() if number not in done and set(node.data_deps) <= done]
            for trace, done in zip(traces, over, strict=True)
        ]
        waiting = [node.name for nodes in ready for node in nodes if node.name.startswith("COMM_COLL")]
        for nodes, done in zip(ready, over, strict=True):
            for node in nodes:
                told = {attribute.name: attribute.int64_val for attribute in node.attr}
                message = tuple(told.get(name, 0) for name in ("comm_src", "comm_dst", "comm_tag", "comm_size"))
                if node.name.startswith("COMM_SEND"):
                    sent.add(message)
                held = node.name.startswith("COMM_RECV") and message not in sent
                alone = node.name.startswith("COMM_COLL") and waiting.count(node.name) < len(traces)
                if not held and not alone:
                    done.add(node.id)
    return before
