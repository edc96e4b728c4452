"""Link events are applied when they are due: at a planned time, or at a step that the coordinator reports."""

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
from compose.runs.trials.node_runner import TrialFailed
from compose.shaping.link_state import data_network_nodes
from compose.shaping.mechanisms import ChosenMechanisms
from compose.shaping.node_link import NodeLinkScripts
from services.plan import Plan, make_plan
from services.scenario.scenario import Scenario

pytestmark = pytest.mark.without_nodes


class FakeTrialLinks:
    """Links whose helpers apply every change at once, and record the scheduled changes."""

    def __init__(self, plan: Plan, failing_node: str = "") -> None:
        self.mechanisms = ChosenMechanisms(rate="tc-htb", delay="nfqueue", loss="nfqueue", partition="iptables")
        self.node_links = {
            node.name: NodeLinkScripts(plan, node, self.mechanisms, None) for node in data_network_nodes(plan)
        }
        self.interfaces = dict.fromkeys(self.node_links, "eth0")
        self.scheduled: list[tuple[str, float, list[Any]]] = []
        self.helpers = {name: _ImmediateHelper(name, self, name == failing_node) for name in self.node_links}


class _ImmediateHelper:
    def __init__(self, name: str, links: FakeTrialLinks, has_failure: bool) -> None:
        self.name, self.links, self.has_failure = name, links, has_failure

    def submit(self, action: str, **arguments: Any) -> Future[dict[str, Any]]:
        assert action == "at"
        moment, programs = arguments["moment"], arguments["programs"]
        self.links.scheduled.append((self.name, moment, programs))
        result: Future[dict[str, Any]] = Future()
        if self.has_failure:
            result.set_exception(TrialFailed("no such class"))
        else:
            result.set_result({"applied": moment + 0.002})
        return result


def two_worker_plan(*events: dict[str, Any], dilation: float = 1.0) -> Plan:
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


