"""How long does a large run take to report? `make bench-report` writes one and answers.

The run is 200 trials of 16 workers with 1,000 steps each, as large as a study gets on one machine: 3.2 million rows.
What nodes would have logged is made up; reading, judging, drawing and writing are those of every run.
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

RESULTS = Path("docs/results/report.md")
STRATEGIES = {"ring": "all_reduce", "tree": "all_reduce", "ps_bsp": "parameter_server", "easgd": "easgd"}
LINKS = ("25mbit", "50mbit", "100mbit", "200mbit", "400mbit")
FLUSH = 25  # steps of a batch, about what a node logs at once
EPOCHS = 20
LOOK_S = 0.05  # between two looks at memory
COMPUTE_S, EXCHANGE_S = 0.032, 0.011
VECTOR_BYTES, SAMPLES = 68_904, 32
COLUMNS = (
    *("step", "epoch", "start_s", "step_s", "data_s", "compute_s", "exchange_s", "wait_s", "update_s", "late_s"),
    *("samples", "loss", "bytes_sent", "messages_sent", "staleness", "forward_s", "backward_s"),
)
TARGET = {"metric": "accuracy", "at_least": 0.95}


@dataclass(frozen=True)
class Size:
    """How much there is to read."""

    trials: int = 200
    workers: int = 16
    steps: int = 1000

    @property
    def rows(self) -> int:
        """Steps of all workers of all trials."""
        return self.trials * self.workers * self.steps


@dataclass(frozen=True)
class Cost:
    """What a report took: seconds by the clock and on cores, the most memory at a time, and the page's size."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    page_bytes: int


