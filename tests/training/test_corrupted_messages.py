"""Events `corrupt` flip bits of messages: without authentication tags, training uses them; with tags, it does not."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cluster.links.message_corruption import CorruptedMessage, MessageCorruptor, PendingCorruption
from services.schema.errors import PeerUnreachable, first_error_in_group

Simulate = Callable[..., Any]

RING, SERVER = {"kind": "all_reduce"}, {"kind": "parameter_server"}
FREE = {"worker": {"throughput": "60/s"}}
WRONG_TAG = "a message has a wrong authentication tag: it was altered, repeated, left out or reordered"


def corrupt(*nodes: str, **keys: Any) -> dict[str, Any]:
    """Return an event that corrupts a message of each of these nodes in step 3."""
    return {"kind": "corrupt", "of": list(nodes), "at": {"step": 3}, **keys}


def logged_values(trial: Any, node: str, key: str) -> list[dict[str, Any]]:
    """Return the values of the events with this key in the log of a node."""
    return [event["value"] for event in trial.events(node, key)]


@pytest.mark.parametrize(("strategy", "sender"), [(RING, "worker-1"), (SERVER, "worker-1"), (SERVER, "server-0")])
def test_an_undetected_corruption_changes_the_training_and_is_logged_by_its_sender(
    simulate: Simulate, strategy: dict[str, Any], sender: str
) -> None:
    """The receiver can't know it, so only the sender's log has a record of it."""
    undisturbed = simulate(strategy, 2, cluster=FREE)

    trial = simulate(strategy, 2, cluster=FREE, events=[corrupt(sender, bits=3)])

    (corrupted,) = logged_values(trial, sender, "message_corrupted")
    assert corrupted["is_detectable"] is False
    assert len(corrupted["flipped_bits"]) == 3
    assert max(corrupted["flipped_bits"]) < 8 * corrupted["payload_bytes"]
    assert trial.value("coordinator", "params_sha256") != undisturbed.value("coordinator", "params_sha256")
    nodes = [node.name for node in trial.plan.nodes]
    assert [logged_values(trial, name, "refused_connection") for name in nodes] == [[]] * len(nodes)
    applied = logged_values(trial, sender, "event_applied")
    assert [(event["kind"], event["phase"], event["by"], event["lateness_s"]) for event in applied] == [
        ("corrupt", phase, "transport", 0.0) for phase in ("begin", "end")
    ]


@pytest.mark.parametrize(("strategy", "sender"), [(RING, "worker-1"), (SERVER, "worker-1"), (SERVER, "server-0")])
def test_a_corrupted_message_with_a_tag_is_refused_once_and_ends_its_stream(
    simulate: Simulate, simulated_trials: list[Any], strategy: dict[str, Any], sender: str
) -> None:
    """No gradient is computed from it. The nodes end as after a broken connection."""
    with pytest.raises(ExceptionGroup) as raised:
        simulate(strategy, 2, cluster=FREE, data_protection="authenticated", events=[corrupt(sender)])
    (trial,) = simulated_trials

    (corrupted,) = logged_values(trial, sender, "message_corrupted")
    assert corrupted["is_detectable"] is True
    refused = {name: logged_values(trial, name, "refused_connection") for name in list(trial.lines)}
    assert {name: values for name, values in refused.items() if values} == {
        corrupted["receiver"]: [{"reason": WRONG_TAG, "claimed_sender": sender, "is_last": False}]
    }
    error = first_error_in_group(raised.value)
    assert isinstance(error, PeerUnreachable)
    assert "broke off" in str(error)


@pytest.mark.parametrize(("strategy", "sender"), [(RING, "worker-1"), (SERVER, "worker-1"), (SERVER, "server-0")])
def test_a_corrupted_message_with_a_tag_is_sent_again_where_streams_are_opened_again(
    simulate: Simulate, strategy: dict[str, Any], sender: str
) -> None:
    """With `transport: tcp`, the refused message arrives over another connection: the training stays the same."""
    keys = {"cluster": FREE, "data_protection": "authenticated", "transport": "tcp"}
    undisturbed = simulate(strategy, 2, **keys)

    trial = simulate(strategy, 2, **keys, events=[corrupt(sender)])

    (corrupted,) = logged_values(trial, sender, "message_corrupted")
    refused = {name: logged_values(trial, name, "refused_connection") for name in list(trial.lines)}
    assert {name: values for name, values in refused.items() if values} == {
        corrupted["receiver"]: [{"reason": WRONG_TAG, "claimed_sender": sender, "is_last": False}]
    }
    assert [drop["peer"] for drop in logged_values(trial, sender, "connection_dropped")] == [corrupted["receiver"]]
    assert [again["resent_messages"] for again in logged_values(trial, sender, "connection_reopened")] == [1]
    assert trial.value("coordinator", "params_sha256") == undisturbed.value("coordinator", "params_sha256")


def test_tags_without_a_corruption_change_nothing(simulate: Simulate) -> None:
    """The trial with tags is the trial without them."""
    digests = {
        simulate(RING, 2, cluster=FREE, data_protection=protection).value("coordinator", "params_sha256")
        for protection in ("signed", "authenticated")
    }

    assert len(digests) == 1


def test_the_same_seed_flips_the_same_bits(simulate: Simulate) -> None:
    """A disturbed trial can be repeated."""
    events = [corrupt("worker-0", "worker-1", bits=5)]

    first, second = (simulate(RING, 2, cluster=FREE, events=events) for _ in range(2))

    for name in ("worker-0", "worker-1"):
        assert logged_values(first, name, "message_corrupted") == logged_values(second, name, "message_corrupted")
        assert len(logged_values(first, name, "message_corrupted")) == 1


@given(payload=st.binary(min_size=1, max_size=50), bits=st.integers(1, 64), seed=st.integers(0, 99))
def test_exactly_the_recorded_bits_flip_in_one_message(payload: bytes, bits: int, seed: int) -> None:
    """Messages without a payload are left out; the next one after the corrupted message is unchanged."""
    recorded: list[CorruptedMessage] = []
    corruptor = MessageCorruptor()
    assert corruptor.flip_bits("b", "PUSH", payload) is payload
    corruptor.corrupt_next_message(PendingCorruption(bits, Random(seed), recorded.append))

    assert corruptor.flip_bits("b", "TOKEN", b"") == b""
    changed = corruptor.flip_bits("b", "PUSH", payload)
    assert corruptor.flip_bits("b", "PUSH", payload) is payload

    (message,) = recorded
    differences = [
        8 * number + bit
        for number, (old, new) in enumerate(zip(payload, bytes(changed), strict=True))
        for bit in range(8)
        if (old ^ new) >> bit & 1
    ]
    assert list(message.flipped_bits) == differences
    assert len(differences) == min(bits, 8 * len(payload))
    assert (message.receiver, message.message_kind, message.payload_bytes) == ("b", "PUSH", len(payload))
