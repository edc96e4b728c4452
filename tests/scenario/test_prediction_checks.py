"""Problems that only predictions for the trials of a scenario show."""

from contextlib import nullcontext
from typing import Any

import pytest

from compose.engines import EngineChoice, create_engine
from compose.scenario_files import trial_checks
from compose.scenario_files.load import load_scenario
from compose.scenario_files.problems import ScenarioError, ScenarioProblem
from services.scenario.scenario import Scenario
from services.scenario.sweep import ScenarioDocument
from services.schema.errors import UserError

WORKLOAD = {
    "dataset": {"kind": "digits"},
    "model": {"kind": "mlp", "hidden": [512]},
    "optimiser": {"kind": "sgd", "rate": 0.1},
    "batch": 64,
    "epochs": 2,
}
LATE_SLOWDOWN = {"kind": "slowdown", "at": {"time": "10min"}, "of": ["worker-0"], "factor": 2}
SLOWER_LINK = {"kind": "link", "at": {"time": "1s"}, "of": ["worker-1"], "uplink": "1mbit"}
PAUSE = {"kind": "pause", "at": {"time": "1s"}, "of": ["worker-1"], "lasts": "10min"}
LOSS = {"kind": "independent", "share": 0.01}
JITTER = {"kind": "normal", "deviation": "1ms"}


