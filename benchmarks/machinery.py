"""How fast is the machinery itself on this machine? `make bench` answers in tables; variants take turns in every round.

Codec: the hand-written one against protobuf's own, for one message of 1 MB.
Steps: measured against predicted, for a vector of about 1.2 MB behind links of 100 Mbit/s.
Engines: from the start of a run to its first step, and from its last step until everything is removed.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from compose.engines import EngineChoice, create_engine
from compose.engines.local import NODE_ENVIRONMENT
from compose.runs.run import ScenarioSource, run_scenario
from compose.runs.supervisor import LogTail
from services.plan import Plan
from services.runtime.transport import Message, MessageTag
from services.scenario.scenario import Scenario
from services.transport.codec import decode_message, encode_message
from services.wire.data_pb2 import DataHeader, DataMessage

ROUNDS, FEWEST_ROUNDS = 5, 5
CALLS = 50  # of a codec, in one round
PAYLOAD_BYTES = 1_000_000
RESULTS = Path(__file__).parents[1] / "docs" / "results" / "bench.md"
LINK = {"uplink": "100mbit", "downlink": "100mbit"}
SCENARIO: Mapping[str, Any] = {
    "name": "bench",
    "workload": {
        "dataset": {"kind": "synthetic_regression", "samples": 1280, "features": 64, "outputs": 10},
        "model": {"kind": "mlp", "hidden": [512, 512]},  # 301,066 parameters
        "optimiser": {"kind": "sgd", "rate": 0.01},
        "batch_per_worker": 32,
        "epochs": 1,
    },
    "cluster": {"worker": {"throughput": "1000/s", **LINK}, "server": LINK},
    "strategies": {"ring": {"kind": "all_reduce"}, "ps_bsp": {"kind": "parameter_server"}},
    "sweep": {"workers": [2, 4]},
    "baseline": False,
}

Samples = dict[tuple[str, ...], list[float]]  # what was measured -> one number per round


@dataclass
class Stopwatch:
    """Looks on while a run goes on and notes when its first trial takes its first step and is removed."""

    started: float = field(default_factory=time.monotonic)
    to_first_step_s: float = 0.0
    to_removed_s: list[float] = field(default_factory=list)
    _stopped: float = 0.0

    def preparation_started(self, what: str) -> None:
        """Nothing to note."""

    def run_started(self, scenario: Scenario, engine: str, reason: str, plans: tuple[Plan, ...], folder: Path) -> None:
        """Nothing to note."""

    def trial_started(self, plan: Plan, number: int, count: int) -> None:
        """Nothing to note."""

    def event_logged(self, plan: Plan, event: Mapping[str, Any]) -> None:  # noqa: ARG002 - trials don't differ here
        """Training starts, or is over."""
        if event["key"] == "run_start" and not self.to_first_step_s:
            self.to_first_step_s = time.monotonic() - self.started
        if event["key"] == "run_stop":
            self._stopped = time.monotonic()

    def trial_ended(self, plan: Plan, status: str, seconds: float) -> None:  # noqa: ARG002 - trials don't differ here
        """Nothing of the trial is left."""
        self.to_removed_s.append(time.monotonic() - self._stopped)


def main() -> None:
    """Measure, print, and write when asked to; under the allocator's settings that nodes have, which copies feel."""
    if not os.environ.items() >= NODE_ENVIRONMENT.items():
        command = [sys.executable, "-m", "benchmarks.machinery", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | NODE_ENVIRONMENT)  # noqa: S606 - ourselves
    parser = argparse.ArgumentParser(prog="benchmarks.machinery", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"at least {FEWEST_ROUNDS}")
    parser.add_argument("--write", metavar="MACHINE", help=f"also into {RESULTS.name}, under this name of the machine")
    asked = parser.parse_args()
    rounds = max(asked.rounds, FEWEST_ROUNDS)
    text = "\n".join([*_codec_table(rounds), "", *_run_tables(rounds)])
    sys.stdout.write(f"{text}\n")
    if asked.write:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(f"# What `make bench` printed\n\nMachine: {asked.write}.\n\n{text}\n", encoding="utf-8")


def _codec_table(rounds: int) -> Iterator[str]:
    samples: Samples = defaultdict(list)
    for _ in range(rounds):
        for name, call in _codecs().items():
            started = time.perf_counter()
            for _ in range(CALLS):
                call()
            samples[name].append(1e6 * (time.perf_counter() - started) / CALLS)
    yield from _table(("1 MB message", "by", "µs, median (range)"), ((*name, _told(samples[name])) for name in samples))


def _codecs() -> dict[tuple[str, ...], Callable[[], object]]:
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
    scenario = Scenario.decode(dict(SCENARIO))
    present = [name for name in ("local", "docker") if create_engine(name).missing_requirement() is None]
    steps: Samples = defaultdict(list)
    times: Samples = defaultdict(list)
    predicted: dict[tuple[str, ...], float] = {}
    for number in range(1, rounds + 1):
        for engine in present:
            sys.stderr.write(f"round {number}/{rounds}, engine {engine}\n")
            with tempfile.TemporaryDirectory(prefix="ensayo-bench-") as runs:
                watch = Stopwatch()
                done = run_scenario(
                    ScenarioSource(scenario, "", ""), EngineChoice(create_engine(engine), "bench"), Path(runs), watch
                )
                for plan, step_s in _measured(done.folder):
                    key = engine, plan.label, str(plan.workers)
                    steps[key].append(1e3 * step_s)
                    predicted[key] = 1e3 * plan.predicted.step_s
            times[engine, "start to first step"].append(watch.to_first_step_s)
            times[engine, "last step to all removed"].append(median(watch.to_removed_s))
    head = ("engine", "strategy", "workers", "predicted ms", "measured ms, median (range)", "measured / predicted")
    yield from _table(head, (_step_row(key, predicted[key], steps[key]) for key in sorted(steps)))
    yield ""
    yield from _table(("engine", "", "s, median (range)"), ((*key, _told(times[key])) for key in sorted(times)))


def _measured(folder: Path) -> Iterator[tuple[Plan, float]]:
    """Each trial and the median of its steps in seconds; the first step opens streams and is left out."""
    for home in sorted((folder / "trials").iterdir()):
        plan = Plan.model_validate_json((home / "plan.json").read_bytes())
        values = [
            event["value"]
            for event in LogTail(home / "logs" / "worker-0.log").read_new_events()
            if event["key"] == "node_steps"
        ]
        rows = [dict(zip(value["columns"], row, strict=True)) for value in values for row in value["rows"]]
        yield plan, median(row["step_s"] for row in rows if row["step"])


def _step_row(key: tuple[str, ...], predicted: float, measured: list[float]) -> tuple[str, ...]:
    return (*key, f"{predicted:.1f}", _told(measured), f"{median(measured) / predicted:.3f}")


def _told(samples: list[float]) -> str:
    return f"{median(samples):.3g} ({min(samples):.3g} - {max(samples):.3g})"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Lines of Markdown."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    main()
