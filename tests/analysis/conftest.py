"""Run folders for tests: `make_trial` writes literal log lines, `make_run` a plausible run of a small model."""

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.exports.readable_trials import read_readable_trials
from analysis.reading.run_folder import RunFolder, TrialFolder
from analysis.reading.run_table import RunLogTables, TrialLogTables, read_trial_tables
from services.cluster.addresses import DummyAddresses
from services.node.simulate import simulate_trial_to_folder
from services.plan import make_plan
from services.runtime.run_log import LOG_LINE_PREFIX, UPDATE_COLUMNS
from services.scenario.scenario import Scenario

STEP = {
    "step": 0, "epoch": 0, "start_s": 0.0, "step_s": 1.0, "data_s": 0.0, "compute_s": 0.6, "exchange_s": 0.4,
    "wait_s": 0.0, "update_s": 0.0, "late_s": 0.0, "samples": 10, "loss": 1.0, "bytes_sent": 100, "messages_sent": 2,
    "staleness": None,
}  # fmt: skip


def mllog(key: str, value: Any = None, time_s: float = 0.0, node: str = "", **metadata: Any) -> str:
    """One log line."""
    kind = "INTERVAL_START" if key.endswith("_start") else "INTERVAL_END" if key.endswith("_stop") else "POINT_IN_TIME"
    fields = {"namespace": node, "time_ms": time_s * 1000, "event_type": kind, "key": key}
    return LOG_LINE_PREFIX + json.dumps(fields | {"value": value, "metadata": metadata})


def node_steps(rows: list[dict[str, Any]], node: str, time_s: float = 0.0) -> str:
    """One batch of step rows; keys that a row lacks come from STEP."""
    full = [STEP | {"step": number} | row for number, row in enumerate(rows)]
    batch = {"columns": list(full[0]) if full else list(STEP), "rows": [list(row.values()) for row in full]}
    return mllog("node_steps", batch, time_s, node)


def shard_updates(rows: list[list[float]], time_s: float = 0.0) -> str:
    """One batch of applied updates."""
    return mllog("shard_updates", {"columns": list(UPDATE_COLUMNS), "rows": rows}, time_s, "server-0")


def updates_in_order(workers: Iterable[int], time_s: float = 0.0) -> list[list[float]]:
    """Rows of updates by these workers; staleness counts the updates by others since the worker's last one."""
    last: Counter[int] = Counter()
    steps: Counter[int] = Counter()
    rows: list[list[float]] = []
    for version, worker in enumerate(workers, start=1):
        rows.append([version, worker, steps[worker], version - 1 - last[worker], 10, time_s])
        last[worker], steps[worker] = version, steps[worker] + 1
    return rows


def node_stop(node: str, **counted: Any) -> str:
    """The last line of a node."""
    value = {"payload_bytes_sent": 200, "messages_sent": 4, "deadlines": 0, "missed_deadlines": 0} | counted
    return mllog("node_stop", value, 9.0, node)


@pytest.fixture
def line() -> Callable[..., str]:
    return mllog


@pytest.fixture
def steps_line() -> Callable[..., str]:
    return node_steps


@pytest.fixture
def updates_line() -> Callable[..., str]:
    return shard_updates


@pytest.fixture
def ordered_updates() -> Callable[..., list[list[float]]]:
    return updates_in_order


@pytest.fixture
def stop_line() -> Callable[..., str]:
    return node_stop


@pytest.fixture
def make_trial(tmp_path: Path) -> Callable[..., TrialLogTables]:
    """Writes plan, status and logs of one trial and reads them back: make_trial({"worker-0": [...]}, workers=2)."""

    def make(logs: dict[str, list[str]], status: dict[str, Any] | None = None, **planned: Any) -> TrialLogTables:
        folder = TrialFolder(tmp_path / "trials" / "000-t")
        (folder.path / "logs").mkdir(parents=True, exist_ok=True)
        plan = {"trial": "000-t", "label": "t", "workers": 1, "strategy": {"kind": "all_reduce"}} | planned
        folder.plan_path.write_text(json.dumps(plan))
        folder.status_path.write_text(json.dumps({"status": "success", "engine": "local"} | (status or {})))
        for node, lines in logs.items():
            folder.log_path(node).write_text("\n".join(lines) + "\n")
        return read_trial_tables(folder)

    return make


