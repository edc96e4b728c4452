"""Tests of calls of a node to the coordinator over gRPC."""

import asyncio
import socket
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
from services.runtime.identity import NodeIdentity
from services.runtime.membership import CheckpointReport
from services.runtime.run_log import RunLog
from services.schema.errors import HostError
from services.transport.grpc.channels import listen_on
from services.transport.grpc.coordinator_client import GrpcCoordinatorClient
from services.wire.control_pb2_grpc import add_ControlServicer_to_server


class FullDisk:
    """Completion of checkpoints on a full disk."""

    def handle_report(self, _report: CheckpointReport) -> NoReturn:
        raise CheckpointError(Path("step-00000020/manifest.json"), "can't be written: No space left on device")


def test_a_manifest_that_cannot_be_written_is_no_error_of_the_network(tmp_path: Path) -> None:
    """After a network error, a node would wait until the loss of another node is announced."""
    issue_certificates("run", (COORDINATOR, "worker-0"), tmp_path)
    identities = {name: NodeIdentity.read(name, tmp_path / name) for name in (COORDINATOR, "worker-0")}
    with socket.create_server(("127.0.0.1", 0)) as free_socket:
        address = Address(host="127.0.0.1", port=free_socket.getsockname()[1])
    plan: Any = SimpleNamespace(
        node_plan=lambda _name: SimpleNamespace(addresses=SimpleNamespace(control=address)),
        timeouts=SimpleNamespace(step=10.0),
        dilation=1.0,
    )
    runtime: Any = SimpleNamespace(checkpoints=FullDisk(), log=RunLog("", WallClock(), lambda _line: None))

    async def report_checkpoint() -> None:
        server = grpc.aio.server()
        add_ControlServicer_to_server(CoordinatorService(runtime), server)
        listen_on(server, address, identities[COORDINATOR])
        await server.start()
        client = GrpcCoordinatorClient(plan, identities["worker-0"])
        try:
            await client.report_checkpoint(CheckpointReport("worker-0", 0, 20, 512, "ab" * 32))
        finally:
            await client.close()
            await server.stop(None)

    with pytest.raises(HostError, match=r"manifest\.json: can't be written: No space left on device"):
        asyncio.run(report_checkpoint())
