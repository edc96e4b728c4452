"""Containers that run the pacing program with the CPU quota of a node, each in its own CPU group, on one network."""

import inspect
import json
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any

import docker
from docker.errors import DockerException
from docker.models.containers import Container

from benchmarks.fidelity.pacing import program
from benchmarks.fidelity.pacing.program import PacingTask
from compose.engines.containers.compose_file import compose_file_cpu_quota
from compose.engines.local import NODE_ENVIRONMENT
from compose.runs.labels import NODE_LABEL, ROLE_LABEL, RUN_LABEL
from services.schema.errors import HostError

CONTAINER_TIMEOUT_S = 300.0
CONTAINER_ROLE = "pacer"
CPU_QUOTA_CORES = 1.0  # default quota of a node


def run_pacing_workers(image_tag: str, tasks: list[PacingTask]) -> list[Mapping[str, Any]]:
    """Run `benchmarks.fidelity.pacing.program` in a container per worker and return the results by rank.

    All containers are removed at the end.

    Args:
        image_tag: image of the nodes.
        tasks: task of each worker, by rank.

    Raises:
        HostError: Docker could not run the containers, or a worker failed.
    """
    started: list[Container] = []
    with closing(docker.from_env()) as client:
        try:
            for task in tasks:
                started.append(_start_container(client, image_tag, task, started[0].id if started else None))
            return [_read_result(container) for container in started]
        except DockerException as error:
            raise HostError(f"could not run the containers of the pacing workers: {error}") from error
        finally:
            for container in started:
                with suppress(DockerException):
                    container.remove(force=True)


def _start_container(
    client: docker.DockerClient, image_tag: str, task: PacingTask, network_container: str | None
) -> Container:
    arguments = (task.rank, task.workers, task.steps, task.compute_s, task.step_s)
    container: Container = client.containers.run(
        image_tag,
        [*map(str, arguments)],
        # The source is passed as an argument, since the image of the nodes does not contain the benchmarks.
        entrypoint=["python", "-c", inspect.getsource(program)],
        detach=True,
        network_mode="none" if network_container is None else f"container:{network_container}",
        environment=dict(NODE_ENVIRONMENT),
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        read_only=True,
        **compose_file_cpu_quota(CPU_QUOTA_CORES),
        labels={RUN_LABEL: CONTAINER_ROLE, ROLE_LABEL: CONTAINER_ROLE, NODE_LABEL: f"{CONTAINER_ROLE}-{task.rank}"},
    )
    return container


def _read_result(container: Container) -> Mapping[str, Any]:
    exit_code = container.wait(timeout=CONTAINER_TIMEOUT_S)["StatusCode"]
    if exit_code:
        last_output = container.logs().decode()[-500:]
        raise HostError(
            f"the container of a pacing worker ended with exit code {exit_code}; last output: {last_output}"
        )
    result: dict[str, Any] = json.loads(container.logs(stdout=True, stderr=False))
    return result