@pytest.fixture
def run_simulated(tmp_path: Path) -> Callable[..., RunLogTables]:
    """Runs strategies in virtual time and returns the run that is read from their logs."""

    def run(
        strategies: dict[str, Any],
        workers: int = 4,
        rate: str = "100mbit",
        workload: dict[str, Any] | None = None,
        scenario_overrides: dict[str, Any] | None = None,
        **worker: Any,
    ) -> RunLogTables:
        links = {"uplink": rate, "downlink": rate}
        document = {
            "name": "switching",
            "workload": {
                "dataset": {"kind": "digits"},
                "model": {"kind": "mlp", "hidden": [16]},
                "optimiser": {"kind": "momentum", "rate": 0.05},
                "batch": 240,
                "epochs": 4,
                **(workload or {}),
            },
            "cluster": {"workers": workers, "worker": {"throughput": "1000/s", **links, **worker}, "server": links},
            "strategies": strategies,
            "baseline": False,
            **(scenario_overrides or {}),
        }
        for trial in Scenario.decode(document).trials():
            plan = make_plan(trial, "run", "simulated", DummyAddresses())
            logs = tmp_path / "trials" / plan.trial / "logs"
            logs.mkdir(parents=True)
            simulate_trial_to_folder(plan, logs)
            (logs.parent / "plan.json").write_text(plan.model_dump_json())
            (logs.parent / "status.json").write_text(json.dumps({"status": "success", "engine": "simulated"}))
        return read_readable_trials(RunFolder(tmp_path))

    return run


# --- a plausible run: equal workers, alpha-beta links, a loss that falls with samples and suffers from staleness ---

PARAMETERS = 12_000
VECTOR = 4 * PARAMETERS
RATE_BPS = 100e6
THROUGHPUT = 4000.0
BATCH, SAMPLES, EPOCHS = 128, 1408, 12
STEPS_PER_EPOCH = SAMPLES // BATCH
STRATEGIES: dict[str, dict[str, Any]] = {
    "ring": {"kind": "all_reduce", "collective": {"kind": "ring"}},
    "ps_bsp": {"kind": "parameter_server", "servers": 1, "synchrony": {"kind": "bsp"}},
    "ps_asp": {"kind": "parameter_server", "servers": 1, "synchrony": {"kind": "asp"}},
}
TARGET = {"metric": "accuracy", "at_least": 0.95}
SCENARIO = "# Which strategy wins on one to four equal workers behind 100 Mbit/s links, and why?\nname: quickstart\n"


def exchange_s(kind: str, workers: int) -> float:
    """The closed form's exchange: ring 2(n-1)/n, one server n up and n down on its link."""
    beta = 8 / RATE_BPS
    if workers == 1 and kind != "ps":
        return 0.0
    return 2 * (workers - 1) / workers * VECTOR * beta if kind == "ring" else 2 * workers * VECTOR * beta


def strategy_family(label: str) -> str:
    return "ps" if label.startswith("ps") else label


def bytes_per_step(label: str, workers: int) -> dict[str, float]:
    """Payload of one step by node."""
    worker_bytes = (
        VECTOR if strategy_family(label) == "ps" else 2 * (workers - 1) / workers * VECTOR if label == "ring" else 0
    )
    nodes: dict[str, float] = {f"worker-{rank}": worker_bytes for rank in range(workers)}
    return nodes | ({"server-0": workers * VECTOR} if strategy_family(label) == "ps" else {})


