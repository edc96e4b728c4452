"""Declared mean time between failures of all nodes of a trial, which figures of the goodput have on their x axis."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from services.cluster.events import AnyDeclaredEvent, mean_time_between_failures_s

EXPONENTIAL = {"kind": "exponential", "mean": "120s"}
PER_NODE = {"law": EXPONENTIAL}
TOGETHER = {"law": EXPONENTIAL, "per": "event"}


def interval_s(*events: dict[str, Any]) -> float | None:
    return mean_time_between_failures_s([TypeAdapter(AnyDeclaredEvent).validate_python(event) for event in events])


def kill(*nodes: str, at: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "kill", "of": nodes, "at": at}


def test_every_node_of_a_law_adds_its_rate() -> None:
    """This holds also if no failure is drawn for a node within the duration of a trial."""
    assert interval_s(kill("worker-0", "worker-1", "worker-2", at=PER_NODE)) == pytest.approx(40.0)


def test_nodes_that_end_together_are_one_failure() -> None:
    assert interval_s(kill("worker-0", "worker-1", at=TOGETHER)) == pytest.approx(120.0)
    assert interval_s(kill("worker-0", "worker-1", at={"random": "50s"})) == pytest.approx(50.0)


def test_rates_of_events_add_up_and_gaps_begin_at_the_end_of_a_restart() -> None:
    restart = {"kind": "restart", "of": ["worker-3"], "after": "5s", "at": {"random": "55s"}}

    assert interval_s(restart, kill("worker-1", at={"random": "60s"})) == pytest.approx(30.0)


def test_without_a_mean_the_interval_is_not_known() -> None:
    """Other kinds of events do not count."""
    pause = {"kind": "pause", "of": ["worker-0"], "lasts": "1s", "at": {"random": "10s"}}

    assert interval_s() is None
    assert interval_s(pause) is None
    assert interval_s(kill("worker-0", at={"time": "10s"})) is None
    assert interval_s(kill("worker-0", at={"random": "60s"}), kill("worker-1", at={"step": 3})) is None
