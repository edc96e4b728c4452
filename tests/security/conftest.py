"""Nodes of a run, of another run, and free addresses of this host."""

import socket

import pytest

from compose.runs.certificates import issue_certificates
from services.cluster.addresses import Address
from services.runtime.identity import NodeIdentity


@pytest.fixture(scope="session")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, NodeIdentity]:
    """Three nodes of one run; and, as `intruder`, a node of another run that is also named `a`."""
    ours, theirs = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("theirs")
    issue_certificates("this-run", ("a", "b", "c"), ours)
    issue_certificates("other-run", ("a",), theirs)
    return {name: NodeIdentity.read(name, ours / name) for name in ("a", "b", "c")} | {
        "intruder": NodeIdentity.read("a", theirs / "a")
    }


@pytest.fixture
def addresses() -> dict[str, Address]:
    """Free ports of this host for the nodes a, b and c."""
    sockets = [socket.socket() for _ in range(3)]
    for free_socket in sockets:
        free_socket.bind(("127.0.0.1", 0))
    ports = [free_socket.getsockname()[1] for free_socket in sockets]
    for free_socket in sockets:
        free_socket.close()
    return {name: Address(host="127.0.0.1", port=port) for name, port in zip("abc", ports, strict=True)}
