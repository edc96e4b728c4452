"""Rows `parallel` and `containers`: ten runs at once, and 64 nodes in one trial."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from benchmarks.endurance.leftovers import EngineTotals, RunPlace, count_engine_totals, list_leftover_lines, open_place
from benchmarks.endurance.row import ResultLine, RowContext
from benchmarks.endurance.runs import make_scenario, start_run, wait_for_end
from benchmarks.endurance.trial_results import count_texts, list_run_results

RUN_COUNT, NODE_COUNT = 10, 64
TIMEOUTS = {"start": "10min"}  # a minute is too short for as many containers on two cores
# A step of one second leaves two cores the time for all messages of a ring of as many nodes.
SLOW_WORKER = {"throughput": "10/s", "uplink": "100mbit", "downlink": "100mbit"}
SAMPLES_PER_WORKER = 10
UNLIMITED_TOTALS = ("descriptors", "engine_memory_mb")  # of the engine's own program


@dataclass(frozen=True)
class EngineState:
    """What a Docker engine has at a moment."""

    totals: EngineTotals
    packet_filter_rules: tuple[str, ...]

    @classmethod
    def read(cls, place: RunPlace) -> Self:
        """Return what the engine of a place has now."""
        engine = place.require_engine()
        return cls(count_engine_totals(engine), tuple(engine.list_packet_filter_rules()))


def make_parallel_scenario(number: int) -> dict[str, Any]:
    """Return the scenario of one of the runs at once."""
    return make_scenario(f"parallel-{number}", 2, timeouts=TIMEOUTS)


def make_containers_scenario() -> dict[str, Any]:
    """Return the scenario with `NODE_COUNT` nodes: workers and a coordinator."""
    workers = NODE_COUNT - 1
    cluster = {"workers": workers, "worker": SLOW_WORKER}
    limits = {"round_trip": "20ms"}  # as many nodes on two cores answer late; the row is not about times
    scenario = make_scenario(
        "containers", workers, cluster=cluster, dilation="auto", timeouts=TIMEOUTS, fidelity=limits
    )
    scenario["workload"]["batch"] = SAMPLES_PER_WORKER * workers
    return scenario


def measure_parallel_runs(context: RowContext) -> Iterator[ResultLine]:
    """Start all runs at the same moment, and yield their results and what they left."""
    with open_place(context.folder, has_containers=True) as place:
        before = EngineState.read(place)
        scenarios = [make_parallel_scenario(number) for number in range(RUN_COUNT)]
        processes = [start_run(place, "docker", scenario) for scenario in scenarios]
        for process in processes:
            wait_for_end(process)
        results = list_run_results(place.runs_folder)
        yield ResultLine(what="results of the runs", result=count_texts(results))
        yield ResultLine(
            what="runs that ended with a result",
            result=f"{len(results)}",
            limit=f"{RUN_COUNT}",
            is_met=len(results) == RUN_COUNT,
        )
        subnets = list(_read_subnets(place))
        is_unique = len(set(subnets)) == len(subnets)
        yield ResultLine(
            what="different subnets", result=f"{len(set(subnets))}", limit=f"{len(subnets)}", is_met=is_unique
        )
        yield from _list_remaining(place, before)


def measure_containers(context: RowContext) -> Iterator[ResultLine]:
    """Run one trial with as many nodes, each in a container, and yield its result and what it left."""
    with open_place(context.folder, has_containers=True) as place:
        before = EngineState.read(place)
        scenario = make_containers_scenario()
        exit_code = wait_for_end(start_run(place, "docker", scenario))
        results = list_run_results(place.runs_folder)
        message = count_texts(results) if results else place.output.read_text().strip().splitlines()[-1]
        is_met = results in (["valid"], ["degraded"], ["invalid"])
        yield ResultLine(what="result of the run", result=message, limit="a verdict", is_met=is_met)
        yield ResultLine(what="exit code", result=f"{exit_code:d}")
        yield from _list_remaining(place, before)


def _read_subnets(place: RunPlace) -> Iterator[str]:
    """Yield the data and the control subnet of each run."""
    for path in place.runs_folder.glob("*/*Z-*/trials/*/plan.json"):
        addresses = json.loads(path.read_text())["nodes"][0]["addresses"]
        yield from (addresses[network]["host"].rpartition(".")[0] for network in ("data", "control"))


def _list_remaining(place: RunPlace, before: EngineState) -> Iterator[ResultLine]:
    """Yield what is left of the runs, and what the engine has more than before."""
    yield from list_leftover_lines(place)
    after = EngineState.read(place)
    for name, count in after.totals:
        earlier = getattr(before.totals, name)
        is_limited = name not in UNLIMITED_TOTALS
        yield ResultLine(
            what=f"{name.replace('_', ' ')} before and after",
            result=f"{earlier:g} → {count:g}",
            limit="no growth" if is_limited else "–",
            is_met=not is_limited or count <= earlier,
        )
    if added_rules := Counter(after.packet_filter_rules) - Counter(before.packet_filter_rules):
        yield ResultLine(what="rules that were not there before", result=f"`{'; '.join(added_rules.elements())}`")