def record_link_events(
    plan: Plan, links: FakeTrialLinks, folder: Path, *log_events: dict[str, Any], count: int
) -> list[dict[str, Any]]:
    """Run the scheduler on these log events, and return its records once there are `count` of them."""
    events_file = folder / "events.jsonl"
    scheduler = LinkEventScheduler(plan, links, events_file)  # type: ignore[arg-type]  # has all attributes that the scheduler uses
    epoch_s = time.time() - time.monotonic()
    for event in log_events:
        scheduler.handle_log_event(event | {"time_ms": (epoch_s + time.monotonic() / plan.dilation) * 1e3})
    deadline = time.monotonic() + 5
    while not events_file.exists() or len(events_file.read_text().splitlines()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    scheduler.close()
    return [json.loads(line) for line in events_file.read_text().splitlines()]


TRAINING_STARTED = {"key": "run_start", "value": None}


def test_changes_are_scheduled_in_virtual_time_from_the_start_of_training(tmp_path: Path) -> None:
    """With dilation 10, 20 virtual milliseconds are 200 ms of wall-clock time."""
    slowdown = {"kind": "link", "at": {"time": "20ms"}, "of": ["worker-0"], "uplink": "10mbit", "lasts": "10ms"}
    plan = two_worker_plan(slowdown, dilation=10.0)
    links = FakeTrialLinks(plan)

    begin, end = record_link_events(plan, links, tmp_path, TRAINING_STARTED, count=2)

    assert (begin["planned_s"], begin["lateness_s"], begin["nodes"]) == (0.02, 0.0002, ["worker-0"])
    assert (end["phase"], end["planned_s"]) == ("end", pytest.approx(0.03))
    assert links.scheduled[1][1] - links.scheduled[0][1] == pytest.approx(0.1)
    assert "rate 1000000bit" in links.scheduled[0][2][0][1]
    assert "rate 10000000bit" in links.scheduled[1][2][0][1]


def test_an_event_at_a_step_begins_when_the_coordinator_reports_the_step(tmp_path: Path) -> None:
    slowdown = {"kind": "link", "at": {"step": 3}, "of": ["worker-1"], "uplink": "10mbit"}
    plan = two_worker_plan(slowdown)
    due = {"key": "event_due", "value": {"number": 0, "step": 3}}

    (record,) = record_link_events(plan, FakeTrialLinks(plan), tmp_path, TRAINING_STARTED, due, count=1)

    assert record["by"] == "tc-htb"
    assert record["planned_s"] == pytest.approx(0.0, abs=0.05)


def test_the_end_of_an_event_keeps_the_change_of_an_overlapping_event(tmp_path: Path) -> None:
    first = {"kind": "link", "at": {"time": "10ms"}, "of": ["worker-0"], "uplink": "50mbit", "lasts": "40ms"}
    second = {"kind": "link", "at": {"time": "30ms"}, "of": ["worker-0"], "uplink": "10mbit", "lasts": "40ms"}
    plan = two_worker_plan(first, second)
    links = FakeTrialLinks(plan)

    record_link_events(plan, links, tmp_path, TRAINING_STARTED, count=3)

    rates = [programs[0][1].split(" rate ")[1].split("bit")[0] for _, _, programs in links.scheduled]
    assert rates == ["50000000", "10000000", "100000000"]


def test_a_failed_change_is_recorded_as_failed(tmp_path: Path) -> None:
    """A verdict must not mistake a planned change for one that was applied."""
    slowdown = {"kind": "link", "at": {"time": "1ms"}, "of": ["worker-0"], "uplink": "10mbit"}
    plan = two_worker_plan(slowdown)

    (record,) = record_link_events(
        plan, FakeTrialLinks(plan, failing_node="worker-0"), tmp_path, TRAINING_STARTED, count=1
    )

    assert record["applied_s"] is None
    assert record["failed"] == "worker-0: no such class"


class FakeKernelLink:
    """A link's limit, set by a helper that applies the newest version of each change at its scheduled time."""

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

    def _apply(self, result: Future[dict[str, Any]], number: int, arguments: dict[str, Any]) -> None:
        time.sleep(max(0.0, arguments["moment"] - time.monotonic()))
        with self._lock:
            if self._newest[number] is not result:
                result.set_result({"applied": None})
                return
            for _, text in arguments["programs"]:
                self.rate = text.split(" rate ")[1].split("bit")[0]
        result.set_result({"applied": time.monotonic()})


def test_an_event_at_a_step_may_precede_a_change_that_was_scheduled_earlier(tmp_path: Path) -> None:
    """50 Mbit/s are scheduled for 0.25 s; then 10 Mbit/s apply at once: the later change wins while it lasts."""
    event_at_time = {"kind": "link", "at": {"time": "250ms"}, "of": ["worker-0"], "uplink": "50mbit", "lasts": "150ms"}
    event_at_step = {"kind": "link", "at": {"step": 3}, "of": ["worker-0"], "uplink": "10mbit"}
    plan = two_worker_plan(event_at_time, event_at_step)
    links, kernel = FakeTrialLinks(plan), FakeKernelLink()
    links.helpers["worker-0"] = kernel  # type: ignore[assignment]
    scheduler = LinkEventScheduler(plan, links, tmp_path / "events.jsonl")  # type: ignore[arg-type]
    number = next(event.number for event in plan.events if event.step == 3)
    observed_rates = []

    scheduler.handle_log_event(TRAINING_STARTED | {"time_ms": time.time() * 1e3})
    for pause_s in (0.1, 0.1, 0.13, 0.2):
        time.sleep(pause_s)
        observed_rates.append(kernel.rate)
        if len(observed_rates) == 1:
            due = {"key": "event_due", "value": {"number": number, "step": 3}}
            scheduler.handle_log_event(due | {"time_ms": time.time() * 1e3})
    scheduler.close()

    assert observed_rates == ["", "10000000", "50000000", "10000000"]


def test_a_change_scheduled_after_the_end_of_the_trial_is_no_failure(tmp_path: Path) -> None:
    slowdown = {"kind": "link", "at": {"time": "200ms"}, "of": ["worker-0"], "uplink": "10mbit"}
    plan = two_worker_plan(slowdown)
    links, result = FakeTrialLinks(plan), Future[dict[str, Any]]()
    links.helpers["worker-0"] = SimpleNamespace(submit=lambda *_, **__: result)  # type: ignore[assignment]
    scheduler = LinkEventScheduler(plan, links, tmp_path / "events.jsonl")  # type: ignore[arg-type]

    scheduler.handle_log_event(TRAINING_STARTED | {"time_ms": time.time() * 1e3})
    time.sleep(0.05)
    scheduler.close()
    result.set_exception(TrialFailed("its helper has ended"))
    time.sleep(0.3)

    assert not (tmp_path / "events.jsonl").exists()


def test_link_of_a_restarted_node_gets_its_present_state_and_later_changes(tmp_path: Path) -> None:
    """A new helper knows only the link of the start of the trial, while an event has changed the link meanwhile."""
    present = {"kind": "link", "at": {"time": "1ms"}, "of": ["worker-0"], "uplink": "10mbit"}
    later = {"kind": "link", "at": {"time": "250ms"}, "of": ["worker-0"], "uplink": "50mbit"}
    plan = two_worker_plan(present, later)
    links, new_kernel = FakeTrialLinks(plan), FakeKernelLink()
    scheduler = LinkEventScheduler(plan, links, tmp_path / "events.jsonl")  # type: ignore[arg-type]
    observed_rates = []

    scheduler.handle_log_event(TRAINING_STARTED | {"time_ms": time.time() * 1e3})
    time.sleep(0.1)
    links.helpers["worker-0"] = new_kernel  # type: ignore[assignment]
    scheduler.restore_link("worker-0")
    for pause_s in (0.05, 0.25):
        time.sleep(pause_s)
        observed_rates.append(new_kernel.rate)
    scheduler.close()

    assert observed_rates == ["10000000", "50000000"]
