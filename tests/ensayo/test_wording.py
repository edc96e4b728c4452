"""How a trial reads on a terminal."""

from ensayo.wording import labels


def test_swept_keys_are_named_by_their_last_word() -> None:
    """A line has little room."""
    assert labels({"workers": 4, "workload.batch": 64}) == "batch 64"


def test_swept_keys_with_the_same_last_word_are_told_apart() -> None:
    """A worker's uplink is not a server's."""
    swept = {"cluster.worker.uplink": "1mbit", "cluster.server.uplink": "2mbit", "uplink": 3, "seed": 1}

    assert labels(swept) == "worker.uplink 1mbit, server.uplink 2mbit, uplink 3, seed 1"
