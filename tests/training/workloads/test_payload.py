"""Messages of a declared size: bytes and times are those of the declared model, training is that of the small one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Simulate = Callable[..., Any]

PAYLOAD = "500K x fp32"  # 2 MB; the trained model has 450 parameters
MODEL = {"kind": "mlp", "hidden": [64]}
RING = {"kind": "all_reduce", "collective": {"kind": "ring"}}
FP16 = {"compress": {"kind": "fp16"}}
SYNCHRONOUS: dict[str, dict[str, Any]] = {
    "ring": RING,
    "ring, fp16": RING | FP16,
    "tree": {"kind": "all_reduce", "collective": {"kind": "tree"}},
    "double tree": {"kind": "all_reduce", "collective": {"kind": "double_tree"}},
    "halving and doubling": {"kind": "all_reduce", "collective": {"kind": "halving_doubling"}},
    "hierarchical": {"kind": "all_reduce", "collective": {"kind": "hierarchical", "groups": [[0, 1], [2, 3]]}},
    "one server": {"kind": "parameter_server"},
    "one server, fp16": {"kind": "parameter_server"} | FP16,
    "two servers": {"kind": "parameter_server", "servers": 2},
    "shards on workers": {"kind": "parameter_server", "placement": {"kind": "colocated"}},
    "local sgd": {"kind": "local_sgd", "period": 7},
    "elastic": {"kind": "easgd", "period": 3, "synchrony": {"kind": "bsp"}},
    "switch": {
        "kind": "strategy_switch",
        "before": {"kind": "parameter_server", "servers": 2},
        "after": RING,
        "when": {"kind": "at", "fraction": 0.5},
    },
}
STRATEGIES = SYNCHRONOUS | {"asynchronous server": {"kind": "parameter_server", "synchrony": {"kind": "asp"}}}
LONG_PAYLOAD = "25.6M x fp32"  # 102 MB
TIMED = SYNCHRONOUS | {"local sgd": {"kind": "local_sgd", "period": 2}}
# No closed form describes a switch, elastic averaging in a run of two exchanges, or a short vector on a double tree.
SHORT_CASES = [(name, PAYLOAD) for name in TIMED if name not in ("switch", "elastic", "double tree")]
TIMED_CASES = [
    pytest.param(TIMED[name], payload, id=f"{name}, {payload}")
    for name, payload in (*SHORT_CASES, *((name, LONG_PAYLOAD) for name in ("ring", "double tree", "two servers")))
]
LINKS = {"uplink": "1gbit", "downlink": "1gbit"}
CLUSTER = {"worker": {"throughput": "1000/s", **LINKS}, "server": LINKS}


@pytest.fixture
def simulate_payload(simulate: Simulate) -> Simulate:
    """Simulate a strategy on four workers with 1 Gbit/s links and the small model."""

    def run(strategy: dict[str, Any], payload: str | None = PAYLOAD, **changes: Any) -> Any:
        return simulate(strategy, 4, **{"model": MODEL, "cluster": CLUSTER, "payload": payload} | changes)

    return run


def sent_bytes(trial: Any) -> dict[str, int]:
    nodes = [node.name for node in trial.plan.nodes if node.role != "coordinator"]
    return {node: trial.value(node, "node_stop")["payload_bytes_sent"] for node in nodes}


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_every_node_sends_the_bytes_of_the_declared_model(simulate_payload: Simulate, strategy: dict[str, Any]) -> None:
    """The declared size is meant for the whole vector: rounding to entries and messages must not add up."""
    trial, small = simulate_payload(strategy), simulate_payload(strategy, payload=None)
    scale = 500_000 / 450

    assert trial.plan.payload.scale == scale
    for node, small_bytes in sent_bytes(small).items():
        assert sent_bytes(trial)[node] == pytest.approx(small_bytes * scale, rel=0.01)
        assert trial.plan.bytes_per_step[node] == pytest.approx(small.plan.bytes_per_step[node] * scale)


@pytest.mark.parametrize("strategy", SYNCHRONOUS.values(), ids=SYNCHRONOUS)
def test_training_results_do_not_depend_on_the_declared_size(
    simulate_payload: Simulate, strategy: dict[str, Any]
) -> None:
    """Padding is never summed, and pieces of other lengths do not change the order of sums."""
    trial, small = simulate_payload(strategy), simulate_payload(strategy, payload=None)

    assert trial.params.tobytes() == small.params.tobytes()
    assert [row["loss"] for row in trial.steps(0)] == [row["loss"] for row in small.steps(0)]


@pytest.mark.parametrize(("strategy", "payload"), TIMED_CASES)
def test_step_times_are_those_of_the_declared_model(
    simulate_payload: Simulate, strategy: dict[str, Any], payload: str
) -> None:
    """The closed forms use the declared size; on links of 1 Gbit/s the exchange takes most of a step."""
    model = MODEL if payload == PAYLOAD else {"kind": "mlp", "hidden": [512]}  # longer messages need more entries
    trial = simulate_payload(strategy, payload, model=model, epochs=2, batch=40)

    mean_s = np.mean([row["step_s"] for rank in range(4) for row in trial.steps(rank)])

    predicted = trial.plan.predicted
    assert not predicted.inapplicable_reason
    assert predicted.exchange_s > 0.5 * predicted.step_s
    assert mean_s == pytest.approx(predicted.step_s, rel=0.05)


def test_messages_of_a_long_declared_vector_are_few(simulate_payload: Simulate) -> None:
    """The time on the host depends on the number of messages: it must not grow with the declared size for ever."""
    trial = simulate_payload(RING, "500M x fp32", model={"kind": "mlp", "hidden": [2048]}, epochs=1, batch=40)

    stop = trial.value("worker-0", "node_stop")
    assert stop["payload_bytes_sent"] == pytest.approx(2 * 2 * 3 / 4 * 2e9, rel=0.01), "two steps"
    assert stop["messages_sent"] < 2 * 2 * 2100
