"""Trials of two nodes, processes or containers, that are attacked while they train."""

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compose.engines.base import TrialEngine
from compose.engines.local import LocalEngine
from services.cluster.addresses import Address
from services.plan import Plan, make_plan
from services.scenario.scenario import Scenario


@dataclass
class AttackingObserver:
    """Observer that attacks after the first evaluation, and records the digest of the parameters."""

    attack: Any = None
    params_sha256: str = ""
    _events: list[str] = field(default_factory=list)

    def coordinator_event_logged(self, plan: Plan, log_event: Mapping[str, Any]) -> None:
        if log_event["key"] == "eval_stop" and self.attack and "eval_stop" not in self._events:
            self.attack(plan)
        self._events.append(str(log_event["key"]))
        if log_event["key"] == "params_sha256":
            self.params_sha256 = str(log_event["value"])

    def engine_preparation_started(self, description: str) -> None:
        """Ignore the preparation."""


def read_lines(file: Path) -> list[str]:
    """Return the lines of a log."""
    return file.read_text().splitlines()


def write_bytes(address: Address, data: bytes) -> None:
    """Write bytes to a new connection, and wait until the node closes it or answers."""
    with suppress(OSError), socket.create_connection((address.host, address.port), timeout=1.0) as connection:
        connection.sendall(data)
        connection.recv(1)


def make_attacked_plan(run_name: str, transport: str, data_security: str, engine: TrialEngine, epochs: int = 6) -> Plan:
    """Return the plan of a trial of two workers; an epoch takes 0.2 s."""
    document = {
        "name": "attacked",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "linear"},
            "optimiser": {"kind": "momentum", "rate": 0.05},
            "batch": 128,
            "epochs": epochs,
        },
        "cluster": {"workers": 2, "worker": {"throughput": "4000/s", "uplink": "100mbit", "downlink": "100mbit"}},
        "strategies": {"ring": {"kind": "all_reduce"}},
        "transport": transport,
        "security": {"data": data_security},
        "timeouts": {"start": "5min"},
        "baseline": False,
    }
    (trial,) = Scenario.decode(document).trials()
    return make_plan(trial, run_name, engine.name, engine.choose_addresses(run_name, 5))


def run_attacked_plan(
    plan: Plan, folder: Path, engine: TrialEngine, attack: Callable[[Plan], object] | None
) -> AttackingObserver:
    """Run a trial, with an attack after the first evaluation, and return its observer."""
    (folder / "logs").mkdir(parents=True)
    (folder / "plan.json").write_text(plan.model_dump_json())
    observer = AttackingObserver(attack)
    outcome = engine.run_trial(plan, folder, observer)
    assert (outcome.status, outcome.reason) == ("success", ""), outcome
    return observer


def run_attacked_trial(
    folder: Path,
    transport: str,
    data_security: str,
    attack: Callable[[Plan], object] | None,
    engine: TrialEngine | None = None,
    epochs: int = 6,
) -> AttackingObserver:
    """Run a trial, of processes by default, with an attack after the first evaluation, and return its observer."""
    with closing(engine or LocalEngine()) as used_engine:
        run_name = f"{folder.parent.name}-{os.getpid()}-{folder.name}"
        plan = make_attacked_plan(run_name, transport, data_security, used_engine, epochs)
        return run_attacked_plan(plan, folder, used_engine, attack)
