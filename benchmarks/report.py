"""Benchmark of the report of a large run (`make bench-report`): seconds, memory and size of the page.

The run has 200 trials of 16 workers with 1,000 steps each, as large as a study on one machine: 3.2 million rows. Logs
are synthetic; they are read, checked, drawn and written like those of every run.
"""

import argparse
import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Self

import numpy as np

from analysis.reading.parallel import create_process_pool
from analysis.reading.run_folder import RunFolder, TrialFolder
from benchmarks.markdown import markdown_row

RESULTS_PAGE = Path("docs/results/report.md")
STRATEGIES = {"ring": "all_reduce", "tree": "all_reduce", "ps_bsp": "parameter_server", "easgd": "easgd"}
LINK_RATES = ("25mbit", "50mbit", "100mbit", "200mbit", "400mbit")
STEPS_PER_LOG_EVENT = 25  # about as many as a node logs in one event
EPOCHS = 20
MEMORY_POLL_INTERVAL_S = 0.05
COMPUTE_S, EXCHANGE_S = 0.032, 0.011
VECTOR_BYTES, SAMPLES_PER_STEP = 68_904, 32
STEP_COLUMNS = (
    *("step", "epoch", "start_s", "step_s", "data_s", "compute_s", "exchange_s", "wait_s", "update_s", "late_s"),
    *("samples", "loss", "bytes_sent", "messages_sent", "staleness", "forward_s", "backward_s"),
)
QUALITY_TARGET = {"metric": "accuracy", "at_least": 0.95}


@dataclass(frozen=True)
class SyntheticRunSize:
    """Size of the synthetic run."""

    trials: int = 200
    workers: int = 16
    steps: int = 1000

    @property
    def rows(self) -> int:
        """Number of log rows: steps of all workers of all trials."""
        return self.trials * self.workers * self.steps


