"""The rows about whole runs: events on time, dilation that changes nothing, many nodes up soon."""

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from compose.engines.docker import DockerEngine
from compose.fidelity.lab import Lab, plan_of, trial_of
from compose.fidelity.line import Gate, Line
from compose.supervise import Tail
from services.errors import HostError
from services.plan import Plan

NODES, READY_S = 16, 30.0
LINK = {"uplink": "100mbit", "downlink": "100mbit"}
FAST = {"uplink": "1gbit", "downlink": "1gbit"}
WORKLOAD = {
    "dataset": {"kind": "synthetic_regression", "samples": 3840, "features": 64, "outputs": 10},
    "model": {"kind": "mlp", "hidden": [128, 128]},  # 26 thousand parameters
    "optimiser": {"kind": "sgd", "rate": 0.01},
    "batch_per_worker": 16,
    "epochs": 1,
}
PACED = {"throughput": "800/s"}  # 60 steps of 20 ms
CHANGES = 10
RING = {"ring": {"kind": "all_reduce"}}
ASP = {"ps_asp": {"kind": "parameter_server", "synchrony": {"kind": "asp"}}}
# What this host adds to a message does not grow with the dilation. Steps in which links and devices decide show
# whether anything else depends on it: 340 KB at 100 Mbit/s.
LARGER = WORKLOAD | {"model": {"kind": "mlp", "hidden": [256, 256]}}
DILATIONS = (4, 8)


class Nobody:
    """Looks on and says nothing."""

    def event(self, plan: Plan, event: Mapping[str, Any]) -> None:
        """The coordinator has logged something."""


def start(engine: DockerEngine, rounds: int) -> list[Line]:
    """From the command to nodes whose links are shaped and verified."""
    found = []
    for _ in range(rounds):
        with Lab(plan_of(trial_of({"workers": NODES, "worker": LINK}), engine), engine, proves=True) as lab:
            found.append(lab.ready_s)
    what = f"{NODES} nodes from command to verified network"
    return [Line(what=what, unit="s", declared=0.0, samples=tuple(found), gate=Gate(at_most=READY_S))]


def events(engine: DockerEngine, rounds: int) -> list[Line]:
    """How late changes of links take effect, in wall time."""
    changes = [_change(number) for number in range(CHANGES)]
    trial = trial_of({"workers": 4, "worker": PACED | LINK}, workload=WORKLOAD, events=changes)
    found = []
    for _ in range(rounds):
        plan = plan_of(trial, engine)
        with tempfile.TemporaryDirectory(prefix="ensayo-fidelity-") as name:
            _run(engine, plan, Path(name))
            late_s = [abs(event["lateness_s"]) * plan.dilation for event in _applied(Path(name))]
        if len(late_s) < 2:  # noqa: PLR2004 - percentiles need as many
            raise HostError(f"{len(late_s)} of {2 * CHANGES} changes were applied")
        found.append(1e3 * quantiles(late_s, n=100, method="inclusive")[-1])
    what = "lateness of events at the 99th percentile"
    return [Line(what=what, unit="ms", declared=0.0, samples=tuple(found), gate=Gate(at_most=50.0))]


def _change(number: int) -> dict[str, Any]:
    of = [f"worker-{number % 4}"]
    return {"kind": "link", "at": {"time": f"{200 + 100 * number}ms"}, "lasts": "50ms", "of": of, "uplink": "50mbit"}


def dilation(engine: DockerEngine, rounds: int) -> list[Line]:
    """Virtual step time at twice the dilation over that at the single one."""
    found = []
    for _ in range(rounds):
        single_s, double_s = (_dilated(engine, RING, factor)[0] for factor in DILATIONS)
        found.append(double_s / single_s)
    return [_ratio("ring: step at twice the dilation", found)]


def staleness(engine: DockerEngine, rounds: int) -> list[Line]:
    """The same of a strategy that never waits, whose staleness should be distributed alike too."""
    found = []
    ages: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for _ in range(rounds):
        medians_s = []
        for factor in DILATIONS:
            median_s, stale = _dilated(engine, ASP, factor)
            medians_s.append(median_s)
            ages[factor] += stale
        found.append(medians_s[1] / medians_s[0])
    apart = 100 * _apart(*(ages[factor] for factor in DILATIONS))
    what = "ps_asp: updates of another staleness at twice the dilation, all rounds"
    alike = Line(what=what, unit="%", declared=0.0, samples=(apart,), gate=Gate(at_most=3.0))
    return [_ratio("ps_asp: step at twice the dilation", found), alike]


def _ratio(what: str, found: list[float]) -> Line:
    return Line(what=what, unit="ratio", declared=1.0, samples=tuple(found), gate=Gate(median_off=0.03))


def _dilated(engine: DockerEngine, strategies: Mapping[str, Any], factor: int) -> tuple[float, Counter[int]]:
    """Median virtual step and how many updates had each staleness."""
    cluster = {"workers": 4, "worker": PACED | LINK, "server": FAST}
    trial = trial_of(cluster, workload=LARGER, strategies=strategies, dilation=factor)
    plan = plan_of(trial, engine)
    with tempfile.TemporaryDirectory(prefix="ensayo-fidelity-") as name:
        _run(engine, plan, Path(name))
        rows = [row for rank in range(4) for row in _rows(Path(name), f"worker-{rank}", "node_steps")]
        stale = Counter(row["staleness"] for row in rows if row["staleness"] is not None)
    return median(row["step_s"] for row in rows if row["step"]), stale


def _apart(one: Counter[int], other: Counter[int]) -> float:
    """Share of updates that would have to change their staleness for the two to be the same: total variation."""
    return sum(abs(one[age] / one.total() - other[age] / other.total()) for age in one | other) / 2


def _run(engine: DockerEngine, plan: Plan, folder: Path) -> None:
    """One trial, into a folder that need not stay.

    Raises:
        HostError: it failed.
    """
    (folder / "logs").mkdir()
    (folder / "plan.json").write_text(plan.model_dump_json())
    status = engine.run(plan, folder, Nobody())
    if status.status != "success":
        raise HostError(status.reason)


def _rows(folder: Path, node: str, key: str) -> Iterator[dict[str, Any]]:
    for event in Tail(folder / "logs" / f"{node}.log").events():
        if event["key"] == key:
            batch = event["value"]
            yield from (dict(zip(batch["columns"], row, strict=True)) for row in batch["rows"])


def _applied(folder: Path) -> Iterator[dict[str, Any]]:
    """What the engine says of links, in a file of its own, and what nodes say of themselves."""
    for path in folder.glob("logs/*.log"):
        yield from (event["value"] for event in Tail(path).events() if event["key"] == "event_applied")
    yield from _told(folder / "events.jsonl")


def _told(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines() if path.exists() else ():
        yield json.loads(line)
