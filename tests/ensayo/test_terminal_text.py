"""Text about a trial on a terminal."""

import pytest

from compose.scenario_files.load import find_scenario, load_scenario
from ensayo.terminal.terminal_text import chosen_collective_lines, format_sweep_labels, undeclared_rate_lines
from services.cluster.addresses import DummyAddresses
from services.plan import make_plan
from services.scenario.scenario import Scenario

pytestmark = pytest.mark.without_nodes


def test_swept_keys_are_named_by_their_last_part() -> None:
    """A line has little room."""
    assert format_sweep_labels({"workers": 4, "workload.batch": 64}) == "batch 64"


def test_swept_keys_with_the_same_last_part_are_distinguished() -> None:
    """A worker's uplink differs from a server's."""
    swept = {"cluster.worker.uplink": "1mbit", "cluster.server.uplink": "2mbit", "uplink": 3, "seed": 1}

    assert format_sweep_labels(swept) == "worker.uplink 1mbit, server.uplink 2mbit, uplink 3, seed 1"


def test_the_choice_of_auto_is_printed_with_the_times_of_the_alternatives() -> None:
    """A user of `auto` wants to know the choice and its margin."""
    trials = load_scenario(find_scenario("collectives"), engine="simulated").trials()
    plans = [
        make_plan(trial, "run", "simulated", DummyAddresses()) for trial in trials if trial.label in {"ring", "auto"}
    ]

    first, *other_lines = chosen_collective_lines(plans)

    assert len(other_lines) == 3  # sizes and workers; nothing of those whose collective is given
    assert first.startswith(
        "024 auto, 4 workers, features 1024: collective auto chose ring, predicted exchange 132 ms per step; "
        "halving_doubling 132 ms"
    )
    assert first.endswith("reduce_to_one 527 ms")


def test_an_unlimited_server_is_stated_once_for_all_trials() -> None:
    """The number of workers is swept, and the server is the same."""
    workload = {
        "dataset": {"kind": "digits"},
        "model": {"kind": "mlp"},
        "optimiser": {"kind": "sgd", "rate": 0.1},
        "batch": 64,
    }
    worker = {"throughput": "1000/s", "uplink": "10mbit", "downlink": "10mbit"}
    document = {
        "name": "unlimited",
        "workload": workload,
        "cluster": {"worker": worker},
        "strategies": {"ring": {"kind": "all_reduce"}, "server": {"kind": "parameter_server"}},
        "sweep": {"workers": [2, 4]},
    }
    trials = Scenario.decode(document).trials()

    (line,) = undeclared_rate_lines([make_plan(trial, "run", "simulated", DummyAddresses()) for trial in trials])

    assert line.startswith("server-0: no rate declared, so its link is not limited")
