"""Containers that do nothing but keep a pace, as nodes of a trial would: one CPU group each, one network for all."""

import inspect
import json
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any

import docker
from docker.errors import DockerException
from docker.models.containers import Container

from benchmarks.fidelity import pacing_program
from benchmarks.fidelity.pacing_program import Beat
from compose.engines.containers.compose_file import cpu_quota
from compose.engines.local import NODE_ENVIRONMENT
from compose.runs.labels import NODE_LABEL, ROLE_LABEL, RUN_LABEL
from services.schema.errors import HostError

PATIENCE_S = 300.0
ROLE = "pacer"
WHOLE_CORE = 1.0  # as every node has that declares nothing


def pace(image: str, beats: list[Beat]) -> list[Mapping[str, Any]]:
    """What `benchmarks.fidelity.pacing_program` says of each; nothing is left running.

    Args:
        image: of nodes.
        beats: by rank.

    Raises:
        HostError: the engine does not do it, or a worker fails.
    """
    started: list[Container] = []
    with closing(docker.from_env()) as client:
        try:
            for beat in beats:
                started.append(_start(client, image, beat, started[0].id if started else None))
            return [_result(container) for container in started]
        except DockerException as error:
            raise HostError(f"containers that keep a pace: {error}") from error
        finally:
            for container in started:
                with suppress(DockerException):
                    container.remove(force=True)


def _start(client: docker.DockerClient, image: str, beat: Beat, first: str | None) -> Container:
    words = (beat.rank, beat.workers, beat.steps, beat.work_s, beat.step_s)
    container: Container = client.containers.run(
        image,
        [*map(str, words)],
        entrypoint=[
            "python",
            "-c",
            inspect.getsource(pacing_program),
        ],  # the image holds what a node needs, no benchmark
        detach=True,
        network_mode="none" if first is None else f"container:{first}",
        environment=dict(NODE_ENVIRONMENT),
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        read_only=True,
        **cpu_quota(WHOLE_CORE),
        labels={RUN_LABEL: ROLE, ROLE_LABEL: ROLE, NODE_LABEL: f"{ROLE}-{beat.rank}"},
    )
    return container


def _result(container: Container) -> Mapping[str, Any]:
    code = container.wait(timeout=PATIENCE_S)["StatusCode"]
    if code:
        raise HostError(f"a container that keeps a pace ended with {code}: {container.logs().decode()[-500:]}")
    told: dict[str, Any] = json.loads(container.logs(stdout=True, stderr=False))
    return told