def document(worker: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """Return a scenario whose training takes a few seconds of virtual time."""
    cluster = {"workers": 2, "worker": {"throughput": "1000/s", "uplink": "100mbit"} | (worker or {})}
    strategies = {"ring": {"kind": "all_reduce", "collective": {"kind": "ring"}}}
    common = {"name": "any", "workload": WORKLOAD, "cluster": cluster, "strategies": strategies, "baseline": False}
    return common | keys


def problems_of(scenario: dict[str, Any], engine: str = "local") -> tuple[ScenarioProblem, ...]:
    """Return all problems of a scenario that is not valid."""
    with pytest.raises(ScenarioError) as raised:
        load_scenario(scenario, engine=engine)
    return raised.value.problems


@pytest.mark.parametrize("engine", ["local", "simulated"])
def test_an_event_after_training_is_rejected_with_the_latest_time(engine: str) -> None:
    """Training ends within about ten seconds; a trial would run to its end before its report could show it."""
    (problem,) = problems_of(document(events=[LATE_SLOWDOWN]), engine)

    assert problem.key == "events.0.at.time"
    assert problem.message.startswith("time 600s is after the end of training, which is expected before ")


def test_the_proposed_latest_time_of_an_event_is_accepted() -> None:
    """A user who follows the message must not get a second one."""
    (problem,) = problems_of(document(events=[LATE_SLOWDOWN]))
    latest = problem.message.partition("write a time of at most ")[2].partition(",")[0]

    assert load_scenario(document(events=[LATE_SLOWDOWN | {"at": {"time": latest}}]), engine="local").events


@pytest.mark.parametrize(
    "event",
    [PAUSE | {"at": {"time": "10min"}, "lasts": "5min"}, LATE_SLOWDOWN | {"factor": 300}]
    + [SLOWER_LINK | {"at": {"time": "10min"}} | change for change in ({}, {"delay": "1s"})],
    ids=["pause", "strong slowdown", "slower link", "longer delay"],
)
def test_the_effect_of_an_event_does_not_excuse_its_own_time(event: dict[str, Any]) -> None:
    """An event delays the end of training only after it has begun."""
    (problem,) = problems_of(document(events=[event]))

    assert problem.key == "events.0.at.time"


@pytest.mark.parametrize("other_time", ["9min", "11min"])
def test_two_late_events_do_not_excuse_each_other(other_time: str) -> None:
    """Neither begins, so neither delays the end of training until the other one."""
    other = PAUSE | {"at": {"time": other_time}}

    problems = problems_of(document(events=[other, LATE_SLOWDOWN]))

    assert [problem.key for problem in problems] == ["events.0.at.time", "events.1.at.time"]


@pytest.mark.parametrize(
    "keys",
    [
        {"events": [LATE_SLOWDOWN | {"at": {"time": "5s"}}]},
        {"events": [LATE_SLOWDOWN | {"at": {"time": "1s"}, "factor": 300}, LATE_SLOWDOWN]},
        {"events": [LATE_SLOWDOWN | {"at": {"share": 0.5}, "factor": 300}, LATE_SLOWDOWN]},
        {"events": [SLOWER_LINK, LATE_SLOWDOWN]},
        {"events": [SLOWER_LINK | {"uplink": "90mbit", "delay": "1s"}, LATE_SLOWDOWN]},
        {"events": [LATE_SLOWDOWN, PAUSE]},
        {"events": [LATE_SLOWDOWN], "sweep": {"workload.epochs": [2, 200]}},
    ],
    ids=[
        "early",
        "slowdown",
        "slowdown at a share",
        "slower link",
        "longer delay",
        "pause",
        "in a longer trial",
    ],
)
def test_an_event_is_accepted_if_training_may_last_until_then(keys: dict[str, Any]) -> None:
    """Other events can make training longer than predicted; an event only has to occur in one of the trials."""
    assert load_scenario(document(**keys), engine="local").events


@pytest.mark.parametrize(
    ("worker", "engine"),
    [
        ({"loss": LOSS}, "simulated"),
        ({"delay": "5ms", "jitter": JITTER}, "simulated"),
        ({"uplink": None}, "local"),
        ({"uplink": None}, "docker"),
        ({"throughput": None}, "local"),
    ],
    ids=["losses", "jitter", "unlimited link of a process", "unlimited link of a container", "host computes"],
)
def test_an_event_is_accepted_if_no_duration_can_be_predicted(worker: dict[str, Any], engine: str) -> None:
    """Predictions contain neither retransmissions and late packets nor the time that this host takes."""
    delay = {"kind": "link", "at": {"time": "10min"}, "of": ["worker-0"], "delay": "5ms"}

    assert load_scenario(document(worker, events=[delay]), engine=engine).events


def test_in_virtual_time_an_unlimited_link_does_not_delay_training() -> None:
    """The engine `simulated` adds no time of the host, so the prediction holds."""
    assert problems_of(document({"uplink": None}, events=[LATE_SLOWDOWN]), "simulated")


def test_each_swept_time_of_an_event_is_checked() -> None:
    """One of the swept times may lie within training; the event at the other time would still never begin."""
    swept = document(events=[LATE_SLOWDOWN], sweep={"events.0.at.time": ["1s", "10h"]})

    (problem,) = problems_of(swept)

    assert problem.message.startswith("time 10h is after the end of training")


@pytest.mark.parametrize(
    ("worker", "key"), [({"uplink": "1kbit"}, "uplink"), ({"uplink": "1gbit", "downlink": "1kbit"}, "downlink")]
)
@pytest.mark.parametrize(
    "strategy",
    [{"kind": "all_reduce"}, {"kind": "parameter_server"}, {"kind": "local_sgd", "period": 1}],
    ids=lambda strategy: strategy["kind"],
)
@pytest.mark.parametrize("engine", ["docker", "local", "simulated"])
def test_a_link_slower_than_the_time_limit_of_a_message_is_rejected(
    worker: dict[str, str], key: str, strategy: dict[str, Any], engine: str
) -> None:
    """Every trial would fail after `timeouts.step`: no message could arrive in time."""
    (problem,) = problems_of(document(worker, strategies={"any": strategy}), engine)

    assert problem.key == f"cluster.worker.{key}"
    assert problem.message.startswith("strategy any: worker-")
    assert "(from timeouts.step: 60s); declare a rate of at least " in problem.message


def test_a_message_of_a_declared_payload_counts_with_its_declared_size() -> None:
    """Between containers, a piece of a large vector has 1 MiB: at 100 kbit/s it takes 87 s, longer than nodes wait."""
    slow = document({"uplink": "100kbit", "downlink": "1gbit"})
    with_payload = slow | {"workload": slow["workload"] | {"payload": "resnet-50"}}

    assert load_scenario(slow, engine="docker")
    (problem,) = problems_of(with_payload, "docker")
    assert problem.key == "cluster.worker.uplink"
    assert "needs 87 s to transfer one message of" in problem.message


def test_a_link_is_rejected_only_for_engines_whose_messages_are_too_long_for_it() -> None:
    """Between containers, a chunk of 77 kB is one message; other engines cut it into messages of 16 KiB."""
    slow = document({"uplink": "5kbit"})

    assert load_scenario(slow, engine="local")
    assert load_scenario(slow, engine="simulated")
    assert load_scenario(slow | {"engine": "local"})
    assert [problem.key for problem in problems_of(slow, "docker")] == ["cluster.worker.uplink"]


@pytest.mark.parametrize(("engine", "is_valid"), [("docker", False), ("local", True)])
def test_without_a_named_engine_links_are_checked_for_the_default_engine_of_this_host(
    engine: str, is_valid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line chooses the same engine when it runs the scenario."""
    choice = EngineChoice(create_engine(engine), "default")
    monkeypatch.setattr(trial_checks, "choose_engine", lambda _: choice)

    with nullcontext() if is_valid else pytest.raises(ScenarioError, match="needs 129 s to transfer one message"):
        load_scenario(document({"uplink": "5kbit"}))


def test_an_unknown_engine_is_rejected_with_the_engines_that_exist() -> None:
    """The length of messages depends on the engine, so an unknown one can't be checked."""
    with pytest.raises(UserError, match="unknown engine 'dokcer'; choose one of docker, local, simulated"):
        load_scenario(document({"uplink": "5kbit"}), engine="dokcer")


@pytest.mark.parametrize("engine", ["docker", "local", "simulated"])
def test_the_proposed_rate_of_a_slow_link_is_accepted(engine: str) -> None:
    """A user who follows the message must not get a second one."""
    (problem,) = problems_of(document({"uplink": "500bit"}), engine)
    rate = problem.message.partition("declare a rate of at least ")[2].partition(",")[0]

    assert load_scenario(document({"uplink": rate}), engine=engine)


def test_the_key_of_a_slow_link_is_that_of_its_group() -> None:
    """The second group of workers declares the link, not `cluster.worker`; the first group keeps its uplink."""
    groups = [{"name": "far", "ranks": [0], "speed": 2.0}, {"name": "slow", "ranks": [1], "uplink": "1kbit"}]
    cluster = {"workers": 2, "worker": {"throughput": "1000/s", "uplink": "1gbit"}, "groups": groups}

    (problem,) = problems_of(document(cluster=cluster))

    assert problem.key == "cluster.groups.1.uplink"
    assert problem.message.startswith("strategy ring: worker-1's uplink needs ")


@pytest.mark.parametrize(
    ("part", "key", "name"),
    [
        ({"network": {"kind": "racks", "size": 1, "uplink": "1kbit"}}, "cluster.network", "link rack-"),
        (
            {
                "links": [
                    {"nodes": ["worker-2", "worker-3"], "delay": "1ms"},
                    {"nodes": ["worker-0", "worker-1"], "rate": "1kbit"},
                ]
            },
            "cluster.links.1",
            "link worker-",
        ),
        ({"server": {"uplink": "1kbit"}}, "cluster.server.uplink", "server-0's uplink"),
    ],
    ids=["shared", "pair", "server"],
)
def test_the_key_of_a_slow_link_is_where_it_is_declared(part: dict[str, Any], key: str, name: str) -> None:
    """Shared links, links of pairs and links of servers are declared outside of `cluster.worker`.

    The first of the two links of pairs joins nodes that no trial with two workers has.
    """
    cluster = {"workers": 4, "worker": {"throughput": "1000/s", "uplink": "1gbit"}} | part
    kind = "parameter_server" if "server" in part else "all_reduce"
    sweep = {"workers": [2, 4]} if "links" in part else {}

    (problem,) = problems_of(document(cluster=cluster, strategies={"any": {"kind": kind}}, sweep=sweep))

    assert problem.key == key
    assert problem.message.startswith(f"strategy any: {name}")


def test_a_slow_link_is_reported_once_for_all_strategies_and_swept_values() -> None:
    """The user corrects one key; the slowest transfer shows how far the rate is off."""
    strategies = {"ring": {"kind": "all_reduce"}, "ps": {"kind": "parameter_server"}}
    slow = document({"uplink": "500bit"}, strategies=strategies, sweep={"workload.batch": [32, 64]})

    (problem,) = problems_of(slow)

    assert problem.message.startswith(("strategy ps: ", "strategy ring: "))
    assert "(with " not in problem.message


def test_a_slow_link_of_one_swept_value_is_reported_with_the_value() -> None:
    """The other trials of the strategy are possible."""
    swept = document(sweep={"cluster.worker.uplink": ["1kbit", "1gbit"]})

    (problem,) = problems_of(swept)

    assert problem.message.endswith(" (with cluster.worker.uplink = 1kbit)")


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
    assert load_scenario(document(worker, timeouts=timeouts), engine="local")


def test_each_trial_is_decoded_once_for_all_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding takes most of the time of loading a scenario with many trials."""
    decode, documents = Scenario.decode, list[ScenarioDocument]()

    def decode_and_count(scenario_document: ScenarioDocument) -> Scenario:
        documents.append(scenario_document)
        return decode(scenario_document)

    monkeypatch.setattr(Scenario, "decode", staticmethod(decode_and_count))
    load_scenario(document(events=[SLOWER_LINK], sweep={"workload.epochs": [2, 3, 4]}), engine="local")

    assert len(documents) == 1 + 3 * 2  # the scenario; of each trial, the swept scenario and its reduction to the trial
