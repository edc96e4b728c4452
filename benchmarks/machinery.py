"""Benchmark of Ensayo's own overhead on this machine (`make bench`). Variants take turns in every round.

Codec: the hand-written codec against that of protobuf, for one message of 1 MB.
Steps: measured against predicted step times, for a vector of about 1.2 MB behind links of 100 Mbit/s.
Engines: time from the start of a run to its first step, and from its last step until all nodes are removed.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.markdown import markdown_table
from compose.engines import EngineChoice, create_engine
from compose.engines.local import NODE_ENVIRONMENT
from compose.runs.run import run_scenario
from compose.runs.run_folder import ScenarioFile
from compose.runs.trials.log_tail import LogTail
from services.plan import Plan, decode_plan
from services.runtime.transport import Message, MessageTag
from services.scenario.scenario import Scenario
from services.transport.codec import decode_message, encode_message
from services.wire.data_pb2 import DataHeader, DataMessage

DEFAULT_ROUNDS, MIN_ROUNDS = 5, 5
CODEC_CALLS_PER_ROUND = 50
PAYLOAD_BYTES = 1_000_000
RESULTS_PAGE = Path(__file__).parents[1] / "docs" / "results" / "bench.md"
LINK_RATES = {"uplink": "100mbit", "downlink": "100mbit"}
BENCH_SCENARIO: Mapping[str, Any] = {
    "name": "bench",
    "workload": {
        "dataset": {"kind": "synthetic_regression", "samples": 1280, "features": 64, "outputs": 10},
        "model": {"kind": "mlp", "hidden": [512, 512]},  # 301,066 parameters
        "optimiser": {"kind": "sgd", "rate": 0.01},
        "batch_per_worker": 32,
        "epochs": 1,
    },
    "cluster": {"worker": {"throughput": "1000/s", **LINK_RATES}, "server": LINK_RATES},
    "strategies": {"ring": {"kind": "all_reduce"}, "ps_bsp": {"kind": "parameter_server"}},
    "sweep": {"workers": [2, 4]},
    "baseline": False,
}

SamplesByKey = dict[tuple[str, ...], list[float]]  # label of a measurement -> one sample per round


@dataclass
class RunStopwatch:
    """Observer of a run that measures the time to the first step and the time to remove each trial."""

    start_moment_s: float = field(default_factory=time.monotonic)
    to_first_step_s: float = 0.0
    to_removed_s: list[float] = field(default_factory=list)
    _training_end_s: float = 0.0

    def engine_preparation_started(self, description: str) -> None:
        """Ignore what the engine prepares."""

    def run_started(
        self, scenario: Scenario, engine_name: str, why_this_engine: str, plans: tuple[Plan, ...], run_folder: Path
    ) -> None:
        """Ignore the start of the run."""

    def trial_started(self, plan: Plan, number: int, count: int) -> None:
        """Ignore the start of a trial."""

    def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None:  # noqa: ARG002 - the same for all trials
        """Record when training starts for the first time and when it stops."""
        if log_event["key"] == "run_start" and not self.to_first_step_s:
            self.to_first_step_s = time.monotonic() - self.start_moment_s
        if log_event["key"] == "run_stop":
            self._training_end_s = time.monotonic()

    def trial_disturbed(self, plan: Plan, disturbance: str, next_attempt: str, pause_s: float) -> None:
        """Ignore disturbances: no trial of the benchmark is repeated."""

    def trial_ended(self, plan: Plan, status: str, seconds: float) -> None:  # noqa: ARG002 - the same for all trials
        """Record the seconds from the end of training until the trial was removed."""
        self.to_removed_s.append(time.monotonic() - self._training_end_s)


def main() -> None:
    """Measure, print the tables and write the results page if --write is given.

    The process first restarts itself with the allocator settings of nodes, since these change the speed of copies.
    """
    if not os.environ.items() >= NODE_ENVIRONMENT.items():
        command = [sys.executable, "-m", "benchmarks.machinery", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | NODE_ENVIRONMENT)  # noqa: S606 - this program
    parser = argparse.ArgumentParser(prog="benchmarks.machinery", description=__doc__)
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help=f"samples per row; at least {MIN_ROUNDS}")
    parser.add_argument("--write", metavar="MACHINE", help=f"also write {RESULTS_PAGE.name}, with this machine name")
    arguments = parser.parse_args()
    rounds = max(arguments.rounds, MIN_ROUNDS)
    text = "\n".join([*_codec_table(rounds), "", *_run_tables(rounds)])
    sys.stdout.write(f"{text}\n")
    if arguments.write:
        RESULTS_PAGE.parent.mkdir(parents=True, exist_ok=True)
        page = f"# What `make bench` printed\n\nMachine: {arguments.write}.\n\n{text}\n"
        RESULTS_PAGE.write_text(page, encoding="utf-8")


def _codec_table(rounds: int) -> Iterator[str]:
    samples: SamplesByKey = defaultdict(list)
    for _ in range(rounds):
        for name, call in _codec_calls().items():
            started = time.perf_counter()
            for _ in range(CODEC_CALLS_PER_ROUND):
                call()
            samples[name].append(1e6 * (time.perf_counter() - started) / CODEC_CALLS_PER_ROUND)
    rows = ((*name, _format_spread(samples[name])) for name in samples)
    yield from markdown_table(("1 MB message", "by", "µs, median (range)"), rows)


def _codec_calls() -> dict[tuple[str, ...], Callable[[], object]]:
    data = bytes(PAYLOAD_BYTES)
    message = Message(MessageTag(1, 1), memoryview(data))
    part = encode_message(message)
    return {
        ("build", "hand"): lambda: encode_message(message),
        ("build", "protobuf"): lambda: DataMessage(header=DataHeader(step=1, kind=1), payload=data).SerializeToString(),
        ("read", "hand"): lambda: decode_message(part),
        ("read", "protobuf"): lambda: DataMessage.FromString(part),
    }


def _run_tables(rounds: int) -> Iterator[str]:
    scenario = Scenario.decode(dict(BENCH_SCENARIO))
    available_engines = [name for name in ("local", "docker") if create_engine(name).missing_software() is None]
    steps: SamplesByKey = defaultdict(list)
    times: SamplesByKey = defaultdict(list)
    predicted: dict[tuple[str, ...], float] = {}
    for number in range(1, rounds + 1):
        for engine in available_engines:
            sys.stderr.write(f"round {number}/{rounds}, engine {engine}\n")
            with tempfile.TemporaryDirectory(prefix="ensayo-bench-") as runs_folder:
                stopwatch = RunStopwatch()
                finished_run = run_scenario(
                    ScenarioFile(scenario, "", ""),
                    EngineChoice(create_engine(engine), "bench"),
                    Path(runs_folder),
                    stopwatch,
                )
                for plan, step_s in _median_step_times(finished_run.folder):
                    key = engine, plan.label, str(plan.workers)
                    steps[key].append(1e3 * step_s)
                    predicted[key] = 1e3 * plan.predicted.step_s
            times[engine, "start to first step"].append(stopwatch.to_first_step_s)
            times[engine, "last step to all removed"].append(median(stopwatch.to_removed_s))
    header = ("engine", "strategy", "workers", "predicted ms", "measured ms, median (range)", "measured / predicted")
    yield from markdown_table(header, (_step_row(key, predicted[key], steps[key]) for key in sorted(steps)))
    yield ""
    time_rows = ((*key, _format_spread(times[key])) for key in sorted(times))
    yield from markdown_table(("engine", "", "s, median (range)"), time_rows)


def _median_step_times(run_folder: Path) -> Iterator[tuple[Plan, float]]:
    """Yield the plan of each trial of a run and the median step time of worker 0 in seconds.

    The first step is left out, since it includes opening the streams.
    """
    for trial_path in sorted((run_folder / "trials").iterdir()):
        plan = decode_plan((trial_path / "plan.json").read_bytes())
        events = LogTail(trial_path / "logs" / "worker-0.log").read_new_events()
        values = [event["value"] for event in events if event["key"] == "node_steps"]
        rows = [dict(zip(value["columns"], row, strict=True)) for value in values for row in value["rows"]]
        yield plan, median(row["step_s"] for row in rows if row["step"])


def _step_row(key: tuple[str, ...], predicted_ms: float, measured_ms: list[float]) -> tuple[str, ...]:
    return (*key, f"{predicted_ms:.1f}", _format_spread(measured_ms), f"{median(measured_ms) / predicted_ms:.3f}")


def _format_spread(samples: list[float]) -> str:
    return f"{median(samples):.3g} ({min(samples):.3g} - {max(samples):.3g})"


if __name__ == "__main__":
    main()
