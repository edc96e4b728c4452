"""Rows of the benchmark: their trials and limits."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "scripts"
MIB = 1 << 20
GLOO = {"gloo": {"kind": "command"}}

Trial = Mapping[str, Any]  # of summary.json, and the text of plan.json as `plan`


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the table: what it measures, and the limit of its median over rounds."""

    group: str  # rows of a group are selected together
    description: str
    at_most: float | None = None
    at_least: float | None = None
    engine: str = "docker"  # that runs the trials


@dataclass(frozen=True, kw_only=True)
class TrialRow(Row):
    """Row whose value is computed from trials: scenarios that are run in turns, and the value of each round."""

    scenarios: tuple[dict[str, Any], ...]  # all of one round, in order
    value: Callable[[list[Trial]], float]  # of the trials of a round


def all_trial_rows() -> Iterator[TrialRow]:
    """Yield all rows whose values are computed from trials."""
    yield from _closed_form_rows()
    yield from _pacing_rows()
    yield _dilation_row()
    yield from _process_group_rows()


def _closed_form_rows() -> Iterator[TrialRow]:
    for workers, size in ((2, MIB), (2, 4 * MIB), (4, MIB), (4, 4 * MIB)):
        scenario = _scenario(f"all_reduce.py {size} 12", workers, {"uplink": "100mbit", "downlink": "100mbit"}, GLOO)
        description = f"all-reduce of {size // MIB} MiB by gloo, {workers} ranks, 100 Mbit/s: time / closed form"
        yield TrialRow(
            group="closed-form",
            description=description,
            scenarios=(scenario,),
            value=_collective_over_prediction,
            at_most=1.05,
        )


def _pacing_rows() -> Iterator[TrialRow]:
    for name, rate, script, step, limit in (
        ("compute-bound", "1gbit", "perceptron.py 128 25 25", "5/s", 1.01),
        ("overlapped, several buckets", "200mbit", "perceptron.py 640 25 0.3", "5/s", 1.06),
        ("communication-bound", "50mbit", "perceptron.py 640 20 25", "10/s", 1.08),
    ):
        worker = {"uplink": rate, "downlink": rate, "throughput": step}
        description = f"paced step, {name}: 4 ranks, {rate}: time / prediction"
        yield TrialRow(
            group="pacing",
            description=description,
            scenarios=(_scenario(script, 4, worker, GLOO),),
            value=_step_over_prediction,
            at_most=limit,
        )


def _dilation_row() -> TrialRow:
    worker = {"uplink": "200mbit", "downlink": "200mbit", "throughput": "5/s"}
    scenarios = (
        _scenario("perceptron.py 640 20 0.3", 4, worker, GLOO, dilation=2),
        _scenario("perceptron.py 640 20 0.3", 4, worker, GLOO, dilation=4),
    )
    return TrialRow(
        group="dilation",
        description="step at dilation 4 / step at dilation 2",
        scenarios=scenarios,
        value=_second_step_over_first,
        at_most=1.03,
    )


def _process_group_rows() -> Iterator[TrialRow]:
    for rate, dilation, rounds in (("100mbit", 1, 12), ("1gbit", 4, 20)):
        for workers in (2, 4, 8):
            link = {"uplink": rate, "downlink": rate}
            yield _process_group_row(4 * MIB, workers, link, rate, dilation, rounds, "ring", at_least=1.0)
    for workers in (2, 4, 8):
        link = {"uplink": "1gbit", "downlink": "1gbit", "delay": "2500us"}  # of the access link; 5 ms from node to node
        yield _process_group_row(MIB, workers, link, "1gbit, 5 ms one way", 4, 20, "auto", at_least=1.3)


def _process_group_row(
    size: int,
    workers: int,
    link: Mapping[str, Any],
    link_text: str,
    dilation: int,
    rounds: int,
    collective: str,
    at_least: float,
) -> TrialRow:
    ensayo = {"ensayo": {"kind": "command", "process_group": "ensayo", "collective": {"kind": collective}}}
    scenarios = tuple(
        _scenario(f"all_reduce.py {size} {rounds}", workers, link, strategy, dilation=dilation)
        for strategy in (GLOO, ensayo)
    )
    description = (
        f"all-reduce of {size // MIB} MiB, {workers} ranks, {link_text}: time of gloo / time of Ensayo's {collective}"
    )
    return TrialRow(
        group="process-group",
        description=description,
        scenarios=scenarios,
        value=_first_collective_over_second,
        at_least=at_least,
    )


def _scenario(
    command: str, workers: int, worker: Mapping[str, Any], strategies: Mapping[str, Any], dilation: int = 1
) -> dict[str, Any]:
    return {
        "name": "command-benchmark",
        "workload": {"kind": "command", "command": f"python {command}", "folder": str(SCRIPTS)},
        "cluster": {"workers": workers, "worker": {"memory": "1GiB", **worker}},
        "strategies": strategies,
        "dilation": dilation,
        "baseline": False,
        "attempts": 1,
    }


def _collective_over_prediction(trials: list[Trial]) -> float:
    (collective,) = trials[0]["collectives"]
    return float(collective["median_s"] / collective["predicted_s"])


def _step_over_prediction(trials: list[Trial]) -> float:
    return float(trials[0]["step_seconds"]["p50"] / trials[0]["predicted_step_seconds"])


def _second_step_over_first(trials: list[Trial]) -> float:
    first, second = (float(trial["step_seconds"]["p50"]) for trial in trials)
    return second / first


def _first_collective_over_second(trials: list[Trial]) -> float:
    first, second = (float(trial["collectives"][0]["median_s"]) for trial in trials)
    return first / second
