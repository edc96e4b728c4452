"""Events of links happen when they are due, whoever says when that is."""

import json
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compose.engines.containers.engine import RunSubnets
from compose.engines.containers.link_events import LinkEventScheduler
from compose.runs.supervisor import TrialFailed
from compose.shaping.link_state import data_network_nodes
from compose.shaping.mechanisms import ShapingMechanisms
from compose.shaping.node_link import NodeLinkScripts
from services.plan import Plan, make_plan
from services.scenario.scenario import Scenario


class Helpers:
    """Do everything at once, at its moment; what they were told is kept."""

    def __init__(self, plan: Plan, fails: str = "") -> None:
        self.mechanisms = ShapingMechanisms(rate="tc-htb", delay="nfqueue", loss="nfqueue", partition="iptables")
        self.node_links = {
            node.name: NodeLinkScripts(plan, node, self.mechanisms, None) for node in data_network_nodes(plan)
        }
        self.interfaces = dict.fromkeys(self.node_links, "eth0")
        self.told: list[tuple[str, float, list[Any]]] = []
        self.helpers = {name: _Helper(name, self, name == fails) for name in self.node_links}


class _Helper:
    def __init__(self, name: str, all_: Helpers, fails: bool) -> None:
        self.name, self.all, self.fails = name, all_, fails

    def submit(self, action: str, **arguments: Any) -> Future[dict[str, Any]]:
        assert action == "at"
        moment, programs = arguments["moment"], arguments["programs"]
        self.all.told.append((self.name, moment, programs))
        answer: Future[dict[str, Any]] = Future()
        if self.fails:
            answer.set_exception(TrialFailed("no such class"))
        else:
            answer.set_result({"applied": moment + 0.002})
        return answer


def plan_of(*events: dict[str, Any], dilation: float = 1.0) -> Plan:
    document = {
        "name": "any",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "linear"},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch": 64,
            "epochs": 1,
        },
        "cluster": {"workers": 2, "worker": {"uplink": "100mbit"}},
        "strategies": {"ring": {"kind": "all_reduce", "collective": {"kind": "ring"}}},
        "baseline": False,
        "events": list(events),
        "dilation": dilation,
    }
    (trial,) = Scenario.decode(document).trials()
    return make_plan(trial, "run", "docker", RunSubnets(data="10.64.0", control="10.64.1"))


