"""Engines: docker (containers, tc), local (processes, shaped in the transport), simulated (one process, virtual time).

Imported when chosen: only a host with Docker needs its SDK to answer.
"""

from typing import NamedTuple

from compose.engines.base import Engine, Status
from services.errors import UserError

NAMES = ("docker", "local", "simulated")


class Choice(NamedTuple):
    """An engine, and why it was taken."""

    engine: Engine
    reason: str


def choose(want: str | None) -> Choice:
    """The engine that is wanted; without a wish, Docker when an engine answers, else local processes.

    Raises:
        UserError: there is no such engine, or this host lacks what it needs.
    """
    if want is None:
        return _best()
    if want not in NAMES:
        raise UserError(f"there is no engine {want}; engines are {', '.join(NAMES)}")
    engine = named(want)
    if missing := engine.missing():
        raise UserError(f"engine {want} can't run here: {missing}; `ensayo doctor` says how to get it")
    return Choice(engine, "asked for")


def named(name: str) -> Engine:
    """The engine of this name, whether or not it can run here."""
    from compose.engines.docker import DockerEngine  # noqa: PLC0415 - see above
    from compose.engines.local import LocalEngine  # noqa: PLC0415
    from compose.engines.simulated import SimulatedEngine  # noqa: PLC0415

    engines: dict[str, type[DockerEngine | LocalEngine | SimulatedEngine]] = {
        "docker": DockerEngine,
        "local": LocalEngine,
        "simulated": SimulatedEngine,
    }
    return engines[name]()


def _best() -> Choice:
    docker = named("docker")
    missing = docker.missing()
    if missing is None:
        return Choice(docker, "a Docker engine answers")
    return Choice(named("local"), missing)


__all__ = ["NAMES", "Choice", "Engine", "Status", "choose", "named"]
