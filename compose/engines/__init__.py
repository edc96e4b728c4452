"""The three engines that run trials: `docker`, `local` and `simulated`.

`docker` runs nodes in containers, with links shaped by tc. `local` runs nodes as processes, with links shaped in the
transport. `simulated` runs all nodes in one process, in virtual time. An engine's module is imported when the engine is
chosen, so that a host without Docker does not need its Python SDK.
"""

from importlib import import_module
from typing import NamedTuple

from compose.engines.base import TrialEngine
from services.plan.trial_outcome import TrialOutcome
from services.schema.errors import UserError

ENGINE_CLASSES = {
    "docker": "compose.engines.containers.engine:DockerEngine",
    "local": "compose.engines.local:LocalEngine",
    "simulated": "compose.engines.simulated:SimulatedEngine",
}


class EngineChoice(NamedTuple):
    """The engine that runs the trials, and the reason why this engine was chosen."""

    engine: TrialEngine
    reason: str


def choose_engine(engine_name: str | None) -> EngineChoice:
    """Return the engine named `engine_name`, or the default engine of this host.

    If the name is None, choose `docker` where Docker is running, otherwise `local`.

    Raises:
        UserError: no engine has this name, or this host lacks a requirement of the engine.
    """
    if engine_name is None:
        return _choose_available_engine()
    if engine_name not in ENGINE_CLASSES:
        raise UserError(f"unknown engine {engine_name!r}; choose one of {', '.join(ENGINE_CLASSES)}")
    engine = create_engine(engine_name)
    if problem := engine.missing_software():
        raise UserError(
            f"engine {engine_name} can't run on this host: {problem}; "
            "`ensayo doctor` shows how to install what is missing"
        )
    return EngineChoice(engine, "requested")


def create_engine(engine_name: str) -> TrialEngine:
    """Return the engine with the given name, even if this host can't run the engine."""
    module_name, _, class_name = ENGINE_CLASSES[engine_name].partition(":")
    engine: TrialEngine = getattr(import_module(module_name), class_name)()
    return engine


def _choose_available_engine() -> EngineChoice:
    docker = create_engine("docker")
    problem = docker.missing_software()
    if problem is None:
        return EngineChoice(docker, "Docker is running")
    return EngineChoice(create_engine("local"), problem)


__all__ = ["ENGINE_CLASSES", "EngineChoice", "TrialEngine", "TrialOutcome", "choose_engine", "create_engine"]