def plan_of(trial: str, label: str, workers: int, repeat: int, labels: dict[str, Any]) -> dict[str, Any]:
    """plan.json."""
    link = {"uplink_bps": RATE_BPS, "downlink_bps": RATE_BPS}
    nodes = [{"name": "coordinator", "role": "coordinator", "rank": None}]
    nodes += [
        {"name": f"worker-{rank}", "role": "worker", "rank": rank, "throughput": THROUGHPUT, **link}
        for rank in range(workers)
    ]
    nodes += [{"name": "server-0", "role": "server", "rank": 0, **link}] if strategy_family(label) == "ps" else []
    compute, exchange = BATCH / workers / THROUGHPUT, exchange_s(strategy_family(label), workers)
    return {
        "run": "20260101T000000Z-abcd", "trial": trial, "label": label, "baseline": label == "baseline",
        "repeat": repeat, "seed": 1 + repeat, "labels": labels, "workers": workers,
        "servers": int(strategy_family(label) == "ps"), "dilation": 1.0, "engine": "simulated",
        "steps": STEPS_PER_EPOCH * EPOCHS, "steps_per_epoch": STEPS_PER_EPOCH, "epochs": EPOCHS, "batch": BATCH,
        "target": TARGET, "nodes": nodes, "parameters": PARAMETERS, "vector_bytes": VECTOR,
        "bytes_per_step": bytes_per_step(label, workers),
        "predicted": {"compute_s": compute, "exchange_s": exchange, "formula": "a + b"},
        "predicted_s": STEPS_PER_EPOCH * EPOCHS * (compute + exchange), "train_samples": SAMPLES,
        "strategy": STRATEGIES.get(label, {"kind": "none"}),
        "fidelity": {"missed_deadlines": 0.01, "rate_error": 0.05, "host_cpu": 0.95},
    }  # fmt: skip


