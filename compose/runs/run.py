"""A whole run: a folder, the trials one after the other, and a record of where they ran."""

import json
import platform
import secrets
import shutil
import subprocess
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import yaml

from compose.calibration.capacity import load_capacity
from compose.engines import EngineChoice
from compose.engines.base import Engine, EventObserver, PreparationObserver, TrialOutcome
from compose.host.admission import Admission, admit, unbounded
from compose.host.compute_speed import MEASURED
from compose.host.host_facts import cores, memory_bytes, processor
from compose.runs.interrupt import stoppable
from compose.runs.supervisor import why
from services.cluster.addresses import InProcessAddresses
from services.plan import Plan, make_plan
from services.scenario.scenario import Scenario

LIBRARIES = ("ensayo", "numpy", "grpcio", "protobuf", "pydantic", "cryptography")


class Observer(EventObserver, PreparationObserver, Protocol):
    """Whoever looks on while a run goes on."""

    def run_started(self, scenario: Scenario, engine: str, reason: str, plans: tuple[Plan, ...], folder: Path) -> None:
        """The trials are decided, the folder is there."""

    def trial_started(self, plan: Plan, number: int, count: int) -> None:
        """Trial `number`, from 1, of `count` begins."""

    def trial_ended(self, plan: Plan, status: str, seconds: float) -> None:
        """It is over after so many wall seconds, and its folder is complete."""


@dataclass(frozen=True)
class Source:
    """A scenario and where it comes from."""

    scenario: Scenario
    text: str  # of the file, as given
    question: str  # its first comment
    command: str = ""  # that somebody typed


@dataclass(frozen=True)
class Run:
    """A run that is over."""

    folder: Path
    statuses: tuple[TrialOutcome, ...]
    interrupted: bool


def run(source: Source, choice: EngineChoice, runs: Path, observer: Observer) -> Run:
    """Run all trials of a scenario; whatever ends early, finished trials are complete on disk.

    Args:
        source: the scenario.
        choice: the engine that runs the nodes, and why it was taken.
        runs: folder of all runs.
        observer: is told how it goes.

    Raises:
        UserError: this host can't carry it; nothing was started.
        HostError: the engine can't be prepared on this host.
    """
    engine = choice.engine
    with stoppable(), closing(engine):
        admission = admitted(source.scenario, engine)
        engine.prepare(observer)
        return _run(source, choice, admission, runs, observer)


def admitted(scenario: Scenario, engine: Engine) -> Admission:
    """Whether this host can carry a scenario, and how slowly when the scenario leaves that to it.

    Raises:
        UserError: it can't.
    """
    if engine.name == "simulated":
        return unbounded()
    plans = [make_plan(trial, "admission", engine.name, InProcessAddresses()) for trial in scenario.trials()]
    return admit(scenario, plans, load_capacity(engine, scenario.transport), MEASURED)


def _run(source: Source, choice: EngineChoice, admission: Admission, runs: Path, observer: Observer) -> Run:
    engine = choice.engine
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    plans = plan_all(source, engine, admission, name)
    folder = _folder(source, choice, admission, runs, plans)
    observer.run_started(source.scenario, engine.name, choice.reason, plans, folder)
    statuses: list[TrialOutcome] = []
    try:
        for k in range(len(plans)):
            plan, started = plans[k], time.monotonic()
            observer.trial_started(plan, k + 1, len(plans))
            statuses.append(_trial(plan, engine, folder, observer))
            observer.trial_ended(plan, statuses[-1].status, time.monotonic() - started)
            if kept := statuses[-1].kept:  # and their addresses with them
                observer.preparation_started(
                    f"until it is restarted, the engine keeps {', '.join(kept)}: other addresses now"
                )
                plans = plan_all(source, engine, admission, name)
    except KeyboardInterrupt:
        return Run(folder, tuple(statuses), interrupted=True)
    return Run(folder, tuple(statuses), interrupted=False)


def plan_all(source: Source, engine: Engine, admission: Admission, name: str) -> tuple[Plan, ...]:
    """The plans of all trials; one set of addresses serves them all, since they run one after the other."""
    trials = source.scenario.trials()
    largest = max(1 + trial.strategy.phases().server_count + trial.scenario.cluster.workers for trial in trials)
    addressing = engine.choose_addresses(name, largest)
    dilation, alpha_s = admission.dilation, admission.alpha_s
    return tuple(
        make_plan(trial, name, engine.name, addressing, source.question, dilation=dilation, alpha_s=alpha_s)
        for trial in trials
    )


def _trial(plan: Plan, engine: Engine, folder: Path, observer: Observer) -> TrialOutcome:
    """One trial in its own folder; its status is on disk even when it is interrupted.

    An engine that fails one trial may well run the next: a sweep of hours must not end for it.
    """
    home = folder / "trials" / plan.trial
    (home / "logs").mkdir(parents=True)
    (home / "plan.json").write_text(plan.model_dump_json(indent=1))
    status = TrialOutcome(trial=plan.trial, engine=engine.name, status="aborted", reason="interrupted")
    try:
        status = engine.run_trial(plan, home, observer)
    except Exception as error:  # noqa: BLE001 - see above; the reason names its type
        status = TrialOutcome(trial=plan.trial, engine=engine.name, status="failed", reason=why(error))
    finally:
        (home / "status.json").write_text(status.model_dump_json(indent=1))
    return status


def _folder(source: Source, choice: EngineChoice, admission: Admission, runs: Path, plans: tuple[Plan, ...]) -> Path:
    """The folder of a new run, with everything that is known before it starts; `latest` points to it."""
    name = plans[0].run
    folder = runs / source.scenario.name / name
    folder.mkdir(parents=True)
    (folder / "scenario.yaml").write_text(source.text)
    (folder / "resolved.yaml").write_text(yaml.safe_dump(source.scenario.encode(), sort_keys=False))
    (folder / "manifest.json").write_text(json.dumps(_manifest(source, choice, admission, plans), indent=1))
    latest = runs / "latest"
    fresh = runs / f".latest-{name}"
    fresh.symlink_to(folder.relative_to(runs))
    fresh.replace(latest)  # at once: whoever reads it meanwhile finds the run before or this one
    return folder


def _manifest(source: Source, choice: EngineChoice, admission: Admission, plans: tuple[Plan, ...]) -> dict[str, Any]:
    """What somebody needs to know to run it again, or to doubt it."""
    return {
        "schema": 1,
        "run": plans[0].run,
        "scenario": source.scenario.name,
        "question": source.question,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": source.command,
        "engine": {"name": choice.engine.name, "reason": choice.reason, **choice.engine.manifest_facts()},
        "admission": admission.model_dump(mode="json"),
        "seeds": [source.scenario.seed + repeat for repeat in range(source.scenario.repeats)],
        "trials": [plan.trial for plan in plans],
        "commit": commit(),
        "host": {
            "system": platform.platform(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "processor": processor(),
            "cores": cores(),
            "memory_bytes": memory_bytes(),
            "python": platform.python_version(),
        },
        "versions": {library: version(library) for library in LIBRARIES},
    }


def commit() -> dict[str, Any]:
    """The commit of the checkout that this runs from, and whether it was changed; nothing outside a checkout."""
    git, here = shutil.which("git"), Path(__file__).parent
    if git is None:
        return {}
    head = subprocess.run([git, "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)  # noqa: S603
    changes = subprocess.run([git, "-C", here, "status", "--porcelain"], capture_output=True, text=True, check=False)  # noqa: S603
    return {"id": head.stdout.strip(), "dirty": bool(changes.stdout.strip())} if head.returncode == 0 else {}
