"""Ports of the nodes of engine `local`: free, and out of reach of outgoing connections."""

import socket
from pathlib import Path

import pytest

from compose.engines import create_engine, local
from services.schema.errors import HostError


def ports_of(node_count: int) -> list[int]:
    addresses = create_engine("local").choose_addresses("run", node_count)
    nodes = [addresses.node_addresses(index) for index in range(node_count)]
    return [address.port for node in nodes for address in (node.data, node.control)]


def test_the_kernel_gives_no_port_of_a_node_to_an_outgoing_connection() -> None:
    """Otherwise a program that connects between two trials can take the port of a node."""
    first_ephemeral, last_ephemeral = map(int, local.EPHEMERAL_PORTS_FILE.read_text().split())

    ports = ports_of(20)

    assert len(set(ports)) == 40
    assert not any(first_ephemeral <= port <= last_ephemeral for port in ports)


def test_a_host_whose_outgoing_connections_may_use_all_ports_can_run_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Administrators of busy servers set such a range."""
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(local, "EPHEMERAL_PORTS_FILE", tmp_path / "range")

    assert len(set(ports_of(3))) == 6


def test_a_port_that_another_program_uses_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = ports_of(1)
    monkeypatch.setattr(local, "_ports_in_order_of_choice", lambda: [taken, free, free + 1])
    with socket.socket() as other_program:
        other_program.bind(("127.0.0.1", taken))

        assert ports_of(1) == [free, free + 1]


def test_too_few_free_ports_are_reported_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_is_port_free", lambda port: port == local.FIRST_PORT)

    with pytest.raises(HostError, match=r"2 nodes need 4 TCP ports, but only 1 are free from 10000 on"):
        ports_of(2)
