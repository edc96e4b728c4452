"""The coordinator refuses calls that are not from the named node of its trial, records them once, and goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
import pytest
from refused_connection_events import refused_connections

from services.cluster.addresses import Address
from services.coordinator.service import RunEventService
from services.coordinator.step_events import StepEventStarts
from services.runtime.clock import WallClock
from services.runtime.identity import NodeIdentity
from services.runtime.refused_connections import RefusedConnectionLog
from services.runtime.run_log import RunLog
from services.schema.errors import AuthenticationError
from services.transport.grpc.channels import listen_on, open_channel, server_options
from services.transport.grpc.checked_calls import CheckedCalls
from services.transport.grpc.connection_watch import ConnectionWatch
from services.wire import control_pb2 as wire
from services.wire.control_pb2_grpc import ControlServicer, ControlStub, add_ControlServicer_to_server

MESSAGE_LIMIT_BYTES = 100_000


class JoinOnlyCoordinator:
    """A coordinator that starts at once, and knows the digest of one plan."""

    def __init__(self, log: RunLog) -> None:
        self.log = log
        self.step_events = StepEventStarts((), log.clock, log)
        self.joined: list[str] = []

    async def join(self, node_name: str, plan_sha256: str) -> float:
        if plan_sha256 != "plan":
            raise AuthenticationError(f"{node_name} was started with another plan")
        self.joined.append(node_name)
        return 1.0


class JoinOnlyService(RunEventService, ControlServicer):  # type: ignore[misc]
    """The calls of all coordinators."""


Attack = Callable[[Address], Awaitable[object]]
AttackCoordinator = Callable[[Attack], list[dict[str, Any]]]


@pytest.fixture
def attack_coordinator(identities: dict[str, NodeIdentity], addresses: dict[str, Address]) -> AttackCoordinator:
    """Return a function that attacks the coordinator b between the calls of two nodes, and returns the rejections."""

    def run(attack: Attack) -> list[dict[str, Any]]:
        lines: list[str] = []

        async def main() -> None:
            coordinator = JoinOnlyCoordinator(RunLog("", WallClock(), lines.append))
            rejections = RefusedConnectionLog(coordinator.log)
            connections = ConnectionWatch(rejections, 1.0, lambda _address: True)
            server = grpc.aio.server(
                options=server_options(MESSAGE_LIMIT_BYTES, 1.0, 300.0),
                interceptors=[CheckedCalls(connections, MESSAGE_LIMIT_BYTES)],
            )
            add_ControlServicer_to_server(JoinOnlyService(coordinator, rejections), server)
            listen_on(server, addresses["b"], identities["b"])
            await server.start()
            await call_join(addresses["b"], identities["a"], "a")
            await attack(addresses["b"])
            await call_join(addresses["b"], identities["c"], "c")
            await server.stop(None)
            assert coordinator.joined == ["a", "c"]

        asyncio.run(main())
        return refused_connections(lines)

    return run


async def call_join(address: Address, identity: NodeIdentity | None, node_name: str, plan: str = "plan") -> float:
    """Join the trial under a name, with the certificate of an identity."""
    async with open_channel(address, "b", identity) as channel:
        request = wire.JoinRequest(node_name=node_name, plan_sha256=plan)
        return float((await ControlStub(channel).Join(request, timeout=2.0)).start_s)


def expect_status(code: grpc.StatusCode, calling: Callable[[Address], Awaitable[object]]) -> Attack:
    """Return an attack whose call must end with this status."""

    async def attack(address: Address) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await calling(address)
        assert error.value.code() == code

    return attack


def test_a_node_that_claims_the_name_of_another_node_is_refused_and_recorded(
    attack_coordinator: AttackCoordinator, identities: dict[str, NodeIdentity]
) -> None:
    """A node of the trial has a certificate, but only for its own name."""
    attack = expect_status(grpc.StatusCode.PERMISSION_DENIED, lambda at: call_join(at, identities["c"], "a"))

    (refused,) = attack_coordinator(attack)

    assert refused["reason"] == "a call with the certificate of ['c'] can't be made for node a"
    assert refused["claimed_sender"] == "a"


def test_a_node_with_another_plan_is_refused_and_recorded(
    attack_coordinator: AttackCoordinator, identities: dict[str, NodeIdentity]
) -> None:
    """Nodes with different plans would exchange vectors of different lengths."""
    attack = expect_status(grpc.StatusCode.PERMISSION_DENIED, lambda at: call_join(at, identities["c"], "c", "other"))

    (refused,) = attack_coordinator(attack)

    assert "another plan" in refused["reason"]


@pytest.mark.parametrize("unknown", ["no TLS", "another run's certificate"])
def test_an_unknown_process_is_refused_by_tls_and_grpc_writes_a_line(
    attack_coordinator: AttackCoordinator,
    identities: dict[str, NodeIdentity],
    unknown: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """No byte of a request is read before both certificates are verified."""
    identity = None if unknown == "no TLS" else identities["intruder"]
    attack = expect_status(grpc.StatusCode.UNAVAILABLE, lambda at: call_join(at, identity, "a"))

    assert attack_coordinator(attack) == []
    assert "Handshake failed" in capfd.readouterr().err


@pytest.mark.parametrize("first_bytes", [b"", b"\x16", b"\xff" * 300], ids=["silent", "one byte", "garbage"])
def test_a_connection_without_a_handshake_in_time_is_closed(
    attack_coordinator: AttackCoordinator, first_bytes: bytes
) -> None:
    """A process that opens connections and sends nothing must not keep memory and descriptors of the coordinator."""

    async def attack(address: Address) -> None:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(first_bytes)
        with suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 5.0)  # ends when the coordinator closes the connection
        writer.transport.abort()

    assert attack_coordinator(attack) == []


def call_with_bytes(method: str, identity: NodeIdentity, request: bytes) -> Callable[[Address], Awaitable[object]]:
    """Return a call of a method with the certificate of a node, whose request has these bytes."""

    async def call(address: Address) -> None:
        async with open_channel(address, "b", identity) as channel:
            await channel.unary_unary(method)(request, timeout=2.0)

    return call


@pytest.mark.parametrize(
    ("method", "request_bytes", "code", "reason"),
    [
        ("/ensayo.wire.Control/Join", b"\xff" * 300, grpc.StatusCode.INVALID_ARGUMENT, "300 bytes are not a valid"),
        ("/ensayo.wire.Control/Shutdown", b"", grpc.StatusCode.UNIMPLEMENTED, "does not exist"),
        (
            "/ensayo.wire.Control/Join",
            bytes(MESSAGE_LIMIT_BYTES + 1),
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "a request of /ensayo.wire.Control/Join is longer than the limit of 100,000 bytes",
        ),
    ],
    ids=["garbage", "unknown method", "too long"],
)
def test_an_invalid_request_is_recorded_once(
    attack_coordinator: AttackCoordinator,
    identities: dict[str, NodeIdentity],
    method: str,
    request_bytes: bytes,
    code: grpc.StatusCode,
    reason: str,
) -> None:
    """The caller has a certificate of the trial. No byte reaches the coordinator."""
    attack = expect_status(code, call_with_bytes(method, identities["c"], request_bytes))

    (refused,) = attack_coordinator(attack)

    assert reason in refused["reason"]
