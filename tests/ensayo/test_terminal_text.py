"""How a trial reads on a terminal."""

from compose.scenario_files.load import find_scenario, load_scenario
from ensayo.terminal_text import auto_choice_lines, format_sweep_labels
from services.cluster.addresses import InProcessAddresses
from services.plan import make_plan


def test_swept_keys_are_named_by_their_last_word() -> None:
    """A line has little room."""
    assert format_sweep_labels({"workers": 4, "workload.batch": 64}) == "batch 64"


def test_swept_keys_with_the_same_last_word_are_told_apart() -> None:
    """A worker's uplink is not a server's."""
    swept = {"cluster.worker.uplink": "1mbit", "cluster.server.uplink": "2mbit", "uplink": 3, "seed": 1}

    assert format_sweep_labels(swept) == "worker.uplink 1mbit, server.uplink 2mbit, uplink 3, seed 1"


def test_what_a_plan_has_chosen_is_told_with_what_the_others_would_take() -> None:
    """Who lets a plan choose wants to know what, and by how much."""
    trials = load_scenario(find_scenario("collectives"), engine="simulated").trials()
    plans = [
        make_plan(trial, "run", "simulated", InProcessAddresses())
        for trial in trials
        if trial.label in {"ring", "auto"}
    ]

    first, *others = auto_choice_lines(plans)

    assert len(others) == 3  # sizes and workers; nothing of those whose collective is given
    assert first.startswith(
        "024 auto, 4 workers, features 1024: ring, 131.7 ms per exchange; halving_doubling 131.7 ms"
    )
    assert first.endswith("reduce_to_one 526.8 ms")
