"""Rows of the benchmark: their trials and limits."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.commands.cases import Trial, TrialRow
from compose.scenario_files.load import find_scenario
from services.plan import Plan, decode_plan
from services.runtime.pacing import FORWARD_SHARE
from services.strategies import AllReduce

SCRIPTS = Path(__file__).parent / "scripts"
VIRTUAL_TIME_ENGINE, CONTAINER_ENGINE = "simulated", "docker"
WORKERS, SAMPLES_PER_WORKER, STEPS = 4, 32, 16
SIDE, HIDDEN_LAYERS, OUTPUTS = 256, 8, 10  # 529,000 parameters: 2.1 MB, 263 kB per hidden layer
WORKER = {"throughput": "160/s", "uplink": "200mbit", "downlink": "200mbit"}  # 200 ms per step, 133 ms of them backward
TRAIN_SHARE = 0.8  # of the samples of the dataset
LAYERS_OF_BUCKETS = {"260kB": 1, "520kB": 2, "1050kB": 4}  # size of a bucket -> hidden layers in it
BUCKET_SIZE_BESIDE_DDP = "520kB"
MIB = 1 << 20
BYTES_PER_KB = 1000
DDP_DILATION = 2  # of both frameworks: four processes of PyTorch compute on the cores of one host
MAX_OVER_BOUND, MAX_OVER_ORDER, MAX_OVER_DDP = 1.05, 0.85, 1.02


def all_rows(engine: str) -> Iterator[TrialRow]:
    """Yield all rows that an engine can measure."""
    yield from _bound_rows(engine)
    yield _priority_row(engine)
    if engine == CONTAINER_ENGINE:
        yield ddp_row()


def _bound_rows(engine: str) -> Iterator[TrialRow]:
    for size, layers in LAYERS_OF_BUCKETS.items():
        yield TrialRow(
            group="bound",
            description=f"step with buckets of {size} ({layers} of {HIDDEN_LAYERS} layers) / "
            "(t_f + max(t_b, T) + T(last bucket))",
            engine=engine,
            scenarios=(_perceptron_scenario(size),),
            value=_step_over_bound,
            at_most=MAX_OVER_BOUND,
        )


def _priority_row(engine: str) -> TrialRow:
    return TrialRow(
        group="priority",
        description="scenario `priority`: step with priority / step with buckets of the same size",
        engine=engine,
        scenarios=(_priority_scenario("buckets"), _priority_scenario("priority")),
        value=_second_step_over_first,
        at_most=MAX_OVER_ORDER,
    )


def ddp_row() -> TrialRow:
    """Return the row that compares a step with one of PyTorch's DistributedDataParallel."""
    size = BUCKET_SIZE_BESIDE_DDP
    return TrialRow(
        group="ddp",
        description=f"step with buckets of {size} / step of PyTorch DDP (gloo), same model, batch and links",
        engine=CONTAINER_ENGINE,
        scenarios=(_ddp_scenario(size), _perceptron_scenario(size, dilation=DDP_DILATION)),
        value=_second_step_over_first,
        at_most=MAX_OVER_DDP,
    )


def _perceptron_scenario(bucket_size: str, dilation: int | str = "auto") -> dict[str, Any]:
    batch = WORKERS * SAMPLES_PER_WORKER
    dataset = {"kind": "synthetic_regression", "features": SIDE, "outputs": OUTPUTS}
    return {
        "name": "overlap-benchmark",
        "workload": {
            "dataset": dataset | {"samples": round(STEPS * batch / TRAIN_SHARE)},
            "model": {"kind": "mlp", "hidden": [SIDE] * HIDDEN_LAYERS},
            "optimiser": {"kind": "sgd", "rate": 0.01},
            "batch": batch,
            "epochs": 1,
            "stop": "budget",
        },
        "strategies": {"buckets": {"kind": "all_reduce", "overlap": {"kind": "buckets", "bucket_size": bucket_size}}},
        **_trial_keys(dilation),
    }


def _ddp_scenario(bucket_size: str) -> dict[str, Any]:
    bucket_mb = float(bucket_size.removesuffix("kB")) * BYTES_PER_KB / MIB
    arguments = (SIDE, HIDDEN_LAYERS, OUTPUTS, SAMPLES_PER_WORKER, STEPS, f"{bucket_mb:.4f}")
    return {
        "name": "overlap-benchmark-ddp",
        "workload": {
            "kind": "command",
            "command": f"python perceptron_ddp.py {' '.join(map(str, arguments))}",
            "folder": str(SCRIPTS),
            "batch_per_worker": SAMPLES_PER_WORKER,
            "environment": {"OMP_NUM_THREADS": "1"},
        },
        "strategies": {"ddp": {"kind": "command"}},
        **_trial_keys(DDP_DILATION),
    }


def _trial_keys(dilation: int | str) -> dict[str, Any]:
    cluster = {"workers": WORKERS, "worker": {**WORKER, "memory": "1GiB"}}
    return {"cluster": cluster, "dilation": dilation, "baseline": False, "attempts": 1}


def _priority_scenario(strategy: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(find_scenario("priority").read_text(encoding="utf-8"))
    document["workload"]["epochs"] = 2
    del document["sweep"]
    return document | {"strategies": {strategy: document["strategies"][strategy]}, "attempts": 1}


def _step_over_bound(trials: list[Trial]) -> float:
    (trial,) = trials
    return float(trial["typical_step_seconds"]) / overlap_bound_s(decode_plan(trial["plan"]))


def overlap_bound_s(plan: Plan) -> float:
    """Return t_f + max(t_b, T) + T(last bucket), the time of a step whose exchange is hidden as far as possible.

    t_f and t_b are the times of the forward and the backward pass, T is that of an exchange of the whole gradient
    after the backward pass. If all buckets have equal shares of operations and bytes, the closed form of a step with
    buckets is this sum, too.
    """
    (*_, last_bucket) = plan.strategy.training_phases().first.describe_worker_exchange().gradient_buckets
    forward_s = FORWARD_SHARE * plan.predicted.compute_s
    backward_s = plan.predicted.compute_s - forward_s
    exchange_s = _predict_exchange_s(plan, plan.parameters)
    return forward_s + max(backward_s, exchange_s) + _predict_exchange_s(plan, last_bucket.vector_range.size)


def _predict_exchange_s(plan: Plan, entries: int) -> float:
    """Return the predicted seconds in which the ring sums a vector with this number of entries."""
    cost_model = plan.step_cost_model.model_copy(update={"entries": entries})
    return AllReduce().predict_averaging_step_time(cost_model, 1).exchange_s


def _second_step_over_first(trials: list[Trial]) -> float:
    first, second = (float(_typical_step_s(trial)) for trial in trials)
    return second / first


def _typical_step_s(trial: Mapping[str, Any]) -> float:
    return float(trial["typical_step_seconds"])
