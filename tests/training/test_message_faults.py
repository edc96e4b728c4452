"""Training while messages are late, out of order and repeated: every push counts once."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from message_faults import inject_message_faults
from replay import replay

from services.schema.errors import EnsayoError, ProtocolError

Row = dict[str, Any]

SLOW = {"groups": [{"name": "slow", "ranks": [0], "throughput": "250/s"}]}


def server(synchrony: Row, servers: int = 2, **keys: Any) -> Row:
    """Return a strategy with servers."""
    return {"kind": "parameter_server", "servers": servers, "synchrony": synchrony, **keys}


ASYNCHRONOUS = {
    "asp": server({"kind": "asp"}),
    "ssp": server({"kind": "ssp", "staleness": 1}),
    "backup": server({"kind": "backup", "backups": 2}),
    "gba": server({"kind": "gba", "gather": 3}),
    "colocated": {"kind": "parameter_server", "synchrony": {"kind": "asp"}, "placement": {"kind": "colocated"}},
    "easgd": {"kind": "easgd", "servers": 2, "period": 3, "synchrony": {"kind": "asp"}},
}
SYNCHRONOUS = {
    "ring": {"kind": "all_reduce"},
    "recursive doubling": {"kind": "all_reduce", "collective": {"kind": "recursive_doubling"}},
    "bsp": server({"kind": "bsp"}),
}


def is_exactly_once(trial: Any, undisturbed: Any) -> bool:
    """Return whether each message had an effect once: equal parameters, or parameters that the logged pushes give."""
    if trial.plan.is_synchronous:
        return bool(trial.params.tobytes() == undisturbed.params.tobytes())
    try:
        return replay(trial.plan, trial.arrivals, trial.progress).tobytes() == trial.params.tobytes()
    except ProtocolError:  # the logs contradict themselves
        return False


@pytest.mark.parametrize("strategy", ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_replay_of_the_logged_pushes_gives_the_parameters_of_a_disturbed_trial(
    simulate: Callable[..., Any], strategy: Row, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has each push in one update; a push that had an effect twice, or none, would change the parameters."""
    faults = inject_message_faults(monkeypatch, seed)

    trial = simulate(strategy, 4, cluster=SLOW)

    assert faults.counts["repeated"] > 10
    assert is_exactly_once(trial, trial)
    assert hashlib.sha256(trial.params.tobytes()).hexdigest() == trial.value("coordinator", "params_sha256")
    for rank in range(4):
        steps = [row["step"] for row in trial.steps(rank)]
        assert steps == list(range(len(steps)))


@pytest.mark.parametrize("strategy", [*SYNCHRONOUS.values(), ASYNCHRONOUS["asp"]], ids=[*SYNCHRONOUS, "asp"])
def test_message_that_has_an_effect_twice_is_found(
    simulate: Callable[..., Any], strategy: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparisons of these tests can fail: here a repeated message counts as the message of the next step."""
    undisturbed = simulate(strategy, 4, cluster=SLOW)

    inject_message_faults(monkeypatch, 1, accepts_duplicates=True)
    try:
        trial = simulate(strategy, 4, cluster=SLOW)
    except ExceptionGroup as errors:  # a server rejects a push that it does not expect yet, or waits in vain for one
        assert errors.subgroup(EnsayoError)  # noqa: PT017 - the error is one of two ways to find it
    else:
        assert not is_exactly_once(trial, undisturbed)
