"""Training of one worker in virtual time, until it reaches its target."""

import json
from typing import Any

from services.cluster.addresses import DummyAddresses
from services.node.simulate import simulate_trial
from services.plan import COORDINATOR
from services.plan.training.make_training_plan import make_training_plan
from services.runtime.run_log import LOG_LINE_PREFIX
from services.scenario.scenario import Scenario
from services.scenario.workload import Workload


def samples_to_target_of_one_worker(workload: Workload, seed: int) -> int | None:
    """Return the samples at the first evaluation that reached the target; None if none did.

    The strategy is `none`: the worker exchanges nothing. Speeds have no effect on the result.
    """
    scenario = Scenario.decode(
        {
            "name": "reference",
            "workload": workload.model_dump(mode="json"),
            "cluster": {"worker": {"throughput": "1000/s"}},
            "strategies": {"none": {"kind": "none"}},
            "baseline": False,
            "seed": seed,
        }
    )
    (trial,) = scenario.trials()
    lines: dict[str, list[str]] = {}
    simulate_trial(
        make_training_plan(trial, "reference", "simulated", DummyAddresses()),
        lambda node_name: lines.setdefault(node_name, []).append,
    )
    events = (json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in lines[COORDINATOR])
    evaluations = (event for event in events if event["key"] == "eval_metrics")
    return next((_samples_of(event) for event in evaluations if _reaches_target(workload, event)), None)


def _reaches_target(workload: Workload, evaluation: dict[str, Any]) -> bool:
    return workload.target is not None and workload.target.is_reached(evaluation["value"])


def _samples_of(evaluation: dict[str, Any]) -> int:
    return int(evaluation["metadata"]["samples_count"])
