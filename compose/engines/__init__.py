"""Engines: docker (containers, tc), local (processes, shaped in the transport), simulated (one process, virtual time).

Imported when chosen: only a host with Docker needs its SDK to answer.
"""

from importlib import import_module
from typing import NamedTuple

from compose.engines.base import Engine, Status
from services.schema.errors import UserError

ENGINES = {
    "docker": "compose.engines.containers.engine:DockerEngine",
    "local": "compose.engines.local:LocalEngine",
    "simulated": "compose.engines.simulated:SimulatedEngine",
}


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
    if want not in ENGINES:
        raise UserError(f"there is no engine {want}; engines are {', '.join(ENGINES)}")
    engine = named(want)
    if missing := engine.missing():
        raise UserError(f"engine {want} can't run here: {missing}; `ensayo doctor` says how to get it")
    return Choice(engine, "asked for")


def named(name: str) -> Engine:
    """The engine of this name, whether or not it can run here."""
    module, _, kind = ENGINES[name].partition(":")
    engine: Engine = getattr(import_module(module), kind)()
    return engine


def _best() -> Choice:
    docker = named("docker")
    missing = docker.missing()
    if missing is None:
        return Choice(docker, "a Docker engine answers")
    return Choice(named("local"), missing)


__all__ = ["ENGINES", "Choice", "Engine", "Status", "choose", "named"]
