"""Problems that only predictions for the trials of a scenario show."""

from typing import Any

import pytest

from compose.scenario_files.load import load_scenario
from compose.scenario_files.problems import ScenarioError

WORKLOAD = {
    "dataset": {"kind": "digits"},
    "model": {"kind": "mlp", "hidden": [512]},
    "optimiser": {"kind": "sgd", "rate": 0.1},
    "batch": 64,
    "epochs": 2,
}
LATE_SLOWDOWN = {"kind": "slowdown", "at": {"time": "10min"}, "of": ["worker-0"], "factor": 2}
SLOWER_LINK = {"kind": "link", "at": {"time": "1s"}, "of": ["worker-1"], "uplink": "1mbit"}


def document(worker: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """Return a scenario whose training takes a few seconds of virtual time."""
    cluster = {"workers": 2, "worker": {"throughput": "1000/s", "uplink": "100mbit"} | (worker or {})}
    strategies = {"ring": {"kind": "all_reduce", "collective": {"kind": "ring"}}}
    common = {"name": "any", "workload": WORKLOAD, "cluster": cluster, "strategies": strategies, "baseline": False}
    return common | keys


def test_an_event_that_would_never_occur_is_rejected() -> None:
    """Training ends within about ten seconds; a trial would run to its end before its report could show it."""
    expected = r"events.0.at.time: the event would never occur: training ends within \d+ s, even if it takes ten times"
    with pytest.raises(ScenarioError, match=expected):
        load_scenario(document(events=[LATE_SLOWDOWN]))


@pytest.mark.parametrize(
    "keys",
    [
        {"events": [LATE_SLOWDOWN | {"at": {"time": "5s"}}]},
        {"events": [LATE_SLOWDOWN | {"factor": 300}]},
        {"events": [SLOWER_LINK, LATE_SLOWDOWN]},
        {"events": [SLOWER_LINK | {"uplink": "90mbit", "delay": "1s"}, LATE_SLOWDOWN]},
        {"events": [{"kind": "pause", "at": {"time": "1s"}, "of": ["worker-1"], "lasts": "10min"}, LATE_SLOWDOWN]},
        {"events": [LATE_SLOWDOWN], "sweep": {"workload.epochs": [2, 200]}},
    ],
    ids=["early", "strong slowdown", "slower link", "longer delay", "pause", "occurs in a longer trial"],
)
def test_an_event_is_accepted_if_training_may_last_until_then(keys: dict[str, Any]) -> None:
    """Other events can make training longer than predicted; an event only has to occur in one of the trials."""
    assert load_scenario(document(**keys)).events


def test_an_event_is_accepted_if_no_duration_can_be_predicted() -> None:
    """The compute time of workers without a throughput depends on the host."""
    delay = {"kind": "link", "at": {"time": "10min"}, "of": ["worker-0"], "delay": "5ms"}
    unpaced = document(cluster={"workers": 2, "worker": {"uplink": "100mbit"}}, events=[delay])

    assert load_scenario(unpaced, engine="local").events


@pytest.mark.parametrize(
    ("worker", "key"), [({"uplink": "1kbit"}, "uplink"), ({"uplink": "1gbit", "downlink": "1kbit"}, "downlink")]
)
@pytest.mark.parametrize(
    "strategy",
    [{"kind": "all_reduce"}, {"kind": "parameter_server"}, {"kind": "local_sgd", "period": 1}],
    ids=lambda strategy: strategy["kind"],
)
def test_a_link_slower_than_the_time_limit_of_a_message_is_rejected(
    worker: dict[str, str], key: str, strategy: dict[str, Any]
) -> None:
    """Every trial would fail after `timeouts.step`: no message could arrive in time."""
    expected = rf"cluster.worker.{key}: worker-\d's {key} needs [\d,]+ s for one message of [\d,]+ bytes, longer than"
    with pytest.raises(ScenarioError, match=expected):
        load_scenario(document(worker, strategies={"any": strategy}))


def test_the_key_of_a_slow_link_is_that_of_its_group() -> None:
    """The group of workers declares the link, not `cluster.worker`."""
    groups = [{"name": "slow", "ranks": [1], "uplink": "1kbit"}]
    cluster = {"workers": 2, "worker": {"throughput": "1000/s", "uplink": "1gbit"}, "groups": groups}

    with pytest.raises(ScenarioError, match=r"cluster.groups.0.uplink: worker-1's uplink needs"):
        load_scenario(document(cluster=cluster))


@pytest.mark.parametrize(
    ("worker", "timeouts"),
    [
        ({"uplink": "5kbit"}, {}),
        ({"uplink": "1kbit"}, {"step": "1h"}),
        ({"uplink": "1kbit", "throughput": "0.1/s"}, {}),
    ],
    ids=["a message takes less", "longer limit", "long compute time, in which messages may arrive"],
)
def test_a_slow_link_is_accepted_if_each_message_may_arrive_in_time(
    worker: dict[str, str], timeouts: dict[str, str]
) -> None:
    """A step may take far longer than the time limit of a message, since vectors are sent in many messages."""
    assert load_scenario(document(worker, timeouts=timeouts))
