"""Capacity of this host: the link rates that it can carry, and the costs of messages.

The values are those that `ensayo calibrate` has measured on this host, else they are assumed.
"""

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from compose.engines.base import TrialEngine
from compose.host.host_facts import available_core_count, processor_model, user_cache_folder
from services.scenario.run_settings import EngineName, TransportName
from services.schema.component import FrozenRecord


class HostFingerprint(FrozenRecord):
    """Processor, cores, kernel and engine version of a host.

    A stored calibration is valid while all of these are the same.
    """

    cpu: str  # name of the processor
    cores: int
    kernel: str  # release
    engine: str  # version of the Docker daemon, or of gRPC for engine local


class HostCapacity(FrozenRecord):
    """Link rates that this host can carry, and costs of a message, with one engine and transport.

    The costs of a message are its time and its CPU time. Times are wall seconds, rates are bit/s of wall time.
    """

    engine: EngineName
    transport: TransportName = "grpc"
    fingerprint: HostFingerprint
    calibrated: str = ""  # date and time of the measurement, UTC; empty: the values are assumed
    note: str = ""  # reason why the values are assumed
    alpha_s: float  # time from sending to receiving a message without payload
    shaped_bps: float  # largest rate of an uplink and a downlink whose goodput is within 3 % of what it should be
    total_bps: float  # payload of all links together
    message_cpu_s: float  # CPU time of sending and receiving a message, without its payload
    byte_cpu_s: float  # CPU time of sending and receiving one byte of payload
    sum_s: float  # CPU time of adding one vector to another, per byte

    @property
    def calibration_status_text(self) -> str:
        """Text for messages that states when the capacity was measured, or why it is assumed."""
        return f"calibrated {self.calibrated}" if self.calibrated else f"not calibrated: {self.note}"


# Conservative values, from measurements on two cores of a virtual machine: HTB kept 2.5 Gbit/s within 3 %, gRPC between
# containers transferred 4 Gbit/s per core before rates fell, and a small message took 0.45 ms of CPU time at both ends
# together.
ASSUMED_COSTS = {"alpha_s": 0.0003, "shaped_bps": 2.5e9, "message_cpu_s": 0.00045, "byte_cpu_s": 1e-9, "sum_s": 1e-10}
ASSUMED_BPS_PER_CORE = 4e9


def host_fingerprint(engine: TrialEngine) -> HostFingerprint:
    """Return the processor, cores, kernel and engine version of this host.

    Stored calibrations are recognised by these values.
    """
    release = str(engine.describe_engine_versions().get("version") or f"grpcio {version('grpcio')}")
    return HostFingerprint(
        cpu=processor_model(), cores=available_core_count(), kernel=platform.release(), engine=release
    )


def find_host_capacity(engine: TrialEngine, transport_name: TransportName = "grpc") -> HostCapacity:
    """Return the capacity of this host for an engine and a transport.

    The capacity is the one measured by `ensayo calibrate`, else an assumed one.
    """
    fingerprint = host_fingerprint(engine)
    try:
        stored = HostCapacity.model_validate(_read_stored_capacities()[_make_cache_key(engine.name, transport_name)])
    except (KeyError, ValidationError):
        return assume_host_capacity(
            engine.name, fingerprint, "run `ensayo calibrate` to measure this host", transport_name
        )
    differences = [name for name, value in fingerprint if value != getattr(stored.fingerprint, name)]
    if differences:
        reason = f"the stored measurement was made with another {' and '.join(differences)}"
        return assume_host_capacity(engine.name, fingerprint, reason, transport_name)
    return stored


def assume_host_capacity(
    engine_name: EngineName,
    fingerprint_of_host: HostFingerprint,
    why_uncalibrated: str,
    transport_name: TransportName = "grpc",
) -> HostCapacity:
    """Return a conservative capacity for a host that is not calibrated.

    It is computed from the host's cores and from assumed costs of gRPC messages.
    """
    total_bps = ASSUMED_BPS_PER_CORE * fingerprint_of_host.cores
    return HostCapacity(
        engine=engine_name,
        transport=transport_name,
        fingerprint=fingerprint_of_host,
        note=why_uncalibrated,
        total_bps=total_bps,
        **ASSUMED_COSTS,
    )


def save_capacity(capacity: HostCapacity) -> Path:
    """Store a measured capacity in the capacity file, beside those of other engines and transports.

    Return its path.
    """
    path = locate_host_capacity_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    new_file = path.with_suffix(f".{os.getpid()}")
    stored = _read_stored_capacities() | {_make_cache_key(capacity.engine, capacity.transport): capacity.model_dump()}
    new_file.write_text(json.dumps(stored, indent=1), encoding="utf-8")
    new_file.replace(path)
    return path


def locate_host_capacity_file() -> Path:
    """Return the path of the file with all measured capacities, in the user's cache folder."""
    return user_cache_folder() / "capacity.json"


def _make_cache_key(engine_name: EngineName, transport_name: TransportName) -> str:
    """Return the key under which the capacity file stores the capacity of an engine and a transport."""
    return f"{engine_name} {transport_name}"


def _read_stored_capacities() -> dict[str, Any]:
    """Return all capacities in the capacity file, as a mapping from key to capacity.

    The result is empty when the file is absent or invalid.
    """
    try:
        document = json.loads(locate_host_capacity_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