@dataclass(frozen=True)
class ReportCost:
    """Cost of writing a report: wall and CPU seconds, peak memory, and the size of the page."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    page_bytes: int


def write_synthetic_run(runs_folder: Path, run_size: SyntheticRunSize) -> RunFolder:
    """Write the folder of a synthetic finished run below `runs_folder`. Equal sizes give equal bytes."""
    folder = RunFolder(runs_folder / "large" / "20260101T000000Z-0000")
    folder.path.mkdir(parents=True)
    (folder.path / "scenario.yaml").write_text("# How long does a large run take to report?\nname: large\n")
    (folder.path / "resolved.yaml").write_text("name: large\n")
    (folder.path / "manifest.json").write_text('{"run": "20260101T000000Z-0000", "versions": {"ensayo": "0.1.0"}}\n')
    labels = product(STRATEGIES, LINK_RATES)
    conditions = [(label, link, repeat) for label, link in labels for repeat in range(-(-run_size.trials // 20))]
    for number, (label, link, repeat) in enumerate(conditions[: run_size.trials]):
        _write_trial(folder, run_size, f"{number:03}-{label}-{link}-r{repeat}", (label, link, repeat))
    return folder


def measure_report(run_folder: RunFolder) -> ReportCost:
    """Write the report of a run and return what it cost."""
    cpu_start_s, start_s = _total_cpu_s(), time.monotonic()
    with PeakMemoryMonitor() as memory, create_process_pool(run_folder.total_log_bytes) as process_pool:
        process_pool.preload_module("analysis.results.analyse_trial")
        from analysis.report import report  # noqa: PLC0415 - the time of the import is measured, too

        page = report.write_report(run_folder.path, process_pool)
    wall_s, cpu_s = time.monotonic() - start_s, _total_cpu_s() - cpu_start_s
    return ReportCost(wall_s, cpu_s, memory.peak_bytes, page.stat().st_size)


class PeakMemoryMonitor:
    """Monitor of the peak memory of this process and its child processes, polled every MEMORY_POLL_INTERVAL_S.

    The memory is the sum of the resident pages. A page that several processes share counts once for each.
    """

    def __enter__(self) -> Self:
        Path("/proc/thread-self/children").read_text()  # fails on kernels without this file
        self.peak_bytes = 0
        self._stop_requested = threading.Event()
        self._thread = threading.Thread(target=self._poll_memory)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_requested.set()
        self._thread.join()

    def _poll_memory(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, sum(map(_resident_bytes, ["self", *_child_process_ids()])))
            if self._stop_requested.wait(MEMORY_POLL_INTERVAL_S):
                return


def _child_process_ids() -> list[str]:
    return [pid for path in Path("/proc/self/task").glob("*/children") for pid in _read_text_or_empty(path).split()]


def _resident_bytes(pid: str) -> int:
    """Return the resident memory of a process; 0 if the process has just ended."""
    pages = _read_text_or_empty(Path("/proc", pid, "statm")).split()
    return int(pages[1]) * resource.getpagesize() if pages else 0


def _read_text_or_empty(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _total_cpu_s() -> float:
    usages = [resource.getrusage(scope) for scope in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _write_trial(
    run_folder: RunFolder, run_size: SyntheticRunSize, trial_name: str, condition: tuple[str, str, int]
) -> None:
    trial = TrialFolder(run_folder.path / "trials" / trial_name)
    (trial.path / "logs").mkdir(parents=True)
    steps = _step_columns(run_size.steps, np.random.default_rng([LINK_RATES.index(condition[1]), condition[2]]))
    trial.plan_path.write_text(json.dumps(_plan_document(run_size, trial_name, condition)))
    trial.status_path.write_text(
        json.dumps({"trial": trial_name, "engine": "simulated", "status": "success", "reason": ""})
    )
    worker = "".join(_worker_log_lines(steps, run_size))
    for rank in range(run_size.workers):
        trial.log_path(f"worker-{rank}").write_text(worker.replace("worker-0", f"worker-{rank}"))
    trial.log_path("coordinator").write_text("".join(_coordinator_log_lines(steps, run_size)))


def _plan_document(run_size: SyntheticRunSize, trial_name: str, condition: tuple[str, str, int]) -> dict[str, Any]:
    label, link, repeat = condition
    nodes: list[dict[str, Any]] = [{"name": "coordinator", "role": "coordinator"}]
    nodes += [
        {"name": f"worker-{rank}", "role": "worker", "rank": rank, "throughput": SAMPLES_PER_STEP / COMPUTE_S}
        for rank in range(run_size.workers)
    ]
    return {
        "trial": trial_name, "label": label, "repeat": repeat, "seed": 1 + repeat, "workers": run_size.workers,
        "labels": {"cluster.worker.uplink": link, "workers": run_size.workers}, "engine": "simulated",
        "steps": run_size.steps, "batch": SAMPLES_PER_STEP * run_size.workers, "epochs": EPOCHS,
        "target": QUALITY_TARGET, "nodes": nodes,
        "train_samples": SAMPLES_PER_STEP * run_size.workers * run_size.steps // EPOCHS,
        "strategy": {"kind": STRATEGIES[label]},
        "is_synchronous": True, "vector_bytes": VECTOR_BYTES,
        "bytes_per_step": {f"worker-{rank}": VECTOR_BYTES for rank in range(run_size.workers)},
        "predicted": {"compute_s": COMPUTE_S, "exchange_s": EXCHANGE_S, "formula": "a + b"},
        "predicted_s": run_size.steps * (COMPUTE_S + EXCHANGE_S),
    }  # fmt: skip


def _step_columns(step_count: int, random: np.random.Generator) -> dict[str, list[Any]]:
    """Return the columns of the logged steps of one worker."""
    exchange_s = EXCHANGE_S * random.lognormal(0.0, 0.1, step_count)
    compute_s = np.round(COMPUTE_S * random.uniform(1.0, 1.01, step_count), 6)
    step_s = np.round(compute_s + exchange_s, 6)
    zeros, step = [0.0] * step_count, np.arange(step_count)
    loss = 2.3 * np.exp(-step / 300) + 0.05 * random.random(step_count)
    return {
        "step": step.tolist(), "epoch": (1 + step * EPOCHS // step_count).tolist(),
        "start_s": np.round(np.cumsum(step_s) - step_s, 6).tolist(), "step_s": step_s.tolist(), "data_s": zeros,
        "compute_s": compute_s.tolist(), "exchange_s": np.round(exchange_s, 6).tolist(), "wait_s": zeros,
        "update_s": zeros, "late_s": zeros, "samples": [SAMPLES_PER_STEP] * step_count, "loss": loss.tolist(),
        "bytes_sent": [VECTOR_BYTES] * step_count, "messages_sent": [30] * step_count, "staleness": [None] * step_count,
        "forward_s": [0.010667] * step_count, "backward_s": [0.021333] * step_count,
    }  # fmt: skip


def _worker_log_lines(steps: dict[str, list[Any]], run_size: SyntheticRunSize) -> Iterator[str]:
    rows = list(zip(*(steps[name] for name in STEP_COLUMNS), strict=True))
    end_s = steps["start_s"][-1] + steps["step_s"][-1]
    for first in range(0, run_size.steps, STEPS_PER_LOG_EVENT):
        batch = rows[first : first + STEPS_PER_LOG_EVENT]
        yield _log_line("node_steps", {"columns": STEP_COLUMNS, "rows": batch}, batch[-1][2], "worker-0")
    sent = {"payload_bytes_sent": run_size.steps * VECTOR_BYTES, "messages_sent": 30 * run_size.steps}
    yield _log_line("node_stop", sent | {"deadlines": run_size.steps, "missed_deadlines": 0}, end_s, "worker-0")


def _coordinator_log_lines(steps: dict[str, list[Any]], run_size: SyntheticRunSize) -> Iterator[str]:
    yield _log_line("run_start", None, 0.0)
    end_s = 0.0
    for epoch in range(1, EPOCHS + 1):
        step = run_size.steps * epoch // EPOCHS
        end_s = steps["start_s"][step - 1] + steps["step_s"][step - 1]
        metrics = {"accuracy": 0.99 - 0.9 * float(np.exp(-4 * epoch / EPOCHS)), "loss": steps["loss"][step - 1]}
        metadata = {"epoch_num": epoch, "samples_count": step * SAMPLES_PER_STEP * run_size.workers, "step": step}
        yield _log_line("eval_metrics", metrics, end_s, "", metadata)
    yield _log_line("run_stop", None, end_s, "", {"status": "success", "reason": ""})


def _log_line(key: str, value: Any, time_s: float, node_name: str = "", metadata: dict[str, Any] | None = None) -> str:
    fields = {"namespace": node_name, "time_ms": round(1000 * time_s, 3), "event_type": "POINT_IN_TIME", "key": key}
    return f":::MLLOG {json.dumps(fields | {'value': value, 'metadata': metadata or {}})}\n"


def main() -> None:
    """Write a synthetic run and print the costs of reporting it twice. The run folder is temporary without --keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in vars(SyntheticRunSize()).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--keep", type=Path, help="write the run into this folder and keep it")
    parser.add_argument("--write", metavar="MACHINE", help=f"also write {RESULTS_PAGE.name}, with this machine name")
    arguments = parser.parse_args()
    size = SyntheticRunSize(arguments.trials, arguments.workers, arguments.steps)
    with tempfile.TemporaryDirectory() as temporary_folder:
        folder = write_synthetic_run(arguments.keep or Path(temporary_folder), size)
        text = _cost_table(size, {"first report": measure_report(folder), "report again": measure_report(folder)})
    sys.stdout.write(text)
    if arguments.write:
        page = f"# What `make bench-report` printed\n\nMachine: {arguments.write}.\n\n{text}"
        RESULTS_PAGE.write_text(page, encoding="utf-8")


def _cost_table(run_size: SyntheticRunSize, costs: dict[str, ReportCost]) -> str:
    """Return a Markdown table of the costs of reports."""
    rows = "".join(f"{markdown_row((name, *_cost_cells(cost)))}\n" for name, cost in costs.items())
    return (
        f"{run_size.trials} trials x {run_size.workers} workers x {run_size.steps:,} steps = {run_size.rows:,} rows. "
        "Measured: reading logs, verdicts, writing steps.csv, result.txt and fidelity.json, figures and the page; "
        "the first report also imports modules.\n\n"
        f"| | wall time | CPU time | memory | page |\n| --- | --- | --- | --- | --- |\n{rows}"
    )


def _cost_cells(cost: ReportCost) -> tuple[str, ...]:
    return (
        f"{cost.wall_s:.1f} s",
        f"{cost.cpu_s:.1f} s",
        f"{cost.peak_bytes / 1e9:.2f} GB",
        f"{cost.page_bytes / 1e6:.1f} MB",
    )


if __name__ == "__main__":
    main()
