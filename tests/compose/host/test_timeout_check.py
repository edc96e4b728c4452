"""Trials that their own time limit would end are rejected before they start."""

from typing import Any

import pytest

from compose.engines import create_engine
from compose.runs.run import check_host_capacity
from compose.scenario_files.load import load_scenario
from services.schema.errors import UserError

TRAINING = {
    "dataset": {"kind": "digits"},
    "model": {"kind": "linear"},
    "optimiser": {"kind": "sgd", "rate": 0.1},
    "batch": 64,
    "epochs": 2,
}
SLOW_LINKS = {"throughput": "100/s", "uplink": "1kbit", "downlink": "100mbit"}  # a step takes 20.8 s


def make_document(**changes: Any) -> dict[str, Any]:
    strategies = {"ring": {"kind": "all_reduce", "collective": {"kind": "ring"}}}
    cluster = {"workers": 2, "worker": SLOW_LINKS}
    common = {"name": "slow", "workload": TRAINING, "cluster": cluster, "strategies": strategies}
    return common | {"baseline": False, "timeouts": {"run": "10min"}} | changes


def check(document: dict[str, Any], engine: str) -> None:
    check_host_capacity(load_scenario(document), create_engine(engine))


def test_training_beyond_the_time_limit_is_rejected_with_both_times() -> None:
    """The trial would run for ten minutes, and then fail."""
    expected = (
        r"^timeouts.run: 000-ring-w2-r0 is predicted to train for at least 1,015 s of virtual time, "
        r"longer than timeouts.run \(600s\); "
    )
    with pytest.raises(UserError, match=expected):
        check(make_document(), "local")


@pytest.mark.parametrize(
    "changes",
    [
        {"timeouts": {"run": "1h"}},
        {"events": [{"kind": "link", "at": {"time": "9min"}, "of": ["worker-0"], "uplink": "100mbit"}]},
        {"workload": TRAINING | {"target": {"metric": "accuracy", "at_least": 0.9}, "stop": "target"}},
        {
            "strategies": {
                "switch": {
                    "kind": "strategy_switch",
                    "before": {"kind": "all_reduce"},
                    "after": {"kind": "parameter_server", "synchrony": {"kind": "asp"}},
                    "when": {"kind": "plateau"},
                }
            }
        },
    ],
)
def test_training_that_may_end_in_time_is_accepted(changes: dict[str, Any]) -> None:
    """The plan does not know when a target is reached, when a strategy switches, or how much events save."""
    check(make_document(**changes), "local")


def test_the_engine_simulated_has_no_time_limit() -> None:
    """Its coordinator does not wait in real time; a long training in virtual time takes seconds."""
    check(make_document(), "simulated")
