"""What can this host carry? Measured by `ensayo calibrate` and kept with a fingerprint of the host, else assumed."""

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from compose.engines.base import Engine
from compose.host.host_facts import cores, processor
from services.scenario.scenario import EngineName, TransportName
from services.schema.component import Record


class Fingerprint(Record):
    """What must be the same for a measurement to count."""

    cpu: str
    cores: int
    kernel: str
    engine: str  # version


class Capacity(Record):
    """What this host can carry with one engine and one transport; wall seconds, real bit/s."""

    engine: EngineName
    transport: TransportName = "grpc"
    fingerprint: Fingerprint
    calibrated: str = ""  # when, UTC; empty: assumed
    note: str = ""  # why it is assumed
    alpha_s: float  # from sending to receiving a message without payload
    shaped_bps: float  # the largest rate, up and down at once, whose goodput was within 3 % of what it should be
    total_bps: float  # payload of all links together
    message_cpu_s: float  # CPU time of sending and receiving a message
    byte_cpu_s: float  # beside that, per payload byte
    sum_s: float  # CPU time per byte of adding one vector to another

    @property
    def told(self) -> str:
        """Where it comes from, for a message."""
        return f"calibrated {self.calibrated}" if self.calibrated else f"not calibrated: {self.note}"


# Carefully low, from measurements on two cores of a virtual machine: HTB kept 2.5 Gbit/s within 3 %, gRPC between
# containers moved 4 Gbit/s per core before rates sank, and a small message took 0.45 ms of CPU at both ends together.
ASSUMED = {
    "alpha_s": 0.0003,
    "shaped_bps": 2.5e9,
    "message_cpu_s": 0.00045,
    "byte_cpu_s": 1e-9,
    "sum_s": 1e-10,
}
ASSUMED_BPS_PER_CORE = 4e9


def fingerprint(engine: Engine) -> Fingerprint:
    """The fingerprint of this host with an engine that can run here."""
    found = engine.facts().get("version") or f"grpcio {version('grpcio')}"
    return Fingerprint(cpu=processor(), cores=cores(), kernel=platform.release(), engine=str(found))


def capacity(engine: Engine, transport: TransportName = "grpc") -> Capacity:
    """What was measured for this engine and transport on this very host; what is assumed when nothing was."""
    here = fingerprint(engine)
    try:
        stored = Capacity.model_validate(_stored()[_key(engine.name, transport)])
    except (KeyError, ValidationError):
        return assumed(engine.name, here, "`ensayo calibrate` measures this host", transport)
    differing = [name for name, value in here if value != getattr(stored.fingerprint, name)]
    if differing:
        told = f"what is stored was measured with another {' and '.join(differing)}"
        return assumed(engine.name, here, told, transport)
    return stored


def assumed(engine: EngineName, here: Fingerprint, note: str, transport: TransportName = "grpc") -> Capacity:
    """What any host of so many cores should carry, with gRPC; bare TCP costs less."""
    total_bps = ASSUMED_BPS_PER_CORE * here.cores
    return Capacity(engine=engine, transport=transport, fingerprint=here, note=note, total_bps=total_bps, **ASSUMED)


def keep(measured: Capacity) -> Path:
    """Store what was measured, beside what is stored for other engines and transports; where."""
    path = store()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    stored = _stored() | {_key(measured.engine, measured.transport): measured.model_dump()}
    fresh.write_text(json.dumps(stored, indent=1), encoding="utf-8")
    fresh.replace(path)
    return path


def store() -> Path:
    """The file of all measurements."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ensayo" / "capacity.json"


def _key(engine: EngineName, transport: TransportName) -> str:
    """What a measurement is stored under."""
    return f"{engine} {transport}"


def _stored() -> dict[str, Any]:
    """By engine and transport; nothing when the file is absent or nobody's."""
    try:
        found = json.loads(store().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