class SyntheticTrial:
    """One synthetic trial: turns a plan into the lines that its nodes would print."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.workers: int = plan["workers"]
        self.asynchronous = plan["label"] == "ps_asp"
        self.random = random.Random(f"{plan['label']}-{self.workers}-{plan['repeat']}")
        self.chance = random.Random(plan["repeat"])
        self.clock_s = 100.0
        self.logs: dict[str, list[str]] = {node["name"]: [] for node in plan["nodes"]}
        self.update_order: list[int] = []  # ranks, in the order in which a server updates

    def run(self) -> dict[str, list[str]]:
        self._open()
        reached, epoch = False, 0
        while epoch < self.plan["epochs"] and not reached:
            self._epoch(epoch)
            reached = self._evaluate(epoch)
            epoch += 1
        self._close(epoch, reached)
        return self.logs

    def _log(self, key: str, value: Any = None, **metadata: Any) -> None:
        self.logs["coordinator"].append(mllog(key, value, self.clock_s, **metadata))

    def _open(self) -> None:
        self._log("cache_clear", value=True)
        self._log("init_start")
        for key, value in self._constants().items():
            self._log(key, value)
        for node in self.logs:
            self.logs[node].append(mllog("node_start", {"device": "cpu"}, self.clock_s, node))
        self._log("init_stop")
        self._log("run_start")

    def _constants(self) -> dict[str, Any]:
        names = {"submission_org": "ensayo", "submission_platform": "simulated", "submission_division": "open"}
        names |= {"submission_benchmark": "quickstart", "submission_status": "research", "opt_name": "momentum"}
        parallelism_kinds = ("tensor", "pipeline", "context", "expert")
        precision = {f"lowest_numerical_precision_in_{part}": "fp32" for part in ("linear", "attn", "comm")}
        sizes = {"train_samples": SAMPLES, "eval_samples": 360, "global_batch_size": BATCH, "seed": self.plan["seed"]}
        sizes |= {"number_of_nodes": self.workers, "accelerators_per_node": 1, "gradient_accumulation_steps": 1}
        sizes |= {"micro_batch_size": BATCH // self.workers, "opt_base_learning_rate": 0.1}
        return (
            names
            | precision
            | sizes
            | {f"{kind}_parallelism": 1 for kind in parallelism_kinds}
            | {"config_filename": "s.yaml"}
        )

    def _epoch(self, epoch: int) -> None:
        self._log("epoch_start", epoch_num=epoch, samples_count=epoch * SAMPLES)
        rows: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(self.workers)}
        for step in range(epoch * STEPS_PER_EPOCH, (epoch + 1) * STEPS_PER_EPOCH):
            took = [self._step_row(step, epoch) for _ in range(self.workers)]
            longest_s = max(row["step_s"] for row in took)
            for rank, row in enumerate(took):
                waited_s = 0.0 if self.asynchronous else longest_s - row["step_s"]  # part of the exchange, as logged
                rows[rank].append(
                    row | {"step_s": row["step_s"] + waited_s, "exchange_s": row["exchange_s"] + waited_s}
                )
            self.clock_s += longest_s
        for rank, batch in rows.items():
            node = f"worker-{rank}"
            self.logs[node].append(node_steps(batch, node, self.clock_s))
            digest = f"hash-{epoch}" + (f"-{rank}" if self.asynchronous else "")
            self.logs[node].append(mllog("node_hash", digest, self.clock_s, node, step=batch[-1]["step"]))
        if self.asynchronous:
            for _ in range(STEPS_PER_EPOCH):
                self.update_order += self.random.sample(range(self.workers), self.workers)
            rows = updates_in_order(self.update_order, self.clock_s)[-STEPS_PER_EPOCH * self.workers :]
            self.logs["server-0"].append(shard_updates(rows, self.clock_s))
        self._log("epoch_stop", epoch_num=epoch, samples_count=(epoch + 1) * SAMPLES)

    def _step_row(self, step: int, epoch: int) -> dict[str, Any]:
        predicted, jitter = self.plan["predicted"], 1 + abs(self.random.gauss(0, 0.03))
        late = 0.0015 * self.random.random() * (self.workers > 1)
        compute, exchange = predicted["compute_s"] + late, predicted["exchange_s"] * jitter
        exchange *= 0.55 if self.asynchronous and self.workers > 1 else 1.0
        loss = 2.3 * math.exp(-self._useful_samples(step * BATCH) / 2500) + 0.05 + self.random.random() * 0.05
        return {
            "step": step, "epoch": epoch, "start_s": self.clock_s, "step_s": compute + exchange + 0.0007,
            "data_s": 0.0002, "compute_s": compute, "exchange_s": exchange, "wait_s": 0.0, "update_s": 0.0005,
            "samples": BATCH // self.workers, "loss": loss, "messages_sent": 6,
            "bytes_sent": round(self.plan["bytes_per_step"].get("worker-0", 0)),
        }  # fmt: skip

    def _useful_samples(self, samples: float) -> float:
        """Return the number of samples that count: stale gradients teach less."""
        return samples * (1 - 0.12 * (self.workers - 1) * self.asynchronous)

    def _evaluate(self, epoch: int) -> bool:
        samples = (epoch + 1) * SAMPLES
        metadata = {"epoch_num": epoch, "samples_count": samples}
        accuracy = 0.99 - 0.89 * math.exp(-self._useful_samples(samples) / 2600) + self.chance.gauss(0, 0.006)
        self._log("eval_start", **metadata)
        self.clock_s += 0.02
        self._log("eval_accuracy", accuracy, metric="accuracy", **metadata)
        self._log("eval_metrics", {"accuracy": accuracy, "loss": 3 * (1 - accuracy)}, step=samples // BATCH, **metadata)
        self._log("eval_stop", **metadata)
        return accuracy >= TARGET["at_least"]

    def _close(self, epochs: int, reached: bool) -> None:
        steps = epochs * STEPS_PER_EPOCH
        self._log("params_sha256", f"sha-{self.plan['seed']}", step=steps, samples_count=epochs * SAMPLES)
        self._log("run_stop", status="success", target_reached=reached, reason="", step=steps)
        for node, step_bytes in self.plan["bytes_per_step"].items():
            deadlines = {"deadlines": steps, "missed_deadlines": int(node == "worker-0" and steps > 100)}
            sent = {"payload_bytes_sent": round(step_bytes * steps), "messages_sent": 6 * steps}
            done = {"steps": steps} if node.startswith("worker") else {}
            self.logs[node].append(mllog("node_stop", sent | done | deadlines, self.clock_s, node))


def status_of(plan: dict[str, Any]) -> dict[str, Any]:
    """status.json of a trial that went well."""
    rates = {"uplink_bps": RATE_BPS, "downlink_bps": RATE_BPS}
    shaped = {"rung": "fluid", **rates, **{f"read_back_{name}": rate for name, rate in rates.items()}}
    return {
        "trial": plan["trial"], "engine": "simulated", "status": "success", "reason": "",
        "timings_s": {"up": 0.1, "gate": 0.0, "run": 2.0, "down": 0.0},
        "exit_codes": {node["name"]: 0 for node in plan["nodes"]},
        "shaping": {node["name"]: shaped for node in plan["nodes"] if "uplink_bps" in node},
        "host": {"cpu_busy": 0.43, "canary_late_ms": {"p50": 0.1, "p99": 0.4, "max": 1.2}},
    }  # fmt: skip


def combinations(
    strategies: tuple[str, ...], workers: tuple[int, ...], repeats: int, conditions: tuple[str, ...], baseline: bool
) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    """Trials in the order in which they run."""
    for condition in conditions:
        swept = {"cluster.worker.uplink": condition} if condition else {}
        for repeat in range(repeats if baseline else 0):
            yield "baseline", 1, repeat, swept
        for label in strategies:
            for count in workers:
                for repeat in range(repeats):
                    yield label, count, repeat, swept | {"workers": count}


def write_run(
    root: Path,
    strategies: tuple[str, ...] = ("ring", "ps_bsp", "ps_asp"),
    workers: tuple[int, ...] = (1, 2, 4),
    repeats: int = 1,
    conditions: tuple[str, ...] = ("",),
    baseline: bool = True,
) -> RunFolder:
    """Write a complete run folder and return it."""
    folder = RunFolder(root / "quickstart" / "20260101T000000Z-abcd")
    (folder.path / "trials").mkdir(parents=True)
    (folder.path / "scenario.yaml").write_text(SCENARIO)
    (folder.path / "resolved.yaml").write_text(SCENARIO)
    manifest = {"versions": {"ensayo": "0.1.0", "python": "3.11"}, "engine": "simulated", "seeds": [1]}
    (folder.path / "manifest.json").write_text(json.dumps(manifest))
    for index, (label, count, repeat, labels) in enumerate(
        combinations(strategies, workers, repeats, conditions, baseline)
    ):
        plan = plan_of(f"{index:03}-{label}-w{count}-r{repeat}", label, count, repeat, labels)
        trial = TrialFolder(folder.path / "trials" / plan["trial"])
        (trial.path / "logs").mkdir(parents=True)
        trial.plan_path.write_text(json.dumps(plan))
        trial.status_path.write_text(json.dumps(status_of(plan)))
        for node, lines in SyntheticTrial(plan).run().items():
            trial.log_path(node).write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., RunFolder]:
    """Writes a run of ring, ps_bsp and ps_asp on 1, 2 and 4 workers beside a baseline; arguments as in `write_run`."""
    return lambda **options: write_run(tmp_path, **options)


@pytest.fixture(scope="session")
def run_writer() -> Callable[..., RunFolder]:
    """`write_run` itself, for fixtures that live longer than one test."""
    return write_run