def lines_of(plan: Plan, helpers: Helpers, folder: Path, *said: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """What is recorded once so many changes are there."""
    file = folder / "events.jsonl"
    timeline = LinkEventScheduler(plan, helpers, file)  # type: ignore[arg-type]  # all that a timeline asks of them
    epoch_s = time.time() - time.monotonic()
    for event in said:
        timeline.handle_log_event(event | {"time_ms": (epoch_s + time.monotonic() / plan.dilation) * 1e3})
    deadline = time.monotonic() + 5
    while not file.exists() or len(file.read_text().splitlines()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    timeline.close()
    return [json.loads(line) for line in file.read_text().splitlines()]


STARTED = {"key": "run_start", "value": None}


def test_a_change_is_planned_from_the_start_of_training_in_virtual_time(tmp_path: Path) -> None:
    """Dilation 10: 20 virtual milliseconds are 200 on the wall."""
    slow = {"kind": "link", "at": {"time": "20ms"}, "of": ["worker-0"], "uplink": "10mbit", "lasts": "10ms"}
    plan = plan_of(slow, dilation=10.0)
    helpers = Helpers(plan)

    begin, end = lines_of(plan, helpers, tmp_path, STARTED, count=2)

    assert (begin["planned_s"], begin["lateness_s"], begin["nodes"]) == (0.02, 0.0002, ["worker-0"])
    assert (end["phase"], end["planned_s"]) == ("end", pytest.approx(0.03))
    assert helpers.told[1][1] - helpers.told[0][1] == pytest.approx(0.1)
    assert "rate 1000000bit" in helpers.told[0][2][0][1]
    assert "rate 10000000bit" in helpers.told[1][2][0][1]


def test_an_event_of_a_step_begins_when_the_coordinator_says_that_the_step_has(tmp_path: Path) -> None:
    slow = {"kind": "link", "at": {"step": 3}, "of": ["worker-1"], "uplink": "10mbit"}
    plan = plan_of(slow)
    due = {"key": "event_due", "value": {"number": 0, "step": 3}}

    (line,) = lines_of(plan, Helpers(plan), tmp_path, STARTED, due, count=1)

    assert line["by"] == "tc-htb"
    assert line["planned_s"] == pytest.approx(0.0, abs=0.05)


def test_overlapping_events_leave_what_the_other_has_changed(tmp_path: Path) -> None:
    """The end of one is not the end of both."""
    first = {"kind": "link", "at": {"time": "10ms"}, "of": ["worker-0"], "uplink": "50mbit", "lasts": "40ms"}
    second = {"kind": "link", "at": {"time": "30ms"}, "of": ["worker-0"], "uplink": "10mbit", "lasts": "40ms"}
    plan = plan_of(first, second)
    helpers = Helpers(plan)

    lines_of(plan, helpers, tmp_path, STARTED, count=3)

    rates = [programs[0][1].split(" rate ")[1].split("bit")[0] for _, _, programs in helpers.told]
    assert rates == ["50000000", "10000000", "100000000"]


def test_a_change_that_failed_is_a_line_that_says_so(tmp_path: Path) -> None:
    """A verdict must not take a planned change for one that happened."""
    slow = {"kind": "link", "at": {"time": "1ms"}, "of": ["worker-0"], "uplink": "10mbit"}
    plan = plan_of(slow)

    (line,) = lines_of(plan, Helpers(plan, fails="worker-0"), tmp_path, STARTED, count=1)

    assert line["applied_s"] is None
    assert line["failed"] == "worker-0: no such class"


class Kernel:
    """What a link's limit is, by a helper that does what it is told at its moment, the newest word on each change."""

    def __init__(self) -> None:
        self.rate = ""
        self._newest: dict[int, object] = {}
        self._lock = threading.Lock()

    def submit(self, action: str, **arguments: Any) -> Future[dict[str, Any]]:
        assert action == "at"
        answer: Future[dict[str, Any]] = Future()
        number = arguments.get("number", id(answer))
        self._newest[number] = answer
        threading.Thread(target=self._apply, args=(answer, number, arguments), daemon=True).start()
        return answer

    def _apply(self, answer: Future[dict[str, Any]], number: int, given: dict[str, Any]) -> None:
        time.sleep(max(0.0, given["moment"] - time.monotonic()))
        with self._lock:
            if self._newest[number] is not answer:
                answer.set_result({"applied": None})
                return
            for _, text in given["programs"]:
                self.rate = text.split(" rate ")[1].split("bit")[0]
        answer.set_result({"applied": time.monotonic()})


def test_a_step_that_begins_before_a_change_that_was_told_ahead_comes_before_it(tmp_path: Path) -> None:
    """Told of 50 Mbit/s at 0.25 s, then of 10 Mbit/s at once: the later one wins while it lasts."""
    timed = {"kind": "link", "at": {"time": "250ms"}, "of": ["worker-0"], "uplink": "50mbit", "lasts": "150ms"}
    stepped = {"kind": "link", "at": {"step": 3}, "of": ["worker-0"], "uplink": "10mbit"}
    plan = plan_of(timed, stepped)
    helpers, kernel = Helpers(plan), Kernel()
    helpers.helpers["worker-0"] = kernel  # type: ignore[assignment]
    timeline = LinkEventScheduler(plan, helpers, tmp_path / "events.jsonl")  # type: ignore[arg-type]
    number = next(event.number for event in plan.events if event.step == 3)
    seen = []

    timeline.handle_log_event(STARTED | {"time_ms": time.time() * 1e3})
    for until in (0.1, 0.1, 0.13, 0.2):
        time.sleep(until)
        seen.append(kernel.rate)
        if len(seen) == 1:
            due = {"key": "event_due", "value": {"number": number, "step": 3}}
            timeline.handle_log_event(due | {"time_ms": time.time() * 1e3})
    timeline.close()

    assert seen == ["", "10000000", "50000000", "10000000"]


def test_what_was_told_ahead_of_a_moment_after_the_end_is_no_failure(tmp_path: Path) -> None:
    slow = {"kind": "link", "at": {"time": "200ms"}, "of": ["worker-0"], "uplink": "10mbit"}
    plan = plan_of(slow)
    helpers, answer = Helpers(plan), Future[dict[str, Any]]()
    helpers.helpers["worker-0"] = SimpleNamespace(submit=lambda *_, **__: answer)  # type: ignore[assignment]
    timeline = LinkEventScheduler(plan, helpers, tmp_path / "events.jsonl")  # type: ignore[arg-type]

    timeline.handle_log_event(STARTED | {"time_ms": time.time() * 1e3})
    time.sleep(0.05)
    timeline.close()
    answer.set_exception(TrialFailed("its helper has ended"))
    time.sleep(0.3)

    assert not (tmp_path / "events.jsonl").exists()
