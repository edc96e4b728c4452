"""Operations per sample, from which a utilisation gives a compute speed: declared, published, or computed."""

from typing import Any

import pytest

from services.cluster.addresses import DummyAddresses
from services.learning.published_models import PUBLISHED_MODELS
from services.plan import Plan, make_plan
from services.scenario.learning_task import learning_task_of
from services.scenario.scenario import Scenario

H100 = {"profile": "h100", "utilisation": 0.4}
LINKS = {"uplink": "1gbit", "downlink": "1gbit"}


def document(worker: dict[str, Any] | None = None, workload: dict[str, Any] | None = None, **cluster: Any) -> Any:
    return {
        "name": "speeds",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "lenet5"},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch": 64,
            **(workload or {}),
        },
        "cluster": {"workers": 2, "worker": LINKS | (H100 if worker is None else worker), **cluster},
        "strategies": {"ring": {"kind": "all_reduce"}},
        "baseline": False,
    }


def plan_of(scenario_document: dict[str, Any], trial_number: int = 0) -> Plan:
    trial = Scenario.decode(scenario_document).trials()[trial_number]
    return make_plan(trial, "run", "simulated", DummyAddresses())


@pytest.mark.parametrize(
    ("workload", "flops", "source"),
    [
        ({}, None, "computed for model lenet5"),
        ({"payload": "resnet-50"}, PUBLISHED_MODELS["resnet-50"].flops_per_sample, "published for resnet-50"),
        ({"payload": "resnet-50", "flops_per_sample": "1GFLOP"}, 1e9, "workload.flops_per_sample"),
        ({"payload": "30.8M x fp32", "flops_per_sample": "1GFLOP"}, 1e9, "workload.flops_per_sample"),
        ({"flops_per_sample": "2.5TFLOP"}, 2.5e12, "workload.flops_per_sample"),
    ],
    ids=["computed", "published", "declared beside a name", "declared beside a number", "declared"],
)
def test_operations_are_declared_or_published_or_computed(
    workload: dict[str, Any], flops: float | None, source: str
) -> None:
    """The plan records the speed and its source: 40 % of 989 TFLOP/s, divided by the operations of a sample."""
    plan = plan_of(document(workload=workload))
    if flops is None:
        flops = 3 * sum(plan.model.forward_flops(learning_task_of(plan.dataset).task).values())

    for node in plan.node_plans_of_role("worker"):
        assert node.throughput == pytest.approx(0.4 * 989e12 / flops)
        assert node.throughput_derivation.endswith(f"per sample ({source})")


def test_a_throughput_is_independent_of_operations() -> None:
    """The declared number is the speed; a payload changes messages only."""
    (worker, *_) = plan_of(document({"throughput": "500/s"}, {"payload": "resnet-50"})).node_plans_of_role("worker")

    assert (worker.throughput, worker.throughput_derivation) == (500.0, "throughput 500/s")


def test_trials_without_a_worker_with_utilisation_need_no_operations() -> None:
    """The baseline trains on worker 0, whose throughput is declared; the operations are those of a group."""
    group = {"name": "shares", "ranks": [1], "profile": "h100", "utilisation": 0.4}
    scenario = document({"throughput": "500/s"}, {"flops_per_sample": "1GFLOP"}, groups=[group]) | {"baseline": True}

    baseline, ring = plan_of(scenario, 0), plan_of(scenario, 1)

    assert [node.throughput for node in baseline.node_plans_of_role("worker")] == [500.0]
    assert [node.throughput for node in ring.node_plans_of_role("worker")] == [500.0, pytest.approx(0.4 * 989e3)]


def test_workers_with_a_utilisation_are_paced() -> None:
    """Virtual time needs the speed of every worker; both sources give one."""
    assert not Scenario.decode(document()).workers_without_throughput
    assert Scenario.decode(document({})).workers_without_throughput == ("worker-0", "worker-1")
