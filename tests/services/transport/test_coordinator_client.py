"""Tests of calls of a node to the coordinator over gRPC."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import grpc
import pytest

from compose.runs.certificates import issue_certificates
from services.checkpoints import CheckpointError
from services.cluster.addresses import Address
from services.coordinator.service import CoordinatorService
from services.plan import COORDINATOR
from services.runtime.clock import WallClock
from services.runtime.control import EvaluationPointReport
from services.runtime.identity import NodeIdentity
from services.runtime.membership import CheckpointReport
from services.runtime.run_log import RunLog
from services.schema.errors import EvictedError, HostError
from services.transport.grpc.channels import listen_on
from services.transport.grpc.coordinator_client import GrpcCoordinatorClient
from services.wire.control_pb2_grpc import add_ControlServicer_to_server


class FullDisk:
    """Completion of checkpoints on a full disk."""

    def handle_report(self, _report: CheckpointReport) -> NoReturn:
        raise CheckpointError(Path("step-00000020/manifest.json"), "can't be written: No space left on device")


RUN_LOG = RunLog("", WallClock(), lambda _line: None)


class EvictingCoordinator:
    """Coordinator that considers each caller lost."""

    log = RUN_LOG

    async def report_evaluation_point(self, report: EvaluationPointReport) -> NoReturn:
        raise EvictedError(f"{report.node_name} sent no heartbeat for 2s, so training goes on without it")


def call_coordinator(
    folder: Path, runtime: Any, call: Callable[[GrpcCoordinatorClient], Coroutine[Any, Any, object]]
) -> None:
    """Call a coordinator over gRPC on the loopback interface, as worker-0."""
    issue_certificates("run", (COORDINATOR, "worker-0"), folder)
    identities = {name: NodeIdentity.read(name, folder / name) for name in (COORDINATOR, "worker-0")}
    with socket.create_server(("127.0.0.1", 0)) as free_socket:
        address = Address(host="127.0.0.1", port=free_socket.getsockname()[1])
    plan: Any = SimpleNamespace(
        node_plan=lambda _name: SimpleNamespace(addresses=SimpleNamespace(control=address)),
        timeouts=SimpleNamespace(step=10.0),
        dilation=1.0,
    )

    async def call_over_grpc() -> None:
        server = grpc.aio.server()
        add_ControlServicer_to_server(CoordinatorService(runtime), server)
        listen_on(server, address, identities[COORDINATOR])
        await server.start()
        client = GrpcCoordinatorClient(plan, identities["worker-0"])
        try:
            await call(client)
        finally:
            await client.close()
            await server.stop(None)

    asyncio.run(call_over_grpc())


def test_a_manifest_that_cannot_be_written_is_no_error_of_the_network(tmp_path: Path) -> None:
    """After a network error, a node would wait until the loss of another node is announced."""
    report = CheckpointReport("worker-0", 0, 20, 512, "ab" * 32)

    with pytest.raises(HostError, match=r"manifest\.json: can't be written: No space left on device"):
        call_coordinator(
            tmp_path,
            SimpleNamespace(checkpoints=FullDisk(), log=RUN_LOG),
            lambda client: client.report_checkpoint(report),
        )


def test_an_evicted_worker_that_reports_an_evaluation_point_learns_that_it_is_evicted(tmp_path: Path) -> None:
    """With another error, a worker that was frozen would fail the trial that has gone on without it."""
    report = EvaluationPointReport("worker-0", 1, 20, 640, 3.5, 640)

    with pytest.raises(EvictedError, match="worker-0 sent no heartbeat for 2s"):
        call_coordinator(tmp_path, EvictingCoordinator(), lambda client: client.report_evaluation_point(report))