def write_run(root: Path, size: Size) -> RunFolder:
    """A finished run folder of this size below `root`; the same size gives the same bytes."""
    folder = RunFolder(root / "large" / "20260101T000000Z-0000")
    folder.path.mkdir(parents=True)
    (folder.path / "scenario.yaml").write_text("# How long does a large run take to report?\nname: large\n")
    (folder.path / "resolved.yaml").write_text("name: large\n")
    (folder.path / "manifest.json").write_text('{"run": "20260101T000000Z-0000", "versions": {"ensayo": "0.1.0"}}\n')
    kinds = product(STRATEGIES, LINKS)
    names = [(label, link, repeat) for label, link in kinds for repeat in range(-(-size.trials // 20))]
    for number, (label, link, repeat) in enumerate(names[: size.trials]):
        _write_trial(folder, size, f"{number:03}-{label}-{link}-r{repeat}", (label, link, repeat))
    return folder


def measure(folder: RunFolder) -> Cost:
    """Writes the report of a run."""
    before, began_s = _cpu_s(), time.monotonic()
    with Memory() as memory, create_process_pool(folder.log_bytes) as team:
        team.preload("analysis.results.trial")
        from analysis.report import report  # noqa: PLC0415 - that takes time too

        page = report.write_report(folder.path, team)
    return Cost(time.monotonic() - began_s, _cpu_s() - before, memory.peak_bytes, page.stat().st_size)


class Memory:
    """The most memory that this process and those that it started have at a time, looked at every LOOK_S.

    Resident pages are added up, so that a page which processes share counts in each.
    """

    def __enter__(self) -> Self:
        Path("/proc/thread-self/children").read_text()  # fails on a kernel that does not tell
        self.peak_bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, sum(map(_resident_bytes, ["self", *_children()])))
            if self._done.wait(LOOK_S):
                return


def _children() -> list[str]:
    return [pid for told in Path("/proc/self/task").glob("*/children") for pid in _text(told).split()]


def _resident_bytes(pid: str) -> int:
    """None of a process that has just ended."""
    pages = _text(Path("/proc", pid, "statm")).split()
    return int(pages[1]) * resource.getpagesize() if pages else 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _write_trial(folder: RunFolder, size: Size, name: str, kind: tuple[str, str, int]) -> None:
    trial = TrialFolder(folder.path / "trials" / name)
    (trial.path / "logs").mkdir(parents=True)
    steps = _steps(size.steps, np.random.default_rng([LINKS.index(kind[1]), kind[2]]))
    trial.plan_path.write_text(json.dumps(_plan(size, name, kind)))
    trial.status_path.write_text(json.dumps({"trial": name, "engine": "simulated", "status": "success", "reason": ""}))
    worker = "".join(_worker(steps, size))
    for rank in range(size.workers):
        trial.log_path(f"worker-{rank}").write_text(worker.replace("worker-0", f"worker-{rank}"))
    trial.log_path("coordinator").write_text("".join(_coordinator(steps, size)))


def _plan(size: Size, name: str, kind: tuple[str, str, int]) -> dict[str, Any]:
    label, link, repeat = kind
    nodes: list[dict[str, Any]] = [{"name": "coordinator", "role": "coordinator"}]
    nodes += [
        {"name": f"worker-{rank}", "role": "worker", "rank": rank, "throughput": SAMPLES / COMPUTE_S}
        for rank in range(size.workers)
    ]
    return {
        "trial": name, "label": label, "repeat": repeat, "seed": 1 + repeat, "workers": size.workers,
        "labels": {"cluster.worker.uplink": link, "workers": size.workers}, "engine": "simulated",
        "steps": size.steps, "batch": SAMPLES * size.workers, "epochs": EPOCHS, "target": TARGET, "nodes": nodes,
        "train_samples": SAMPLES * size.workers * size.steps // EPOCHS, "strategy": {"kind": STRATEGIES[label]},
        "is_synchronous": True, "vector_bytes": VECTOR_BYTES,
        "bytes_per_step": {f"worker-{rank}": VECTOR_BYTES for rank in range(size.workers)},
        "predicted": {"compute_s": COMPUTE_S, "exchange_s": EXCHANGE_S, "formula": "a + b"},
        "predicted_s": size.steps * (COMPUTE_S + EXCHANGE_S),
    }  # fmt: skip


def _steps(count: int, random: np.random.Generator) -> dict[str, list[Any]]:
    """The columns of one worker's steps."""
    exchange_s = EXCHANGE_S * random.lognormal(0.0, 0.1, count)
    compute_s = np.round(COMPUTE_S * random.uniform(1.0, 1.01, count), 6)
    step_s = np.round(compute_s + exchange_s, 6)
    zeros, step = [0.0] * count, np.arange(count)
    loss = 2.3 * np.exp(-step / 300) + 0.05 * random.random(count)
    return {
        "step": step.tolist(), "epoch": (1 + step * EPOCHS // count).tolist(),
        "start_s": np.round(np.cumsum(step_s) - step_s, 6).tolist(), "step_s": step_s.tolist(), "data_s": zeros,
        "compute_s": compute_s.tolist(), "exchange_s": np.round(exchange_s, 6).tolist(), "wait_s": zeros,
        "update_s": zeros, "late_s": zeros, "samples": [SAMPLES] * count, "loss": loss.tolist(),
        "bytes_sent": [VECTOR_BYTES] * count, "messages_sent": [30] * count, "staleness": [None] * count,
        "forward_s": [0.010667] * count, "backward_s": [0.021333] * count,
    }  # fmt: skip


def _worker(steps: dict[str, list[Any]], size: Size) -> Iterator[str]:
    rows = list(zip(*(steps[name] for name in COLUMNS), strict=True))
    end_s = steps["start_s"][-1] + steps["step_s"][-1]
    for first in range(0, size.steps, FLUSH):
        batch = rows[first : first + FLUSH]
        yield _line("node_steps", {"columns": COLUMNS, "rows": batch}, batch[-1][2], "worker-0")
    sent = {"payload_bytes_sent": size.steps * VECTOR_BYTES, "messages_sent": 30 * size.steps}
    yield _line("node_stop", sent | {"deadlines": size.steps, "missed_deadlines": 0}, end_s, "worker-0")


def _coordinator(steps: dict[str, list[Any]], size: Size) -> Iterator[str]:
    yield _line("run_start", None, 0.0)
    end_s = 0.0
    for epoch in range(1, EPOCHS + 1):
        step = size.steps * epoch // EPOCHS
        end_s = steps["start_s"][step - 1] + steps["step_s"][step - 1]
        found = {"accuracy": 0.99 - 0.9 * float(np.exp(-4 * epoch / EPOCHS)), "loss": steps["loss"][step - 1]}
        told = {"epoch_num": epoch, "samples_count": step * SAMPLES * size.workers, "step": step}
        yield _line("eval_metrics", found, end_s, "", told)
    yield _line("run_stop", None, end_s, "", {"status": "success", "reason": ""})


def _line(key: str, value: Any, time_s: float, node: str = "", metadata: dict[str, Any] | None = None) -> str:
    fields = {"namespace": node, "time_ms": round(1000 * time_s, 3), "event_type": "POINT_IN_TIME", "key": key}
    return f":::MLLOG {json.dumps(fields | {'value': value, 'metadata': metadata or {}})}\n"


def main() -> None:
    """Writes a run into a temporary folder, or one that is kept, and prints what two reports of it cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in vars(Size()).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--keep", type=Path, help="write the run here and let it stay")
    parser.add_argument("--write", metavar="MACHINE", help=f"also into {RESULTS.name}, under this name of the machine")
    told = parser.parse_args()
    size = Size(told.trials, told.workers, told.steps)
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_run(told.keep or Path(scratch), size)
        text = _told(size, {"first report": measure(folder), "report again": measure(folder)})
    sys.stdout.write(text)
    if told.write:
        RESULTS.write_text(f"# What `make bench-report` printed\n\nMachine: {told.write}.\n\n{text}", encoding="utf-8")


def _told(size: Size, costs: dict[str, Cost]) -> str:
    """The table of the costs."""
    rows = "".join(
        f"| {name} | {cost.wall_s:.1f} s | {cost.cpu_s:.1f} s | {cost.peak_bytes / 1e9:.2f} GB "
        f"| {cost.page_bytes / 1e6:.1f} MB |\n"
        for name, cost in costs.items()
    )
    return (
        f"{size.trials} trials x {size.workers} workers x {size.steps:,} steps = {size.rows:,} rows. Reading logs, "
        "judging, writing steps.csv, result.txt and fidelity.json, figures and the page; the first also imports.\n\n"
        f"| | clock | cores | memory | page |\n| --- | --- | --- | --- | --- |\n{rows}"
    )


if __name__ == "__main__":
    main()
